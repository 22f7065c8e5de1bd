"""Running the service: one socket, one worker process, and a parent that starts the worker again when it dies.

The parent holds the socket open meanwhile, so that clients wait a moment instead of being refused.
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
from bitrank.service.ranking import Service

MAX_FAILED = 5  # so many first workers that die before they serve are enough
MAX_PAUSE_S = 30.0  # between two starts of a worker that served and now cannot


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections from now on; port 0 takes any free one."""
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
    """Serve until told to stop, by SIGTERM or Ctrl-C; returns the exit status.

    Parameters
    ----------
    bound : socket
    make : callable
        Makes the service, in the worker, at every start of one.
    ready : callable
        Called in the first worker when the service is made.
    """
    n_failed, served_once = 0, False
    while True:
        status, served = _run_worker(bound, make, (lambda _: None) if served_once else ready)
        served_once |= served
        n_failed = 0 if served else n_failed + 1
        # What never served is set up wrongly; what did, serves again once the disk has room or the lock is gone.
        if status == 0 or (not served_once and (status > 0 or n_failed == MAX_FAILED)):
            return abs(status)
        end = f"died of {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        print(f"bitrank serve: the worker {end}, starting it again", file=sys.stderr, flush=True)
        try:
            time.sleep(min(n_failed, MAX_PAUSE_S))
        except KeyboardInterrupt:
            return 0


def _run_worker(
    bound: socket.socket, make: Callable[[], Service], ready: Callable[[Service], None]
) -> tuple[int, bool]:
    """Fork a worker and wait for it; returns its exit status, or minus the signal, and whether it ever served."""
    watched, held = os.pipe()  # ends with the parent
    told, telling = os.pipe()  # a byte when the worker serves
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # none may come between the fork and the handlers
    worker = os.fork()
    if worker == 0:
        os.close(held)
        os.close(told)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        status = 1
        try:
            status = _work(bound, watched, telling, make, ready)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    os.close(watched)
    os.close(telling)
    stopping = False

    def stop(*_: Any) -> None:
        nonlocal stopping
        stopping = True
        os.kill(worker, signal.SIGTERM)

    before = {number: signal.signal(number, stop) for number in signals}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    try:
        _, wait_status = os.waitpid(worker, 0)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(held)
    with os.fdopen(told, "rb") as said:
        served = bool(said.read(1))
    return 0 if stopping else os.waitstatus_to_exitcode(wait_status), served


def _work(
    bound: socket.socket, watched: int, telling: int, make: Callable[[], Service], ready: Callable[[Service], None]
) -> int:
    def follow_parent() -> None:
        os.read(watched, 1)  # ends when the parent does
        os.kill(os.getpid(), signal.SIGTERM)

    try:
        service = make()
    except (ValueError, OSError, ModuleNotFoundError, SQLAlchemyError) as error:
        print(f"bitrank serve: {error}", file=sys.stderr)
        return 1
    config = uvicorn.Config(
        create_app(service),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # a client could name any address there, and its rate would be another's
        timeout_graceful_shutdown=5,
    )
    threading.Thread(target=follow_parent, name="bitrank-parent", daemon=True).start()
    os.write(telling, b"1")
    ready(service)
    uvicorn.Server(config).run(sockets=[bound])
    return 0
