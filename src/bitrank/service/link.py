"""`Link`: what a learner shares with those who search, besides the database and also across a fork."""

from __future__ import annotations

import json
import mmap
import os
import select
import signal
from contextlib import suppress

_HEAD, _SIZE = 32, 4096  # bytes of the figures, and of all that is shared
_AT, _FAILED = slice(_HEAD, 1024), slice(1024, _SIZE)  # pages as JSON, padded with zeros


class Link:
    """A bell that wakes the learner, whether learning fails and how often it did, and the page that it is at.

    Examples
    --------
    >>> link = Link()
    >>> link.wake()
    >>> link.wait(60)  # returns at once
    >>> link.begin("default", 7)
    >>> link.fail()
    >>> link.failing, link.n_failures, link.failed
    (True, 1, ('default', 7, 1))
    >>> link.close()
    """

    longest_s = 0  # The system ends a process that learns from one page for longer; 0 means no limit.

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, _SIZE)
        self._figures = memoryview(self._shared)[:_HEAD].cast("q")
        self._bell, self._ring = os.pipe()
        for end in (self._bell, self._ring):
            os.set_blocking(end, False)

    def wake(self) -> None:
        """Wake the learner."""
        with suppress(OSError):  # a full pipe wakes it too
            os.write(self._ring, b"1")

    def wait(self, seconds: float) -> None:
        """Wait until somebody wakes the learner, or some time has passed."""
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        if poll.poll(1000 * seconds):
            with suppress(OSError):
                os.read(self._bell, 2**16)

    @property
    def failing(self) -> bool:
        """Whether the last step of learning failed, or its process ended."""
        return bool(self._figures[0])

    @failing.setter
    def failing(self, failing: bool) -> None:
        self._figures[0] = failing

    @property
    def n_failures(self) -> int:
        """How often learning failed and started again."""
        return self._figures[1]

    @property
    def serving(self) -> bool:
        """Whether a worker has begun to serve since this was set to false."""
        return bool(self._figures[3])

    @serving.setter
    def serving(self, serving: bool) -> None:
        self._figures[3] = serving

    @property
    def failed(self) -> tuple[str, int, int]:
        """Profile and number of the page at which learning last failed, and how often one after the other."""
        return *(self._read(_FAILED) or ("", 0)), self._figures[2]

    def fail(self) -> None:
        """Count a failure, at the page that is learned from, or at none."""
        page = self._read(_AT)
        self._figures[0], self._figures[1] = 1, self._figures[1] + 1
        self._figures[2] = 0 if page is None else self._figures[2] + 1 if page == self._read(_FAILED) else 1
        self._write(_FAILED, page)
        self.end()

    def begin(self, profile: str, number: int) -> None:
        """Say which page is learned from now: a process that dies leaves its name behind."""
        self._write(_AT, (profile, number))
        if self.longest_s:
            signal.alarm(self.longest_s)  # its default action ends the process, whatever it is doing

    def end(self) -> None:
        """Say that no page is learned from now."""
        self._write(_AT, None)
        if self.longest_s:
            signal.alarm(0)

    def _read(self, place: slice) -> tuple[str, int] | None:
        with suppress(ValueError):  # a process that died while it wrote
            profile, number = json.loads(self._shared[place].rstrip(b"\0"))
            return profile, number
        return None

    def _write(self, place: slice, page: tuple[str, int] | None) -> None:
        text = b"" if page is None else json.dumps(page).encode()
        self._shared[place] = text.ljust(place.stop - place.start, b"\0")

    def close(self) -> None:
        """Close the bell."""
        for end in (self._bell, self._ring):
            os.close(end)
        self._bell = self._ring = -1
