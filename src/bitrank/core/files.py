"""Plain files: arrays as .npy, .csv, .json and .npz, and the one way to write a file whole or not at all.

Nothing is ever unpickled.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

KINDS = (".npy", ".csv", ".json")
LOCK = ".lock"  # of a folder, on Windows


def read_array(path: str | Path) -> npt.NDArray[Any]:
    """Read an array: a .npy, a .csv of numbers or texts without a header, or a .json list.

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
            array = _numbers_if_possible(np.loadtxt(path, delimiter=",", dtype=np.str_, ndmin=1))
        else:
            array = np.asarray(json.loads(path.read_text(encoding="utf-8")))
        if array.dtype.kind not in "biufU":
            raise ValueError(f"expected numbers or texts in rows of one length, got {array.dtype}")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return array


def write_array(path: str | Path, array: npt.NDArray[Any]) -> None:
    """Write an array of one or two dimensions in the format that the suffix names. Floats keep every digit.

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
    """A path with the suffix of a file that this module reads."""
    if Path(path).suffix not in KINDS:
        raise ValueError(f"{path}: the file must end in {', '.join(KINDS)}")
    return Path(path)


def check_output(path: str | os.PathLike[str]) -> Path:
    """Check that a file can be written, before the work whose result it will hold.

    Examples
    --------
    >>> check_output("absent/weights.npy")
    Traceback (most recent call last):
    ValueError: absent/weights.npy must be in a folder that exists, got none
    """
    target = Path(path)
    if target.is_dir():
        raise ValueError(f"{target} must be a file, got a folder")
    if not target.parent.is_dir():
        raise ValueError(f"{target} must be in a folder that exists, got none")
    if not os.access(target.parent, os.W_OK):
        raise ValueError(f"{target} must be in a folder that can be written to, got one that cannot")
    return target


def read_npz(
    path: str | os.PathLike[str] | IO[bytes],
    *,
    names: Collection[str] | None = None,
    what: str = "an npz file of plain arrays",
) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of an npz file, or of an open one: all of them, or those of `names` that it holds.

    Examples
    --------
    >>> np.savez("data.npz", x=np.arange(3), y=np.ones(2))
    >>> read_npz("data.npz", names=["x"])
    {'x': array([0, 1, 2])}
    """
    with open(path, "rb") if isinstance(path, str | os.PathLike) else nullcontext(path) as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files if names is None or name in names}
        except Exception as error:  # zipfile and the npy reader raise a dozen kinds of error for damaged bytes
            raise ValueError(f"{path} must be {what}, got one that cannot be read: {error}") from error


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file that takes the place of another: the new content appears whole, or not at all.

    The content goes to a temporary file in the same folder, is flushed to disk, and then takes the name of the target.

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


def sync(path: str | os.PathLike[str]) -> None:
    """Flush the content of a file, or the entries of a folder, to disk; Windows does the latter by itself."""
    if sys.platform == "win32" and os.path.isdir(path):
        return
    handle = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Lock a folder for one writer; the lock ends with its process."""
    if sys.platform == "win32":  # folders cannot be opened there
        import msvcrt

        handle = os.open(Path(folder) / LOCK, os.O_RDWR | os.O_CREAT)
    else:
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
    try:
        if sys.platform == "win32":
            msvcrt.locking(handle, msvcrt.LK_LOCK, 1)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _numbers_if_possible(texts: npt.NDArray[np.str_]) -> npt.NDArray[Any]:
    """Whole numbers if all texts are, else numbers if all are, else the texts."""
    numbers = _numbers(texts)
    if numbers is None and len(texts) > 1 and _numbers(texts[1:]) is not None:
        header = ",".join(np.atleast_1d(texts[0]).tolist())
        raise ValueError(f"the file must have no header, got {header!r:.60} in line 1: remove that line")
    return texts if numbers is None else numbers


def _numbers(texts: npt.NDArray[np.str_]) -> npt.NDArray[Any] | None:
    for kind in (np.int64, np.float64):
        try:
            return texts.astype(kind)
        except ValueError:
            continue
    return None
