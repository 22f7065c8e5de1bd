"""Plain files: arrays as .npy, .csv and .json, chosen by the ending, and one way to write a file whole or not at all.

Nothing is ever unpickled.
"""

from __future__ import annotations

import io
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

KINDS = (".npy", ".csv", ".json")


def read_array(path: str | Path) -> npt.NDArray[Any]:
    """Read an array: a .npy, a .csv of numbers without a header, or a .json list.

    Examples
    --------
    >>> write_array("labels.csv", np.array([3, 1, 2]))
    >>> read_array("labels.csv")
    array([3, 1, 2])
    """
    path = check_kind(path)
    try:
        if path.suffix == ".npy":
            array: npt.NDArray[Any] = np.load(path, allow_pickle=False)
        elif path.suffix == ".csv":
            array = _plain(np.loadtxt(path, delimiter=",", dtype=np.str_, ndmin=1))
        else:
            array = np.asarray(json.loads(path.read_text(encoding="utf-8")))
        if array.dtype.kind not in "biufU":
            raise ValueError(f"expected numbers or texts in rows of one length, got {array.dtype}")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return array


def _plain(texts: npt.NDArray[np.str_]) -> npt.NDArray[Any]:
    """Whole numbers where all are, else numbers where all are, else texts."""
    for kind in (np.int64, np.float64):
        try:
            return texts.astype(kind)
        except ValueError:
            continue
    return texts


def write_array(path: str | Path, array: npt.NDArray[Any]) -> None:
    """Write an array of one or two dimensions, in the form that the ending names. Floats keep every digit.

    Examples
    --------
    >>> write_array("weights.json", np.float32([0.5, 2]))
    >>> read_array("weights.json")
    array([0.5, 2. ])
    """
    path = check_kind(path)
    if path.suffix == ".npy":
        content = io.BytesIO()
        np.save(content, array, allow_pickle=False)
        data = content.getvalue()
    elif path.suffix == ".csv":
        lines = (",".join(map(str, np.atleast_1d(row).tolist())) for row in array)
        data = "".join(f"{line}\n" for line in lines).encode()
    else:
        data = (json.dumps(array.tolist()) + "\n").encode()
    with replacing(path) as file:
        file.write(data)


def check_kind(path: str | Path) -> Path:
    """A path that ends as one of these files does, or a ValueError."""
    if Path(path).suffix not in KINDS:
        raise ValueError(f"{path}: the file must end in {', '.join(KINDS)}")
    return Path(path)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file to write in the place of another: the new content appears whole, or not at all.

    The content goes to a temporary file beside the target, reaches the disk, and takes the target's name in one step.

    Examples
    --------
    >>> with replacing("notes.txt") as file:
    ...     _ = file.write(b"whole")
    >>> Path("notes.txt").read_text()
    'whole'
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
