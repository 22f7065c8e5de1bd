"""Learning from clicks: pages, exploration, walks on the click graph, the learner, the click gate, logs, simulation.

Codes and clicks only: no index, no HTTP, no database. The service, `bitrank replay` and simulations share this code.
"""

from typing import TYPE_CHECKING

from bitrank.lazy import attach

if TYPE_CHECKING:
    from bitrank.feedback.choices import adapt_to_choices
    from bitrank.feedback.click_gate import Decision
    from bitrank.feedback.exploration import explore
    from bitrank.feedback.learner import ClickLearner
    from bitrank.feedback.log_replay import LogReplay, Replay, replay, replay_log
    from bitrank.feedback.logged_pages import LoggedPage
    from bitrank.feedback.logged_pairs import LoggedPairs, pairs_from_log
    from bitrank.feedback.logs import LogReader, read_log, write_log
    from bitrank.feedback.pages import Page
    from bitrank.feedback.propensities import estimate_propensities

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
        "Decision": "click_gate",
        "explore": "exploration",
        "ClickLearner": "learner",
        "LogReplay": "log_replay",
        "Replay": "log_replay",
        "replay": "log_replay",
        "replay_log": "log_replay",
        "LoggedPage": "logged_pages",
        "LoggedPairs": "logged_pairs",
        "pairs_from_log": "logged_pairs",
        "LogReader": "logs",
        "read_log": "logs",
        "write_log": "logs",
        "Page": "pages",
        "estimate_propensities": "propensities",
    },
    __all__,
)
