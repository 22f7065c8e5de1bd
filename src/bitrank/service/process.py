"""Run the service: one socket, worker processes, one learner process, and a parent that restarts those that die.

The parent keeps the socket open meanwhile, so that clients wait a moment instead of being refused.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
from sqlalchemy.exc import SQLAlchemyError

from bitrank.service.http import create_app
from bitrank.service.learner import Learner
from bitrank.service.link import Link
from bitrank.service.protocol import Protocol
from bitrank.service.service import Service

MAX_FAILED = 5  # Give up after this many failed starts, if none ever succeeded.
MAX_PAUSE_S = 30.0  # The longest wait before a restart, once a worker has served.
STOP_S = 4.0  # Children that have not ended so long after they were asked to are killed.
LONGEST_PAGE_S = 600  # A learner that is at one page for longer hangs, and is ended.
LONG_LIFE_S = 60.0  # A learner that lived this long is started again at once; others wait a second more each time.

logger = logging.getLogger("bitrank.service")

Make = Callable[[Link], Service]
MakeLearner = Callable[[Link], Learner]
Ready = Callable[[Service], None]
_SIGNALS = {signal.SIGTERM, signal.SIGINT}
_MISTAKES = (ValueError, OSError, ModuleNotFoundError, SQLAlchemyError)  # of the operator, or of the surroundings


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 takes any free one."""
    if not 0 <= port <= 65535:
        raise ValueError(f"port must be from 0 to 65535, got {port}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(1024)
    except OSError as error:
        bound.close()
        raise OSError(f"cannot listen on {host} port {port}: {error.strerror}") from None
    return bound


class _Child(NamedTuple):
    """A running worker, or the learner."""

    learns: bool
    started: float


def serve(bound: socket.socket, make: Make, make_learner: MakeLearner, ready: Ready, workers: int = 1) -> int:
    """Serve until SIGTERM or Ctrl-C; returns the exit status.

    Parameters
    ----------
    bound : socket
    make : callable
        Makes the service, with a link to the learner; called in every worker that starts.
    make_learner : callable
        Makes the learner; called in its process, after a worker has served.
    ready : callable
        Called with the service in the first worker.
    workers : int
        Processes that answer requests.
    """
    _allow_many_connections()
    return _Parent(bound, make, make_learner, ready).run(workers)


class _Parent:
    """The process that starts workers and the learner and waits for them."""

    def __init__(self, bound: socket.socket, make: Make, make_learner: MakeLearner, ready: Ready) -> None:
        self._bound, self._make, self._make_learner, self._ready = bound, make, make_learner, ready
        self._alive_read, self._alive_write = os.pipe()  # closes when the parent ends
        self._link = Link()
        self._children: dict[int, _Child] = {}
        self._stopping = self._served_once = False
        self._n_failed = self._n_short_lives = 0
        self._learner_due = 0.0  # when to start the learner, if it is not running

    def run(self, workers: int) -> int:
        """Keep so many workers and a learner running; returns the exit status."""
        handlers = {number: signal.signal(number, self._stop) for number in _SIGNALS}
        status = 0
        try:
            # The first worker creates or migrates the database, and says what is wrong; the others follow.
            self._start_worker(self._ready)
            while self._children:
                pid, wait_status = os.waitpid(-1, 0 if self._complete(workers) or self._stopping else os.WNOHANG)
                if not pid:
                    time.sleep(0.05)
                else:
                    status = self._ended(pid, os.waitstatus_to_exitcode(wait_status)) or status
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            os.close(self._alive_write)
            self._link.close()
        return status

    def _complete(self, workers: int) -> bool:
        """Start the workers and the learner that are missing, if it is time; returns whether all are running."""
        n_learners = sum(child.learns for child in self._children.values())
        n_workers = len(self._children) - n_learners
        if self._served_once or self._link.serving:
            while n_workers < workers and not self._stopping:
                self._start_worker(_nothing)
                n_workers += 1
            if not n_learners and not self._stopping and time.monotonic() >= self._learner_due:
                self._start(lambda: _learn(self._make_learner, self._link, self._alive_read), learns=True)
                n_learners = 1
        return n_workers >= workers and n_learners > 0

    def _ended(self, pid: int, status: int) -> int:
        """Start a worker or learner that died again; returns the exit status where that is the end."""
        child = self._children.pop(pid)
        if child.learns:
            if not self._stopping:
                self._learner_ended(child, status)
            return 0
        served, self._link.serving = self._link.serving, False
        self._served_once |= served
        self._n_failed = 0 if served else self._n_failed + 1
        if self._stopping or status == 0:
            self._stop()
            return 0
        # A worker that never served is misconfigured. One that did will serve again once the disk has room or a lock is
        # gone.
        if not self._served_once and (status > 0 or self._n_failed == MAX_FAILED):
            self._stop()
            return abs(status)
        logger.error("the worker %s, starting it again", _outcome(status))
        time.sleep(min(self._n_failed, MAX_PAUSE_S))
        if not self._stopping:
            self._start_worker(_nothing if self._served_once else self._ready)
        return 0

    def _learner_ended(self, child: _Child, status: int) -> None:
        """Report it, and plan its next start."""
        self._link.fail()
        short = time.monotonic() < child.started + LONG_LIFE_S
        pause = min(self._n_short_lives, MAX_PAUSE_S) if short else 0.0
        self._n_short_lives = self._n_short_lives + 1 if short else 0
        self._learner_due = time.monotonic() + pause
        logger.error("the learner %s, starting it again", _outcome(status))

    def _stop(self, *_: Any) -> None:
        if not self._stopping:
            signal.signal(signal.SIGALRM, lambda *_: self._signal(signal.SIGKILL))
            signal.setitimer(signal.ITIMER_REAL, STOP_S)
        self._stopping = True
        self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        for pid in list(self._children):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _start_worker(self, ready: Ready) -> None:
        self._start(lambda: _work(self._bound, self._alive_read, self._link, self._make, ready), learns=False)

    def _start(self, work: Callable[[], int], learns: bool) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # until the handlers are set
        pid = os.fork()
        if pid == 0:
            os.close(self._alive_write)
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            status = 1
            try:
                _name_process("bitrank-learner" if learns else "bitrank-worker")
                status = work()
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        self._children[pid] = _Child(learns, time.monotonic())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _work(bound: socket.socket, parent_read: int, link: Link, make: Make, ready: Ready) -> int:
    """Serve, in a worker."""
    try:
        service = make(link)
        config = server_config(service)
    except _MISTAKES as error:
        logger.error("%s", error)
        return 1
    _stop_with_parent(parent_read)
    link.serving = True  # before anybody is told: whoever knows the address may end this process at once
    ready(service)
    # What is loaded now stays for ever: the collector of garbage need not look through it again and again.
    gc.collect()
    gc.freeze()
    uvicorn.Server(config).run(sockets=[bound])
    return 0


def _learn(make_learner: MakeLearner, link: Link, parent_read: int) -> int:
    """Learn, in the process of the learner; searches come first.

    A signal ends the process at once, whatever it is doing: what it has learned and not yet published, it learns again.
    """
    with suppress(OSError):
        os.nice(5)
    _stop_with_parent(parent_read)
    try:
        learner = make_learner(link)
    except _MISTAKES as error:
        logger.error("%s", error)
        return 1
    link.longest_s = LONGEST_PAGE_S
    learner.run()
    return 0


def _stop_with_parent(parent_read: int) -> None:
    def stop() -> None:
        os.read(parent_read, 1)  # returns when the parent ends
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop, name="bitrank-parent", daemon=True).start()


def server_config(service: Service, graceful_s: int = 3) -> uvicorn.Config:
    """Configure uvicorn for a service."""
    return uvicorn.Config(
        create_app(service),
        http=Protocol,
        ws="none",
        log_level="warning",
        log_config=None,  # to the handlers of everybody, with times
        access_log=False,
        server_header=False,
        proxy_headers=False,  # `Clients` reads X-Forwarded-For, from configured proxies only
        timeout_graceful_shutdown=graceful_s,
    )


def _allow_many_connections() -> None:
    """Raise the limit of open files as far as this user may: slow clients keep connections open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536) if soft < 65_536 else soft, hard))


def _outcome(status: int) -> str:
    return f"died of {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def _name_process(name: str) -> None:
    """Name this process in `ps` and `top`, on Linux."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name)


def _nothing(_: Service) -> None:
    pass
