"""Learning from clicks of simulated users on the embedded digits, each figure beside its bar.

`python benchmarks/clicks.py [users] [tried]` runs these parts, or both, and writes one section per part to
benchmarks/results/clicks.json. `users`: three seeds of 1000 pages with honest clicks, with 30 % and with 100 % of the
pages clicked at random. `tried`: gains of the candidate with one thing changed at a time.

The collection is 5000 digits as ITQ codes of 64 bits, each of which may be a user's query. MAP and P@10 are measured
with 2000 other digits as queries, which users never see, in expectation over ties. Pages are ranked by the active
version, and every version that was ever active is measured.
"""

import argparse
from typing import Any

import numpy as np
from report import RESULTS, Figure, Report, parse_parts

from bitrank import ITQ, OnlineRankingSVM
from bitrank.codes import distances
from bitrank.datasets import digits
from bitrank.feedback import ClickLearner, Page
from bitrank.feedback.simulation import SimulatedUsers
from bitrank.metrics import average_precision, precision_at

PAGES = 1000
AT_RANDOM = (0.0, 0.3, 1.0)
GAIN, LOSS = 0.015, -0.002


class Digits:
    """A collection of digits as codes, and other digits as queries."""

    def __init__(self, seed: int) -> None:
        images, labels = digits()
        rows = np.random.default_rng(seed).permutation(len(images))
        X = images.reshape(len(images), -1).astype(np.float32) / 255
        items, queries = rows[:5000], rows[5000:7000]
        hasher = ITQ(n_bits=64, random_state=seed).fit(X[items])
        self.codes, self.y = hasher.transform(X[items]), labels[items]
        self.queries = hasher.transform(X[queries])
        self.relevant = labels[queries][:, None] == self.y

    def figures(self, weights: Any = None) -> np.ndarray:
        """Return MAP and P@10."""
        to_all = distances(self.queries, self.codes, weights)
        return np.array(
            [average_precision(to_all, self.relevant).mean(), precision_at(to_all, self.relevant, 10).mean()]
        )


def learn(data: Digits, at_random: float, seed: int) -> dict[str, Any]:
    """Let users click; return the gains over Hamming of the last active version and the least of all active ones."""
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


def users(report: Report, seeds: range) -> None:
    """Learn from honest and from poisoned clicks."""
    for seed in seeds:
        data = Digits(seed)
        for at_random in AT_RANDOM:
            outcome = learn(data, at_random, seed)
            report.add(
                f"{at_random:.0%} at random, seed {seed}",
                hamming_map=outcome["hamming"][0],
                hamming_p10=outcome["hamming"][1],
                map_gain=Figure(outcome["gain"][0], least=LOSS if at_random else GAIN),
                p10_gain=Figure(outcome["gain"][1], least=LOSS),
                least_map_gain=Figure(outcome["least"][0], least=LOSS),
                least_p10_gain=Figure(outcome["least"][1], least=LOSS),
                candidate_map_gain=outcome["candidate"][0],
                candidate_p10_gain=outcome["candidate"][1],
                activations=outcome["n_activations"],
                first_activation=outcome["first_activation"],
                looks=outcome["n_looks"],
            )


def tried(report: Report, seeds: range) -> None:
    """Measure variants: gains of the candidate after 1000 pages ranked by Hamming, without the gate."""
    gains: dict[str, list[np.ndarray]] = {}
    for seed in seeds:
        data = Digits(seed)
        hamming = data.figures()
        pages = {n: log(data, n, seed) for n in (0, 4, 10)}
        for name, n_explored, change in VARIANTS:
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


def log(data: Digits, n_explored: int, seed: int) -> list[Page]:
    """Return honest pages, ranked by Hamming."""
    people = SimulatedUsers(data.codes, data.y, n_explored=n_explored, random_state=seed)
    return [people.page() for _ in range(PAGES)]


# Name, explored items per page, and the difference from the default.
VARIANTS: tuple[tuple[str, int, dict[str, Any]], ...] = (
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
    parser.add_argument("--seeds", type=int, default=3, help="collections and users (default: %(default)s)")
    options = parse_parts(parser, PARTS)
    for part in options.parts:
        report = Report(part)
        PARTS[part](report, range(options.seeds))
        report.save(RESULTS / "clicks.json")


if __name__ == "__main__":
    main()
