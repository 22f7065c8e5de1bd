"""Learning from clicks: pages, exploration, walks on the click graph, the learner, the click gate, logs, simulation.

Codes and clicks only: no index, no HTTP, no database. The service, `bitrank replay` and simulations share this code.
"""

from typing import TYPE_CHECKING

from bitrank.core.lazy import attach

if TYPE_CHECKING:
    from bitrank.clicks.choices import adapt_to_choices
    from bitrank.clicks.exploration import explore
    from bitrank.clicks.gate import Decision
    from bitrank.clicks.learn import ClickLearner
    from bitrank.clicks.log import LogReader, read_log, write_log
    from bitrank.clicks.log_replay import LogReplay, Replay, replay, replay_log
    from bitrank.clicks.logged_pages import LoggedPage
    from bitrank.clicks.logged_pairs import LoggedPairs, pairs_from_log
    from bitrank.clicks.page import Page
    from bitrank.clicks.propensities import estimate_propensities

__all__ = [
    "ClickLearner",
    "Decision",
    "LogReader",
    "LogReplay",
    "LoggedPage",
    "LoggedPairs",
    "Page",
    "Replay",
    "adapt_to_choices",
    "estimate_propensities",
    "explore",
    "pairs_from_log",
    "read_log",
    "replay",
    "replay_log",
    "write_log",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "adapt_to_choices": "choices",
        "Decision": "gate",
        "explore": "exploration",
        "ClickLearner": "learn",
        "LogReplay": "log_replay",
        "Replay": "log_replay",
        "replay": "log_replay",
        "replay_log": "log_replay",
        "LoggedPage": "logged_pages",
        "LoggedPairs": "logged_pairs",
        "pairs_from_log": "logged_pairs",
        "LogReader": "log",
        "read_log": "log",
        "write_log": "log",
        "Page": "page",
        "estimate_propensities": "propensities",
    },
    __all__,
)
