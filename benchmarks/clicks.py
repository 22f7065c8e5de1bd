"""What learning from clicks must reach: simulated users on the embedded digits, each figure beside its bar.

`python benchmarks/clicks.py [users] [tried]` runs the parts named, or both, and benchmarks/results/clicks.json keeps a
section for each. `users`: three seeds of 1000 pages with honest clicks, with 30 % and with 100 % of the pages clicked
at random. `tried`: what the candidate gains when one thing is done otherwise.

5000 digits are the collection, as ITQ codes of 64 bits, and every one of them may be a user's query. MAP and P@10 are
measured with 2000 other digits as queries, which no user ever sees, in expectation over ties. Pages are ranked by the
active version, and every version that was ever active is measured.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from learning import Figure, Report

from bitrank import ITQ, OnlineRankingSVM
from bitrank.codes import distances
from bitrank.datasets import digits
from bitrank.feedback import ClickLearner, Page
from bitrank.feedback.simulation import SimulatedUsers
from bitrank.metrics import average_precision, precision_at

RESULTS = Path(__file__).parent / "results" / "clicks.json"
PAGES = 1000
AT_RANDOM = (0.0, 0.3, 1.0)
GAIN, LOSS = 0.015, -0.002


class Digits:
    """A collection of digits as codes, and other digits to measure with."""

    def __init__(self, seed: int) -> None:
        images, labels = digits()
        rows = np.random.default_rng(seed).permutation(len(images))
        X = images.reshape(len(images), -1).astype(np.float32) / 255
        there, queries = rows[:5000], rows[5000:7000]
        hasher = ITQ(n_bits=64, random_state=seed).fit(X[there])
        self.codes, self.y = hasher.transform(X[there]), labels[there]
        self.queries = hasher.transform(X[queries])
        self.relevant = labels[queries][:, None] == self.y

    def figures(self, weights: Any = None) -> np.ndarray:
        """MAP and P@10."""
        found = distances(self.queries, self.codes, weights)
        return np.array([average_precision(found, self.relevant).mean(), precision_at(found, self.relevant, 10).mean()])


def learn(data: Digits, at_random: float, seed: int) -> dict[str, Any]:
    """Let users click; the gains over Hamming of the version active at the end, and the least of any."""
    people = SimulatedUsers(data.codes, data.y, at_random=at_random, random_state=seed)
    learner = ClickLearner(data.codes, random_state=seed)
    hamming, active, gains, first = data.figures(), None, [np.zeros(2)], 0
    for number in range(1, PAGES + 1):
        learner.learn(people.page(active))
        if learner.due and learner.decide(active).activate:
            active, first = learner.weights, first or number
            gains.append(data.figures(active) - hamming)
    return {
        "hamming": hamming,
        "gain": gains[-1],
        "least": np.min(gains, axis=0),
        "candidate": data.figures(learner.weights) - hamming,
        "n_activations": len(gains) - 1,
        "first_activation": first,
        "n_looks": learner.n_looks,
    }


def users(seeds: range) -> dict[str, Any]:
    """What must be reached, with honest clicks and with poisoned ones."""
    report = Report("users")
    for seed in seeds:
        data = Digits(seed)
        for at_random in AT_RANDOM:
            found = learn(data, at_random, seed)
            report.add(
                f"{at_random:.0%} at random, seed {seed}",
                hamming_map=found["hamming"][0],
                hamming_p10=found["hamming"][1],
                map_gain=Figure(found["gain"][0], least=LOSS if at_random else GAIN),
                p10_gain=Figure(found["gain"][1], least=LOSS),
                least_map_gain=Figure(found["least"][0], least=LOSS),
                least_p10_gain=Figure(found["least"][1], least=LOSS),
                candidate_map_gain=found["candidate"][0],
                candidate_p10_gain=found["candidate"][1],
                activations=found["n_activations"],
                first_activation=found["first_activation"],
                looks=found["n_looks"],
            )
    return report.section()


def tried(seeds: range) -> dict[str, Any]:
    """What else was tried: gains of the candidate after as many pages ranked by Hamming, without the gate."""
    report = Report("tried")
    gains: dict[str, list[np.ndarray]] = {}
    for seed in seeds:
        data = Digits(seed)
        hamming = data.figures()
        pages = {n: log(data, n, seed) for n in (0, 4, 10)}
        for name, n_explored, change in WAYS:
            learner = ClickLearner(data.codes, random_state=seed, **change.get("options", {}))
            for option, value in change.get("graph", {}).items():
                setattr(learner._graph, option, value)
            for page in pages[n_explored]:
                learner.learn(page)
            gains.setdefault(name, []).append(data.figures(learner.weights) - hamming)
        for c in (0.01, 0.001):
            online = OnlineRankingSVM(n_bits=64, C=c)
            for page in pages[4]:
                online.learn_clicks(page.query_code, page.shown_codes, page.clicked)
            gains.setdefault(f"learn_clicks alone, C={c}", []).append(data.figures(online.weights_) - hamming)
    for name, rows in gains.items():
        mean, least = np.mean(rows, axis=0), np.min(rows, axis=0)
        report.add(name, map_gain=mean[0], p10_gain=mean[1], least_map_gain=least[0], least_p10_gain=least[1])
    return report.section()


def log(data: Digits, n_explored: int, seed: int) -> list[Page]:
    """Honest pages, ranked by Hamming."""
    people = SimulatedUsers(data.codes, data.y, n_explored=n_explored, random_state=seed)
    return [people.page() for _ in range(PAGES)]


# Name, explored items of a page, and what is other than as shipped.
WAYS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("as shipped", 4, {}),
    ("nothing explored", 0, {}),
    ("10 of 20 explored", 10, {}),
    ("items of one page alone, no walks", 4, {"graph": {"n_hops": 0}}),
    ("walks over 4 pages", 4, {"graph": {"n_hops": 4}}),
    ("walks over 8 pages", 4, {"graph": {"n_hops": 8}}),
    ("walks alone, nothing skipped", 4, {"graph": {"skipped": 0.0}}),
    ("half of the constraints from skipped items", 4, {"graph": {"skipped": 0.5}}),
    ("no correction of position bias", 4, {"options": {"propensities": np.ones(20)}}),
    ("true propensities given", 4, {"options": {"propensities": 1 / np.log2(np.arange(20) + 2)}}),
    ("half of what was learned", 4, {"options": {"blend": 0.5}}),
    ("all of what was learned", 4, {"options": {"blend": 1.0}}),
)
PARTS = {"users": users, "tried": tried}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--seeds", type=int, default=3, help="collections and users (default: %(default)s)")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part named {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    for part in options.parts or PARTS:
        section = PARTS[part](range(options.seeds))
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps({**results, part: section}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
