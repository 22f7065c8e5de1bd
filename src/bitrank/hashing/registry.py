"""The registry of hashers, and the reader of their files."""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING

from bitrank.core.archives import read_archive
from bitrank.core.lazy import class_by_name

if TYPE_CHECKING:
    from bitrank.hashing.hasher import Hasher

FORMAT = "bitrank hasher"
VERSION = 1

# Every hasher and its module, here or in the package of published methods. A new one is a file and a line here; the
# contract tests run over all of them.
HASHERS = {
    "LSH": "lsh",
    "SpectralHashing": "bitrank_papers.spectral",
    "IsotropicHashing": "bitrank_papers.isotropic",
    "ITQ": "itq",
    "SignBits": "sign_bits",
    "BitPlanes": "bit_planes",
    "MultidimensionalSpectralHashing": "bitrank_papers.mdsh",
    "KernelSupervisedHashing": "bitrank_papers.ksh",
    "MinimalLossHashing": "bitrank_papers.mlh",
    "BinaryReconstructiveEmbeddings": "bitrank_papers.bre",
    "RankingSupervisedHashing": "bitrank_papers.rsh",
    "OnlineKernelHashing": "bitrank_papers.okh",
}


def hasher_class(name: str) -> type[Hasher]:
    """Return the class of a hasher by its name in `HASHERS`.

    Examples
    --------
    >>> hasher_class("ITQ").__name__
    'ITQ'
    """
    found: type[Hasher] = class_by_name("hasher", name, __package__, HASHERS)
    return found


def load_hasher(path: str | os.PathLike[str] | IO[bytes]) -> Hasher:
    """Read a fitted hasher that `Hasher.save` wrote; its codes are exactly the same.

    Parameters
    ----------
    path : path of the file, or the open file

    Returns
    -------
    hasher : one of `HASHERS`, fitted

    Raises
    ------
    ValueError
        If the file was not written by `save`, or is damaged.

    Examples
    --------
    >>> from bitrank.hashing import SignBits
    >>> SignBits().fit([[0.9, 0.1], [0.1, 0.5]]).save("signs.npz")
    >>> load_hasher("signs.npz")
    SignBits()
    """
    archive = read_archive(path, FORMAT, VERSION)
    try:
        return hasher_class(archive.name)._from_archive(archive)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} must be a file written by save: {error}") from error
