"""What learning from clicks must reach: simulated users on the embedded digits, each figure beside its bar.

`python benchmarks/clicks.py` runs three seeds of 1000 pages with honest clicks, with 30 % and with 100 % of the pages
clicked at random, prints each figure as it is known and writes benchmarks/results/clicks.json.

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

from bitrank import ITQ
from bitrank.codes import distances
from bitrank.datasets import digits
from bitrank.feedback import ClickLearner
from bitrank.feedback.simulation import SimulatedUsers
from bitrank.metrics import average_precision, precision_at

RESULTS = Path(__file__).parent / "results" / "clicks.json"
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


def learn(data: Digits, at_random: float, n_pages: int, seed: int) -> dict[str, Any]:
    """Let users click; the gains over Hamming of the version active at the end, and the least of any."""
    users = SimulatedUsers(data.codes, data.y, at_random=at_random, random_state=seed)
    learner = ClickLearner(data.codes, random_state=seed)
    hamming, active, gains, first = data.figures(), None, [np.zeros(2)], 0
    for number in range(1, n_pages + 1):
        learner.learn(users.page(active))
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    report = Report("clicks")
    for seed in range(arguments.seeds):
        data = Digits(seed)
        for at_random in AT_RANDOM:
            found = learn(data, at_random, arguments.pages, seed)
            honest = at_random == 0
            report.add(
                f"{at_random:.0%} at random, seed {seed}",
                hamming_map=found["hamming"][0],
                hamming_p10=found["hamming"][1],
                map_gain=Figure(found["gain"][0], least=GAIN if honest else LOSS),
                p10_gain=Figure(found["gain"][1], least=LOSS),
                least_map_gain=Figure(found["least"][0], least=LOSS),
                least_p10_gain=Figure(found["least"][1], least=LOSS),
                candidate_map_gain=found["candidate"][0],
                candidate_p10_gain=found["candidate"][1],
                activations=found["n_activations"],
                first_activation=found["first_activation"],
                looks=found["n_looks"],
            )
    RESULTS.write_text(json.dumps({"clicks": report.section(), "pages": arguments.pages}, indent=1) + "\n")


if __name__ == "__main__":
    main()
