"""A progress bar with the time left, on a terminal and silent elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def progress(iterable: Iterable[T], total: int | None = None, label: str = "") -> Iterable[T]:
    """Show on standard error how many items of an iterable are done, and how long the others will take.

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
    if not sys.stderr.isatty():
        return iterable
    from tqdm import tqdm

    bar: Iterable[T] = tqdm(iterable, desc=label, total=total)
    return bar
