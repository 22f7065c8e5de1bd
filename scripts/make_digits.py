"""Make src/bitrank/data/digits.xz, the sample of MNIST that the package carries, from the complete set.

The same input gives the same bytes: python scripts/make_digits.py
"""

import lzma
from pathlib import Path

import numpy as np

from bitrank.datasets import mnist

PER_DIGIT = 1000
SEED = 20_000
OUTPUT = Path(__file__).parents[1] / "src" / "bitrank" / "data" / "digits.xz"


def main() -> None:
    images, labels = mnist()
    rng = np.random.default_rng(SEED)
    rows = [rng.choice(np.flatnonzero(labels == digit), PER_DIGIT, replace=False) for digit in range(10)]
    kept = np.sort(np.concatenate(rows))
    raw = labels[kept].tobytes() + images[kept].tobytes()
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_bytes(lzma.compress(raw, preset=9 | lzma.PRESET_EXTREME))
    print(f"{OUTPUT}: {len(kept)} images, {OUTPUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
