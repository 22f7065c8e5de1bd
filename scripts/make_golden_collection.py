"""Write tests/golden/collection-v1, a folder of a `Collection` in the format of today, and what it answers."""

import json
import shutil
from pathlib import Path

import numpy as np

from bitrank import Collection

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"


def main() -> None:
    """Write the folder: items with names, a learned ranker, and a journal of one addition and one removal."""
    folder = GOLDEN / "collection-v1"
    shutil.rmtree(folder, ignore_errors=True)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 12)).astype(np.float32)
    y = (X[:, 0] > 0) * 2 + (X[:, 1] > 0)
    collection = Collection.from_vectors(X, ids=[f"item {row}" for row in range(80)], random_state=0)
    collection.learn(labels=y, ranker="WhRank")
    collection.save(folder)
    collection.add(X[:2] + 1, ids=["added", 7])
    collection.remove(["item 3"])
    collection.save(folder)
    queries = X[:6].round(3)
    found = collection.search(queries, 5)
    stored = {
        "queries": queries.tolist(),
        "ids": found.ids.tolist(),
        "distances": found.distances.tolist(),
        "report": str(collection.report()).splitlines()[0],
    }
    (GOLDEN / "collection-v1.json").write_text(json.dumps(stored) + "\n")


if __name__ == "__main__":
    main()
