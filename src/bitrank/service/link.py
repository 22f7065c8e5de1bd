"""`Link`: what a learner shares with those who search, besides the database and also across a fork."""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import signal
from contextlib import suppress


class _Page(ctypes.Structure):
    _fields_ = (("profile", ctypes.c_char * 64), ("number", ctypes.c_int64))  # a number of 0 is no page


class _Shared(ctypes.Structure):
    _fields_ = (
        ("failing", ctypes.c_bool),
        ("serving", ctypes.c_bool),
        ("n_failures", ctypes.c_int64),
        ("n_at_page", ctypes.c_int64),  # failures one after the other at one page
        ("at", _Page),
        ("failed", _Page),
    )


def _shared(name: str) -> property:
    return property(lambda link: getattr(link._shared, name), lambda link, value: setattr(link._shared, name, value))


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

    failing = _shared("failing")  # whether the last step of learning failed, or its process ended
    n_failures = _shared("n_failures")  # how often learning failed and started again
    serving = _shared("serving")  # whether a worker has begun to serve since this was set to false

    def __init__(self) -> None:
        self._shared = _Shared.from_buffer(mmap.mmap(-1, ctypes.sizeof(_Shared)))
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
    def failed(self) -> tuple[str, int, int]:
        """Profile and number of the page at which learning last failed, and how often one after the other."""
        page = self._shared.failed
        return page.profile.decode(), page.number, self._shared.n_at_page

    def fail(self) -> None:
        """Count a failure, at the page that is learned from, or at none."""
        shared, at, failed = self._shared, self._shared.at, self._shared.failed
        is_same = (at.profile, at.number) == (failed.profile, failed.number)
        shared.failing, shared.n_failures = True, shared.n_failures + 1
        shared.n_at_page = 0 if not at.number else shared.n_at_page + 1 if is_same else 1
        shared.failed = at
        self.end()

    def begin(self, profile: str, number: int) -> None:
        """Say which page is learned from now: a process that dies leaves its name behind."""
        self._shared.at = _Page(profile.encode(), number)
        if self.longest_s:
            signal.alarm(self.longest_s)  # its default action ends the process, whatever it is doing

    def end(self) -> None:
        """Say that no page is learned from now."""
        self._shared.at = _Page()
        if self.longest_s:
            signal.alarm(0)

    def close(self) -> None:
        """Close the bell."""
        for end in (self._bell, self._ring):
            os.close(end)
        self._bell = self._ring = -1
