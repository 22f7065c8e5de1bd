"""Speed of GIST on images of 32 × 32 pixels: `python benchmarks/gist.py` writes results/gist.json.

The images are random; the time does not depend on their content.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from statistics import median

import numpy as np
from report import RESULTS, Figure, timed, write_results

from bitrank.core.checks import n_threads

sys.path.append(str(Path(__file__).parents[1]))

from experiments.gist import Gist

N_IMAGES, LEAST = 4000, 1000.0


def main() -> None:
    images = np.random.default_rng(0).integers(0, 256, (N_IMAGES, 32, 32, 3), dtype=np.uint8)
    gist = Gist().fit(images)
    rate = N_IMAGES / median(timed(gist.transform, images)[0] for _ in range(5))
    print(f"images per second: {Figure(rate, least=LEAST)}")
    facts = {"images_per_second": rate, "bar": LEAST, "cores": n_threads(), "python": platform.python_version()}
    write_results(RESULTS / "gist.json", facts)


if __name__ == "__main__":
    main()
