"""Write the golden files of the current index format to tests/golden; run once per format and keep the files.

The index is in cells and has two segments, removed rows, weights, and a number of bits that is no multiple of eight.
Beside it are queries and the answers of the NumPy reference.
"""

from pathlib import Path

import numpy as np

from bitrank.core.codes import pack, weighted_hamming
from bitrank.index import Index
from bitrank.index.storage import VERSIONS

VERSION = VERSIONS[-1]
folder = Path(__file__).parents[1] / "tests" / "golden" / f"index-v{VERSION}"
rng = np.random.default_rng(VERSION)
codes = pack(rng.integers(0, 2, (230, 75)))
ids = rng.permutation(1000)[:230]
weights = rng.lognormal(0, 1, 75).astype(np.float32)
index = Index(codes[:200], n_bits=75, ids=ids[:200], weights=weights)
index.make_cells()
index.add(codes[200:], ids=ids[200:])
index.remove(ids[:20])
index.save(folder)

queries = pack(rng.integers(0, 2, (5, 75)))
distances = weighted_hamming(queries, codes[20:], weights)
order = np.lexsort((np.broadcast_to(ids[20:], distances.shape), distances), axis=1)[:, :15]
np.savez(
    folder.parent / f"index-v{VERSION}-answers.npz",
    queries=queries,
    ids=ids[20:][order],
    distances=np.take_along_axis(distances, order, 1),
)
