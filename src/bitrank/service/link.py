"""`Link`: what a learner shares with those who search, besides the database and also across a fork."""

from __future__ import annotations

import mmap
import os
import select
from contextlib import suppress


class Link:
    """A bell that wakes the learner, whether learning fails, and how often it did.

    Examples
    --------
    >>> link = Link()
    >>> link.wake()
    >>> link.wait(60)  # returns at once
    >>> link.fail()
    >>> link.failing, link.n_failures
    (True, 1)
    >>> link.close()
    """

    def __init__(self) -> None:
        self._figures = memoryview(mmap.mmap(-1, 16)).cast("q")
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

    def fail(self) -> None:
        """Count one failure."""
        self._figures[0], self._figures[1] = 1, self._figures[1] + 1

    def close(self) -> None:
        """Close the bell."""
        for end in (self._bell, self._ring):
            os.close(end)
        self._bell = self._ring = -1
