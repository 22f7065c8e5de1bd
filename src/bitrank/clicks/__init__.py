"""Learning from clicks: pages, exploration, walks on the click graph, the learner, the click gate, logs, simulation.

Codes and clicks only: no index, no HTTP, no database. The service, `bitrank replay` and simulations share this code.
"""

from typing import TYPE_CHECKING

from bitrank.clicks.exploration import explore
from bitrank.clicks.log import LoggedPage, LoggedPairs, pages_from_log, pairs_from_log, read_log, write_log
from bitrank.clicks.page import Page
from bitrank.core.lazy import attach

if TYPE_CHECKING:
    from bitrank.clicks.gate import Decision
    from bitrank.clicks.learn import ClickLearner, adapt_to_choices
    from bitrank.clicks.log_replay import Replay, replay

__all__ = [
    "ClickLearner",
    "Decision",
    "LoggedPage",
    "LoggedPairs",
    "Page",
    "Replay",
    "adapt_to_choices",
    "explore",
    "pages_from_log",
    "pairs_from_log",
    "read_log",
    "replay",
    "write_log",
]

_LEARN = {"ClickLearner": "learn", "adapt_to_choices": "learn"}
__getattr__, __dir__ = attach(
    __name__, _LEARN | {"Decision": "gate", "Replay": "log_replay", "replay": "log_replay"}, __all__
)
