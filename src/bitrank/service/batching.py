"""`Batches`: searches that arrive together run in one call, on the event loop or, where they take long, beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from bitrank.service.searching import Plan

MAX_TOGETHER = 32

Waiting = tuple[Plan, "asyncio.Future[bytes]"]


class Batches:
    """A queue of planned searches.

    While a batch runs, the next one gathers, so that batches grow with the load. Belongs to one event loop.

    Parameters
    ----------
    run : callable
        Answers a list of plans.
    is_long : callable
        Whether a batch of this many searches would hold up the event loop for too long.
    executor : ThreadPoolExecutor
        Runs those batches.
    """

    def __init__(
        self, run: Callable[[list[Plan]], list[bytes]], is_long: Callable[[int], bool], executor: ThreadPoolExecutor
    ) -> None:
        self._run, self._is_long, self._executor = run, is_long, executor
        self._waiting: list[Waiting] = []
        self._scheduled = False

    async def answer(self, plan: Plan) -> bytes:
        """Run a search together with others that wait."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()
        self._waiting.append((plan, future))
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._start, loop)  # after all requests that have arrived by now
        return await future

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        batch, self._waiting = self._waiting[:MAX_TOGETHER], self._waiting[MAX_TOGETHER:]
        plans = [plan for plan, _ in batch]
        if self._is_long(len(plans)):
            running = loop.run_in_executor(self._executor, self._try, plans)
            running.add_done_callback(lambda done: self._finish(loop, batch, done.result()))
        else:
            self._finish(loop, batch, self._try(plans))

    def _try(self, plans: list[Plan]) -> list[bytes] | Exception:
        try:
            return self._run(plans)
        except Exception as error:
            return error

    def _finish(self, loop: asyncio.AbstractEventLoop, batch: list[Waiting], answers: list[bytes] | Exception) -> None:
        for number, (_, future) in enumerate(batch):
            if future.done():
                continue  # the client has gone
            if isinstance(answers, Exception):
                future.set_exception(answers)
            else:
                future.set_result(answers[number])
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            loop.call_soon(self._start, loop)
