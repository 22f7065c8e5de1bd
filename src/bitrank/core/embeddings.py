"""Packed codes of what models, providers, databases, chemists and perceptual hashes give: embeddings, texts, files."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from bitrank.core.arrays import to_array
from bitrank.core.checks import check_finite, is_one_column_per_bit
from bitrank.core.types import Codes

Form = Literal["auto", "float", "bits", "signs", "ubinary", "binary", "int8", "little", "text", "hex", "fps"]

_FORMS = (
    '"binary" for packed bits less 128 (sentence-transformers, Cohere, mxbai, Voyage), "int8" for packed bits as '
    'signed bytes (Elasticsearch, Vespa, Java), or "float" for one number per dimension'
)


def from_embeddings(embeddings: Any, form: Form = "auto") -> Codes:
    """Make packed codes of embeddings in any of the forms in which people have them.

    Bits are set where an embedding is positive, as in ``np.packbits(embeddings > 0, axis=1)`` and in what providers
    return. Reals are not centred; `SignBits` is the hasher that can.

    Parameters
    ----------
    embeddings : array of shape (n, n_dimensions) or (n, n_bytes), or n texts
        NumPy, lists, data frames, Arrow columns or tensors; lists of ImageHash or of RDKit's ExplicitBitVect.
    form : str
        ======== ==========================================================================================
        auto     recognise the form where only one is possible, else raise an error that names those possible
        float    one number per dimension, reals or their int8 quantisation: the signs
        bits     one boolean, or 0 or 1, per dimension
        signs    one +1 or -1 per dimension
        ubinary  packed bytes from 0 to 255, the first dimension in the highest bit: NumPy, PostgreSQL, providers
        binary   the same less 128: ``quantize_embeddings(…, precision="binary")``, Cohere, mxbai, Voyage
        int8     the same as two's complement: Elasticsearch, Vespa, Java
        little   packed bytes, the first dimension in the lowest bit: ``faiss.real_to_binary``
        text     texts of 0 and 1, the first dimension first: ``bit(n)`` of PostgreSQL and pgvector, DuckDB
        hex      hexadecimal texts, the first bit in the highest: PDQ, ``str`` of an ImageHash
        fps      hexadecimal texts, the first bit in the lowest of a byte: FPS files of chemfp, RDKit's
        ======== ==========================================================================================

    Returns
    -------
    codes : uint8 array of shape (n, ceil(n_bits / 8))

    Examples
    --------
    >>> from_embeddings([[0.25, -0.5, 0.125]])
    array([[160]], dtype=uint8)
    >>> from_embeddings(np.int8([[32]]), form="binary")
    array([[160]], dtype=uint8)
    >>> from_embeddings(["101"])
    array([[160]], dtype=uint8)
    """
    if form not in get_args(Form):
        raise ValueError(f"form must be one of {', '.join(get_args(Form))}, got {form!r}")
    array = to_array(embeddings, "embeddings")
    if form in ("text", "hex", "fps") or (form == "auto" and array.dtype.kind == "U"):
        return _from_texts(array) if form in ("text", "auto") else _from_hex(array, form)
    if array.ndim != 2 or array.shape[1] == 0 or array.dtype.kind not in "biuf":
        raise ValueError(
            f"embeddings must be a matrix of numbers with one row per item, got {array.dtype} of shape {array.shape}"
        )
    if array.dtype.kind == "f":
        check_finite(array, "embeddings")
    return _READERS[_recognise(array) if form == "auto" else form](array)


def _recognise(array: npt.NDArray[Any]) -> Form:
    if is_one_column_per_bit(array):
        return "signs" if array.dtype != np.bool_ else "bits"
    if not array.size or (array.dtype.kind == "f" and (array != np.rint(array)).any()):
        return "ubinary" if array.dtype == np.uint8 else "float"
    if array.size > 8 and ((array == 0) | (array == 1)).all():
        return "bits"
    least, most = array.min(), array.max()
    if array.dtype == np.uint8 or (least >= 0 and 127 < most <= 255):
        return "ubinary"
    if array.dtype.kind == "f" and (least < -128 or most > 255):
        return "float"
    raise ValueError(
        f"embeddings must say their form, got whole numbers from {least:g} to {most:g} as {array.dtype}, which may be "
        f"packed bits or not: give form={_FORMS}"
    )


def _bytes(array: npt.NDArray[Any], least: int) -> npt.NDArray[np.int64]:
    whole = array.astype(np.int64)
    if (whole != array).any() or whole.min(initial=least) < least or whole.max(initial=least) > least + 255:
        raise ValueError(
            f"embeddings of this form must be whole numbers from {least} to {least + 255}, "
            f"got {array.dtype} from {array.min():g} to {array.max():g}"
        )
    return whole


def _from_bits(array: npt.NDArray[Any]) -> Codes:
    if array.dtype != np.bool_ and not ((array == 0) | (array == 1)).all():
        raise ValueError(f"embeddings of bits must be 0 or 1, got values from {array.min():g} to {array.max():g}")
    return np.packbits(array != 0, axis=1)


def _from_signs(array: npt.NDArray[Any]) -> Codes:
    if not (np.abs(array.astype(np.float64)) == 1).all():
        raise ValueError(f"embeddings of signs must be +1 or -1, got values from {array.min():g} to {array.max():g}")
    return np.packbits(array > 0, axis=1)


def _check_texts(array: npt.NDArray[Any]) -> int:
    """The one length of texts."""
    if array.dtype.kind != "U" or array.ndim != 1 or not len(array):
        raise ValueError(f"embeddings as text must be a list of texts, got {array.dtype} of shape {array.shape}")
    lengths = np.char.str_len(array)
    if lengths.min() != lengths.max() or not lengths.max():
        raise ValueError(f"embeddings as text must have one length, got {lengths.min()} to {lengths.max()} digits")
    return int(lengths.max())


def _from_texts(array: npt.NDArray[Any]) -> Codes:
    length = _check_texts(array)
    digits = np.ascontiguousarray(array).view(np.uint32).reshape(len(array), -1)[:, :length]
    wrong = (digits != ord("0")) & (digits != ord("1"))
    if wrong.any():
        raise ValueError(
            f"embeddings as text must hold 0 and 1 only, got {chr(digits[wrong][0])!r}; "
            'hexadecimal texts are form="hex" (PDQ, ImageHash) or form="fps" (chemfp, RDKit)'
        )
    return np.packbits(digits == ord("1"), axis=1)


def _from_hex(array: npt.NDArray[Any], form: str) -> Codes:
    length, texts = _check_texts(array), array.tolist()
    if length % 2:
        raise ValueError(f"embeddings as hexadecimal texts must have two digits per byte, got {texts[0]!r:.40}")
    if wrong := set("".join(texts)) - set("0123456789abcdefABCDEF"):
        raise ValueError(f"embeddings as hexadecimal texts must hold 0-9 and a-f only, got {min(wrong)!r}")
    rows = np.frombuffer(bytes.fromhex("".join(texts)), np.uint8).reshape(len(texts), -1)
    return _from_little(rows) if form == "fps" else rows.copy()


def _from_little(rows: npt.NDArray[Any]) -> Codes:
    return np.packbits(np.unpackbits(rows.astype(np.uint8), axis=1, bitorder="little"), axis=1)


class Fingerprints(NamedTuple):
    """Packed codes of a file, their names, and how many bits they have."""

    codes: Codes
    ids: list[str]
    n_bits: int


def read_fps(path: str | os.PathLike[str]) -> Fingerprints:
    """Read fingerprints of an FPS file, as chemfp, RDKit and Open Babel write them; .gz is unpacked.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "some.fps")
    ...     _ = path.write_text("#FPS1\\n#num_bits=12\\n8001\\tCHEMBL1\\n0300\\tCHEMBL2\\n")
    ...     read_fps(path)
    Fingerprints(codes=array([[  1, 128],
           [192,   0]], dtype=uint8), ids=['CHEMBL1', 'CHEMBL2'], n_bits=12)
    """
    with gzip.open(path, "rt") if Path(path).suffix == ".gz" else Path(path).open() as file:
        lines = file.read().splitlines()
    header = dict(line[1:].split("=", 1) for line in lines if line.startswith("#") and "=" in line)
    rows = [line.split("\t")[:2] for line in lines if line and not line.startswith("#")]
    if not rows or any(len(row) < 2 for row in rows):
        got = rows[0] if rows else "none"
        raise ValueError(f"{path} must hold lines of a fingerprint, a tab and a name, got {got}")
    texts, ids = zip(*rows, strict=True)
    codes = _from_hex(np.array(texts), "fps")
    n_bits = int(header.get("num_bits", 8 * codes.shape[1]))
    if not 8 * codes.shape[1] - 8 < n_bits <= 8 * codes.shape[1]:
        raise ValueError(f"{path} must hold fingerprints of the {n_bits} bits it names, got {codes.shape[1]} bytes")
    return Fingerprints(codes, list(ids), n_bits)


_READERS = {
    "float": lambda array: np.packbits(array > 0, axis=1),
    "bits": _from_bits,
    "signs": _from_signs,
    "ubinary": lambda array: _bytes(array, 0).astype(np.uint8),
    "binary": lambda array: (_bytes(array, -128) + 128).astype(np.uint8),
    "int8": lambda array: _bytes(array, -128).astype(np.int8).view(np.uint8),
    "little": lambda array: _from_little(_bytes(array, 0)),
}
