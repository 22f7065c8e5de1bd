"""Run functions at once, and wait for what other threads and processes do."""

import threading
import time


def in_threads(*calls):
    """Run functions at once, each on a thread of its own, and wait for all of them."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def wait_until(condition, seconds=300):
    """Wait until a condition is true; the limit is no more than what ends a test that hangs."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition does not come true"
        time.sleep(0.02)
