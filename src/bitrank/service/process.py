"""Run the service: one socket, one worker process, and a parent that restarts the worker when it dies.

The parent keeps the socket open meanwhile, so that clients wait a moment instead of being refused.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import uvicorn
from sqlalchemy.exc import SQLAlchemyError

from bitrank.service.app import create_app
from bitrank.service.protocol import Protocol
from bitrank.service.service import Service

MAX_FAILED = 5  # Give up after this many failed starts, if none ever succeeded.
MAX_PAUSE_S = 30.0  # The longest wait before a restart, once a worker has served.


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


def serve(bound: socket.socket, make: Callable[[], Service], ready: Callable[[Service], None]) -> int:
    """Serve until SIGTERM or Ctrl-C; returns the exit status.

    Parameters
    ----------
    bound : socket
    make : callable
        Makes the service; called in every worker that starts.
    ready : callable
        Called with the service in the first worker.
    """
    n_failed, served_once = 0, False
    while True:
        status, served = _run_worker(bound, make, (lambda _: None) if served_once else ready)
        served_once |= served
        n_failed = 0 if served else n_failed + 1
        # A worker that never served is misconfigured. One that did will serve again once the disk has room or a lock is
        # gone.
        if status == 0 or (not served_once and (status > 0 or n_failed == MAX_FAILED)):
            return abs(status)
        outcome = f"died of {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        print(f"bitrank serve: the worker {outcome}, starting it again", file=sys.stderr, flush=True)
        try:
            time.sleep(min(n_failed, MAX_PAUSE_S))
        except KeyboardInterrupt:
            return 0


def _run_worker(
    bound: socket.socket, make: Callable[[], Service], ready: Callable[[Service], None]
) -> tuple[int, bool]:
    """Fork a worker and wait for it; returns its exit status, or minus the signal, and whether it ever served."""
    parent_read, parent_write = os.pipe()  # closes when the parent ends
    ready_read, ready_write = os.pipe()  # carries a byte once the worker serves
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # until the handlers are set
    worker = os.fork()
    if worker == 0:
        os.close(parent_write)
        os.close(ready_read)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        status = 1
        try:
            status = _work(bound, parent_read, ready_write, make, ready)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    os.close(parent_read)
    os.close(ready_write)
    stopping = False

    def stop(*_: Any) -> None:
        nonlocal stopping
        stopping = True
        os.kill(worker, signal.SIGTERM)

    handlers = {number: signal.signal(number, stop) for number in signals}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    try:
        _, wait_status = os.waitpid(worker, 0)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.close(parent_write)
    with os.fdopen(ready_read, "rb") as pipe:
        served = bool(pipe.read(1))
    return 0 if stopping else os.waitstatus_to_exitcode(wait_status), served


def _work(
    bound: socket.socket,
    parent_read: int,
    ready_write: int,
    make: Callable[[], Service],
    ready: Callable[[Service], None],
) -> int:
    def stop_with_parent() -> None:
        os.read(parent_read, 1)  # returns when the parent ends
        os.kill(os.getpid(), signal.SIGTERM)

    try:
        service = make()
    except (ValueError, OSError, ModuleNotFoundError, SQLAlchemyError) as error:
        print(f"bitrank serve: {error}", file=sys.stderr)
        return 1
    threading.Thread(target=stop_with_parent, name="bitrank-parent", daemon=True).start()
    os.write(ready_write, b"1")
    ready(service)
    uvicorn.Server(server_config(service)).run(sockets=[bound])
    return 0


def server_config(service: Service, graceful_s: int = 5) -> uvicorn.Config:
    """Configure uvicorn for a service."""
    return uvicorn.Config(
        create_app(service),
        http=Protocol,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # a client could name any address there to evade its rate limit
        timeout_graceful_shutdown=graceful_s,
    )
