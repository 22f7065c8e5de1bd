"""A progress bar for long loops, on a terminal and silent elsewhere. It writes to standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

T = TypeVar("T")
WIDTH = 30


def progress(iterable: Iterable[T], total: int | None = None, label: str = "") -> Iterator[T]:
    """Yield the items of an iterable and show how many are done.

    Parameters
    ----------
    iterable : iterable
    total : int, optional
        Number of items; the length of the iterable by default, if it has one.
    label : str
        Name of the work, shown before the bar.

    Examples
    --------
    >>> list(progress(range(3), label="counting"))
    [0, 1, 2]
    """
    if total is None and isinstance(iterable, Sized):
        total = len(iterable)
    if not sys.stderr.isatty():
        yield from iterable
        return
    done = 0
    for done, item in enumerate(iterable):
        _show(done, total, label)
        yield item
    _show(done + 1 if total is None else total, total, label)
    sys.stderr.write("\n")


def _show(done: int, total: int | None, label: str) -> None:
    filled = WIDTH * done // total if total else 0
    count = f"{done}/{total}" if total else str(done)
    sys.stderr.write(f"\r{label} [{'#' * filled:<{WIDTH}}] {count}")
    sys.stderr.flush()
