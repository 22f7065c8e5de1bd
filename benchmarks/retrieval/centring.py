"""How many sign bits centring changes, and how well codes tell whether they were centred (`SignBits.check_codes`).

`python benchmarks/retrieval/centring.py` reads banking77 and NFCorpus, see docs/data.md, and prints per set the share
of bits that differ, and the correlation of shares of ones with means for samples of 20 to 300 codes of either kind: the
largest of centred codes, the smallest of the others. Two seconds.
"""

import sys
from pathlib import Path

import numpy as np

sys.path += map(str, Path(__file__).parents[1:3])
from nfcorpus import NFCorpus

from experiments.datasets import banking77

SIZES = (20, 50, 100, 300)
DRAWS = 50


def correlation(bits: np.ndarray, mean: np.ndarray) -> float:
    return float(np.corrcoef(bits.mean(axis=0), mean)[0, 1])


def main() -> None:
    rng = np.random.default_rng(0)
    for name, X in (("NFCorpus", NFCorpus().documents), ("banking77", banking77()[0])):
        X = np.asarray(X, np.float64)
        mean = X.mean(axis=0)
        print(f"{name}: {((X > 0) != (mean < X)).mean():.3f} of the bits differ")
        for size in SIZES:
            samples = [X[rng.choice(len(X), size, replace=False)] for _ in range(DRAWS)]
            centred = max(correlation(sample > mean, mean) for sample in samples)
            plain = min(correlation(sample > 0, mean) for sample in samples)
            print(f"{size:>5} codes: centred at most {centred:.2f}, others at least {plain:.2f}")


if __name__ == "__main__":
    main()
