"""`Batches`: searches that arrive together run in one call, on the event loop or, where they take long, beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from bitrank.service.searching import Plan

MAX_TOGETHER = 32

Done = Callable[[bytes | BaseException], None]


class Answer(NamedTuple):
    """An answer as bytes: status line, headers and body."""

    status_line: bytes
    headers: bytes
    body: bytes


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
        self._waiting: list[tuple[Plan, Done]] = []
        self._scheduled = False

    async def answer(self, plan: Plan) -> bytes:
        """Run a search together with others that wait."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def done(result: bytes | BaseException) -> None:
            if future.done():
                return  # the client has gone
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

        self.submit(plan, done)
        return await future

    def submit(self, plan: Plan, done: Done) -> None:
        """Run a search together with others that wait, and call `done` with its JSON or an error."""
        self._waiting.append((plan, done))
        if not self._scheduled:
            self._scheduled = True
            loop = asyncio.get_running_loop()
            loop.call_soon(self._start, loop)  # after all requests that have arrived by now

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        batch, self._waiting = self._waiting[:MAX_TOGETHER], self._waiting[MAX_TOGETHER:]
        plans = [plan for plan, _ in batch]
        if self._is_long(len(plans)):
            running = loop.run_in_executor(self._executor, self._try, plans)
            running.add_done_callback(lambda future: self._finish(loop, batch, future.result()))
        else:
            self._finish(loop, batch, self._try(plans))

    def _try(self, plans: list[Plan]) -> list[bytes] | Exception:
        try:
            return self._run(plans)
        except Exception as error:
            return error

    def _finish(
        self, loop: asyncio.AbstractEventLoop, batch: list[tuple[Plan, Done]], answers: list[bytes] | Exception
    ) -> None:
        for number, (_, done) in enumerate(batch):
            done(answers if isinstance(answers, Exception) else answers[number])
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            loop.call_soon(self._start, loop)
