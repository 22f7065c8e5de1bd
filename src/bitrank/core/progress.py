"""A progress bar with the time left, on a terminal and silent elsewhere. It writes to standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

T = TypeVar("T")
WIDTH = 30
_INTERVAL = 0.1  # seconds between two drawings


def progress(iterable: Iterable[T], total: int | None = None, label: str = "") -> Iterator[T]:
    """Yield the items of an iterable; show how many are done and how long the others will take.

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
    done, start, shown = 0, time.monotonic(), -_INTERVAL
    for done, item in enumerate(iterable):
        elapsed = time.monotonic() - start
        if elapsed - shown >= _INTERVAL:
            _show(done, total, label, elapsed)
            shown = elapsed
        yield item
    _show(done + 1 if total is None else total, total, label, 0.0)
    sys.stderr.write("\n")


def _show(done: int, total: int | None, label: str, elapsed: float) -> None:
    filled = WIDTH * done // total if total else 0
    count = f"{done}/{total}" if total else str(done)
    left = f", {_clock(elapsed / done * (total - done))} left" if total and 0 < done < total else ""
    sys.stderr.write(f"\r{label} [{'#' * filled:<{WIDTH}}] {count}{left}\x1b[K")
    sys.stderr.flush()


def _clock(seconds: float) -> str:
    """A duration as minutes and seconds, or hours, minutes and seconds.

    Examples
    --------
    >>> _clock(65.4), _clock(3725)
    ('1:05', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
