"""Learning from clicks: pages of results with their clicks become constraints, candidate weights, and a decision.

It stands between the learners and whoever shows pages to people: it knows codes and clicks, no index, no HTTP and no
data base. A service, a replay of a log and a simulation all use it in the same way.
"""

from typing import TYPE_CHECKING

from bitrank.lazy import attach

if TYPE_CHECKING:
    from bitrank.feedback.choices import lean
    from bitrank.feedback.exploration import explore
    from bitrank.feedback.graph import ClickGraph
    from bitrank.feedback.held_out import Decision
    from bitrank.feedback.history import Replay, replay
    from bitrank.feedback.learner import ClickLearner
    from bitrank.feedback.logs import LoggedPage, LogReader, read_log, write_log
    from bitrank.feedback.pages import Page
    from bitrank.feedback.propensities import estimate_propensities

__all__ = [
    "ClickGraph",
    "ClickLearner",
    "Decision",
    "LogReader",
    "LoggedPage",
    "Page",
    "Replay",
    "estimate_propensities",
    "explore",
    "lean",
    "read_log",
    "replay",
    "write_log",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "choices": ("lean",),
        "exploration": ("explore",),
        "graph": ("ClickGraph",),
        "held_out": ("Decision",),
        "history": ("Replay", "replay"),
        "learner": ("ClickLearner",),
        "logs": ("LogReader", "LoggedPage", "read_log", "write_log"),
        "pages": ("Page",),
        "propensities": ("estimate_propensities",),
    },
)
