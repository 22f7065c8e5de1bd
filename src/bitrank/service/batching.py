"""`Batches`: searches that arrive together run in one call, on the event loop or, where they take long, beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from bitrank.service.searching import Plan

MAX_BATCH = 32


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
        self._waiting: list[tuple[Plan, asyncio.Future[bytes]]] = []
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
        batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
        plans = [plan for plan, _ in batch]
        if self._is_long(len(plans)):
            running = loop.run_in_executor(self._executor, self._run, plans)
            running.add_done_callback(lambda done: self._finish(loop, batch, done))
            return
        done: asyncio.Future[list[bytes]] = loop.create_future()
        try:
            done.set_result(self._run(plans))
        except Exception as error:
            done.set_exception(error)
        self._finish(loop, batch, done)

    def _finish(
        self,
        loop: asyncio.AbstractEventLoop,
        batch: list[tuple[Plan, asyncio.Future[bytes]]],
        done: asyncio.Future[list[bytes]],
    ) -> None:
        error = done.exception()
        answers = [b""] * len(batch) if error is not None else done.result()
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue  # its client has gone
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(answer)
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            loop.call_soon(self._start, loop)
