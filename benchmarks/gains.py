"""What gates report beside what happens on test data: one picture of all data sets.

`python benchmarks/gains.py` reads benchmarks/results/text.json, judges the memory on ten splits of Cranfield and CISI
each, and writes docs/pictures/gains.png. Data: docs/data.md, in BITRANK_DATA.

One split says little: where the judged half of a few hundred queries holds more pairs that are alike, queries that are
left out of it gain more, and those of the other half less.
"""

from pathlib import Path

import matplotlib
import numpy as np
from memory import Data
from report import RESULTS, Figure, Report, read_results

from experiments.datasets.files import data_folder

matplotlib.use("agg")
from matplotlib import pyplot as plt

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "gains.png"
MOST_APART = 0.01
SETS, SEEDS = ("cranfield", "cisi"), range(10)


def gains() -> dict[str, list[tuple[float, float]]]:
    """Reported and measured gains of every fit, by section."""
    points: dict[str, list[tuple[float, float]]] = {}
    for name, section in read_results(RESULTS / "text.json").items():
        for what, row in section["rows"].items():
            if "reported_gain" in row and not what.startswith("unseen"):  # no gate promises those anything
                points.setdefault(name, []).append((row["reported_gain"], row["gain"]))
    for name in SETS:
        data = Data(data_folder(), name, 1)
        points[f"memory, {name}"] = [remembered(data, seed) for seed in SEEDS]
    return points


def remembered(data: Data, seed: int) -> tuple[float, float]:
    """Reported and measured gain of the memory alone on one split; none where it was refused."""
    run = data.run(seed)
    collection, found = data.judged(run, seed)
    if found.offset is None:
        return 0.0, 0.0
    reported = next(line["gain"] for line in found.lines if line["offset"] == found.offset)
    return reported, data.ndcg(collection, run) - data.ndcg(data.collection, run)


def main() -> None:
    points = gains()
    report = Report("gains")
    for name, pairs in points.items():
        reported, measured = np.mean(pairs, axis=0)
        report.add(name, reported=reported, measured=measured, fits=len(pairs))
    apart = [measured - reported for pairs in points.values() for reported, measured in pairs]
    report.add("all", mean_difference=Figure(float(np.mean(apart)), least=-MOST_APART), fits=len(apart))
    report.summarize()
    _, axes = plt.subplots(figsize=(5, 5), layout="constrained")
    for name, pairs in points.items():
        axes.scatter(*zip(*pairs, strict=True), label=name)
    most = max(max(pair) for pairs in points.values() for pair in pairs)
    axes.plot([0, most], [0, most], color="gray", linewidth=1)
    axes.set(xlabel="gain that the gate reports", ylabel="gain on test data")
    axes.legend()
    axes.figure.savefig(PICTURE, dpi=120, metadata={"Software": None})


if __name__ == "__main__":
    main()
