"""What gates report beside what happens on test data: one picture of all data sets of benchmarks/text.py.

`python benchmarks/gains.py` reads benchmarks/results/text.json and writes docs/pictures/gains.png.
"""

from pathlib import Path

import matplotlib
import numpy as np
from report import RESULTS, Figure, Report, read_results

matplotlib.use("agg")
from matplotlib import pyplot as plt

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "gains.png"
MOST_APART = 0.01


def gains() -> dict[str, list[tuple[float, float]]]:
    """Reported and measured gains of every fit, by section."""
    points: dict[str, list[tuple[float, float]]] = {}
    for name, section in read_results(RESULTS / "text.json").items():
        for what, row in section["rows"].items():
            if "reported_gain" in row and not what.startswith("unseen"):  # no gate promises those anything
                points.setdefault(name, []).append((row["reported_gain"], row["gain"]))
    return points


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
