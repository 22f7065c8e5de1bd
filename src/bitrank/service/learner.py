"""`Learner`: the loop that learns, in a process of its own or on a thread of the service."""

from __future__ import annotations

import logging
import time

from sqlalchemy.exc import SQLAlchemyError

from bitrank import clicks
from bitrank.service.learning import PUBLISH_S, Learning
from bitrank.service.link import Link
from bitrank.service.settings import Settings
from bitrank.service.store import Store
from bitrank.service.store.database import UnknownOutcomeError

POLL_S = 0.5  # Pages that another service logged are seen after this long at the latest.

logger = logging.getLogger("bitrank.service")


class Learner:
    """Learn from new pages, decide at the gate and publish candidates, until it is closed.

    Parameters
    ----------
    store : Store
    settings : Settings
    link : Link
        Its bell says that a page was logged. The learner tells it whether learning fails.
    """

    def __init__(self, store: Store, settings: Settings, link: Link) -> None:
        self._link = link
        self._closed = False
        self._learning = Learning(store, settings, link)

    def set_aside(self, profile: str, number: int, reason: str) -> None:
        """Never learn from a page, and keep the reason in the store."""
        self._learning.set_aside(profile, number, reason)

    def close(self) -> None:
        """Let `run` end after its step."""
        self._closed = True
        self._link.wake()

    def run(self) -> None:
        """Learn; a step that fails is reported, and learning starts again from the log."""
        _ = clicks.ClickLearner  # the imports that the first page needs take a second: do them now
        learning, pause = self._learning, 0.0
        while not self._closed:
            self._link.wait(pause)
            try:
                more = learning.step()
                pause = PUBLISH_S if learning.publish() else POLL_S
                pause = 0.0 if more else pause
                self._link.failing = False
            except SQLAlchemyError as error:
                logger.warning("learning waits for the database: %s", getattr(error, "orig", None) or error)
                self._link.failing = True
                time.sleep(POLL_S)
            except Exception as error:
                logger.exception("learning failed, starting again from the log")
                # After a commit of unknown outcome, or without memory, no page is to blame.
                learning.restart(blame=not isinstance(error, UnknownOutcomeError | MemoryError | OSError))
                self._link.fail()
                time.sleep(POLL_S)
