"""Write the data that the package carries: a sample of MNIST, its codes, and the hasher that produced them.

The same input gives the same images. Codes may differ in single bits on machines whose linear algebra rounds
differently. Run: python scripts/make_digits.py
"""

import lzma
import sys
from pathlib import Path

import numpy as np

from bitrank.datasets import DIGIT_CODES, DIGIT_HASHER, digits
from bitrank.hashing import ITQ

sys.path.append(str(Path(__file__).parents[1]))

from experiments.datasets import mnist

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
    data = digits()
    X = data.images.reshape(len(data.images), -1) / np.float32(255)
    hasher = ITQ(64, random_state=0).fit(X[:2000])
    hasher.save(DIGIT_HASHER)
    codes = hasher.transform(X)
    np.save(DIGIT_CODES, codes)
    print(f"{DIGIT_CODES}: {len(codes)} codes of {8 * codes.shape[1]} bits")


if __name__ == "__main__":
    main()
