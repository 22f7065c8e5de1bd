"""GIST of images of the size of CIFAR-10's, per second: `python benchmarks/gist.py`, which writes results/gist.json.

The images are random; the work does not depend on what they show.
"""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path
from statistics import median

import numpy as np

from bitrank.features import Gist

RESULTS = Path(__file__).parent / "results" / "gist.json"
N_IMAGES, LEAST = 4000, 1000.0


def main() -> None:
    images = np.random.default_rng(0).integers(0, 256, (N_IMAGES, 32, 32, 3), dtype=np.uint8)
    gist = Gist().fit(images)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        features = gist.transform(images)
        seconds.append(time.perf_counter() - start)
    rate = N_IMAGES / median(seconds)
    print(
        f"{rate:.0f} images a second, {features.shape[1]} features (≥ {LEAST:g} {'met' if rate >= LEAST else 'MISSED'})"
    )
    facts = {"images_per_second": rate, "bar": LEAST, "cores": os.cpu_count(), "python": platform.python_version()}
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
