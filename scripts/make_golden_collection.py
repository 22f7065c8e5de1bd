"""Write tests/golden/collection-v1, memory-v1, planes-v1 and cells-v1: folders of a `Collection`, with answers."""

import json
import shutil
from pathlib import Path

import numpy as np

from bitrank import Collection, QueryVectorRanker, SignBits
from bitrank.collection.report import Version

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"


def main() -> None:
    """Write the folder: items with names, a learned ranker, and a journal of one addition and one removal."""
    folder = GOLDEN / "collection-v1"
    shutil.rmtree(folder, ignore_errors=True)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 12)).astype(np.float32)
    y = (X[:, 0] > 0) * 2 + (X[:, 1] > 0)
    collection = Collection.from_vectors(X, ids=[f"item {row}" for row in range(80)], random_state=0, hasher=SignBits())
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


def write_memory() -> None:
    """Write a folder of codes with judged queries, some of them in the journal, and a verdict of the gate on them."""
    folder = GOLDEN / "memory-v1"
    shutil.rmtree(folder, ignore_errors=True)
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (80, 4), dtype=np.uint8)
    collection = Collection.from_codes(codes, ids=[f"item {row}" for row in range(80)])
    queries = rng.integers(0, 256, (8, 4), dtype=np.uint8)
    collection.remember(queries[:5], [[f"item {row}", f"item {row + 7}"] for row in range(5)], grades=[[1, 2]] * 5)
    collection._use(Version(1, "pairs", facts={"memory": 0.06}), None)
    collection.save(folder)
    collection.remember(queries[5], ["item 60"], query_ids=["pinned"], pinned=True)
    collection.forget([1])
    collection.remove(["item 2"])
    collection.save(folder)
    found = collection.search(queries, 5, explain=True)
    stored = {
        "queries": queries.tolist(),
        "ids": found.ids.tolist(),
        "distances": found.distances.tolist(),
        "judgements": collection.judgements(),
        "lifted": [[each and each.query for each in row] for row in found.explanation.lifted],
    }
    (GOLDEN / "memory-v1.json").write_text(json.dumps(stored) + "\n")


def write_planes() -> None:
    """Write a folder in two parts, heads and rests, with a ranking learned in the space of vectors, and a journal."""
    folder = GOLDEN / "planes-v1"
    shutil.rmtree(folder, ignore_errors=True)
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(320, 24)) / np.arange(1, 25) ** 0.5).astype(np.float32)
    collection = Collection.from_vectors(X[:300], metric="l2", random_state=0)
    queries = X[:6].round(3)
    plain = collection.search(queries, 5)
    ranker = QueryVectorRanker(n_hidden=4, n_steps=20, random_state=0, space="vectors")
    planes, y = collection.hasher, (X[:300, 0] > 0) * 2 + (X[:300, 1] > 0)
    ranker.fit(planes.points(collection.codes()), y, queries=planes.points_of(planes.ask(X[:300])))
    collection.use(ranker)
    collection.save(folder)
    collection.add(X[300:])
    collection.remove([3])
    collection.save(folder)
    found = collection.search(queries, 5)
    stored = {
        "queries": queries.tolist(),
        "plain": plain.ids.tolist(),
        "ids": found.ids.tolist(),
        "distances": found.distances.tolist(),
        "n_bits": [collection.n_bits, collection.index.n_scanned],
        "report": str(collection.report()).splitlines(),
    }
    (GOLDEN / "planes-v1.json").write_text(json.dumps(stored) + "\n")


def write_cells() -> None:
    """Write a folder of codes in cells, with promises of recall measured on queries, and a journal."""
    folder = GOLDEN / "cells-v1"
    shutil.rmtree(folder, ignore_errors=True)
    rng = np.random.default_rng(0)
    centers = rng.integers(0, 2, (16, 32))
    codes = np.packbits(centers[rng.integers(0, 16, 2100)] ^ (rng.random((2100, 32)) < 0.1), axis=1)
    collection = Collection.from_codes(codes[:2000], ids=np.arange(2000), random_state=0)
    collection.make_cells(codes[2000:])
    collection.save(folder)
    collection.add(codes[2000:2002])
    collection.remove([3])
    collection.save(folder)
    queries = codes[2002:2032]
    stored = {
        "queries": queries.tolist(),
        "distances": collection.search(queries, 5).distances.tolist(),
        "read": collection.search(queries, 5, recall=0.9, explain=True).explanation.read.mean(),
        "report": str(collection.report()).splitlines(),
    }
    (GOLDEN / "cells-v1.json").write_text(json.dumps(stored) + "\n")


if __name__ == "__main__":
    for write in (main, write_memory, write_planes, write_cells):
        write()
