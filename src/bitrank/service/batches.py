"""`Batches`: jobs that come while others are under way are done together, in one go, on a thread of their own.

Searches go through it: under load, one call of the kernel answers many, on all cores, and the threads of Python do not
wait for each other at every single one. A job that comes alone is done at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Job = TypeVar("Job")
Answer = TypeVar("Answer")

MOST = 16  # jobs done together: more would wait for each other without being done any faster


class Batches(Generic[Job, Answer]):
    """A queue in front of a function that does many jobs at once; to be used from one event loop.

    Parameters
    ----------
    work : callable
        From a list of jobs to a list of answers, each of which may be an exception for its job alone.

    Examples
    --------
    >>> async def ask():
    ...     return await asyncio.gather(*(batches.submit(number) for number in range(3)))
    >>> batches = Batches(lambda jobs: [job * len(jobs) for job in jobs])
    >>> asyncio.run(ask())
    [0, 3, 6]
    >>> batches.close()
    """

    def __init__(self, work: Callable[[list[Job]], list[Answer | Exception]]) -> None:
        self._work = work
        self._thread = ThreadPoolExecutor(1, "bitrank-search")
        self._waiting: list[tuple[Job, asyncio.Future[Answer]]] = []
        self._running: asyncio.Task[None] | None = None

    async def submit(self, job: Job) -> Answer:
        """The answer to one job; raises what the work made of it, if that is an exception."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, future))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await future

    def close(self) -> None:
        """Finish what is under way."""
        self._thread.shutdown()

    async def _run(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
            jobs = [job for job, _ in batch]
            answers: list[Answer | Exception]
            try:
                answers = await asyncio.get_running_loop().run_in_executor(self._thread, self._work, jobs)
            except Exception as error:  # a fault of ours: nobody may wait for ever
                answers = [error] * len(batch)
            for (_, future), answer in zip(batch, answers, strict=True):
                if future.done():
                    continue  # its client went away
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
        self._running = None
