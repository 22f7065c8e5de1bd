"""Run functions at once."""

import threading


def in_threads(*calls):
    """Run functions at once, each on a thread of its own, and wait for all of them."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
