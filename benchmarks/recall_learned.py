"""Quality after learning: nDCG@10 on NFCorpus from judged pairs, P@10 on banking77 from labels, beside float32.

A `Collection` learns by itself. Others rank the vectors that one linear adapter of the query gives, learned on float32
documents from the same evidence, with settings chosen on the dev queries of NFCorpus.
"""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import numpy as np
from nfcorpus import NFCorpus, ndcg
from quantisers import CONTENDERS
from rivals import ADAPTERS, Draws, tune
from vectors import SETS, unit

from bitrank import Collection
from experiments.datasets import banking77

OURS = {"bitrank, 1 bit": 1, "bitrank, 2 bits": 2, "bitrank, 4 bits": 4}
PEERS = (
    "float32, flat",
    "turbovec, 2 bits",
    "turbovec, 4 bits",
    "FAISS RaBitQ, 1 bit",
    "FAISS RaBitQ, 2 bits",
    "FAISS RaBitQ, 4 bits",
    "rabitqlib, 4 bits",
    "FAISS PQFastScan, 2 bits",
)
_TAUGHT = 2000  # sentences that the adapter of banking77 takes for queries


def measure_learned(store: Any, options: argparse.Namespace) -> None:
    """Rankings before and after learning."""
    for name, part in {"NFCorpus": _nfcorpus, "banking77": _banking77}.items():
        rows = store.missing("learned", name, options, [*PEERS, *OURS])
        if rows and name in (options.sets or SETS):
            part(store, [row for row in rows if row in PEERS or row in OURS])


def _nfcorpus(store: Any, rows: list[str]) -> None:
    data = NFCorpus()
    test, documents, queries = data.rows("test"), data.documents, data.query_vectors
    adapted = queries
    if set(rows) & set(PEERS):
        adapted = unit(tune(data, ADAPTERS, queries, documents).learn(queries, documents, Draws(data, 0)))

    def quality(ids: np.ndarray) -> float:
        ranks = np.full((len(test), len(documents)), 1e9)
        np.put_along_axis(ranks, ids, np.arange(ids.shape[1])[None].astype(float), axis=1)
        return ndcg(ranks, data.gains("test"))

    def learn(collection: Collection) -> None:
        collection.learn(pairs=data.pairs, queries=queries)

    _measure(store, "NFCorpus", rows, documents, (queries[test], adapted[test]), quality, learn)


def _banking77(store: Any, rows: list[str]) -> None:
    vectors, labels, _ = banking77()
    X, Q = np.split(unit(vectors), [10_003])
    y, wanted = np.split(labels, [10_003])
    adapted = Q
    if set(rows) & set(PEERS):
        taught = np.random.default_rng(0).permutation(len(X))[:_TAUGHT]
        query, item = np.nonzero(y[taught][:, None] == y)
        other = taught[query] != item
        pairs = np.column_stack([query, item, np.ones(len(item), np.int64)])[other]
        data = SimpleNamespace(pairs=pairs, codes=X, part=np.empty(_TAUGHT + len(Q)))
        adapted = unit(ADAPTERS[0].learn(np.vstack([X[taught], Q]), X, Draws(data, 0))[_TAUGHT:])

    def quality(ids: np.ndarray) -> float:
        return float((y[ids] == wanted[:, None]).mean())

    def learn(collection: Collection) -> None:
        collection.learn(labels=y)

    _measure(store, "banking77", rows, X, (Q, adapted), quality, learn)


def _measure(
    store: Any,
    name: str,
    rows: list[str],
    X: np.ndarray,
    asked: tuple[np.ndarray, np.ndarray],
    quality: Any,
    learn: Any,
) -> None:
    for row in rows:
        if row in OURS:
            collection = Collection.from_vectors(X, bits=OURS[row], random_state=0)
            before = quality(collection.search(asked[0], 10).ids)
            learn(collection)
            after, n_bytes = quality(collection.search(asked[0], 10).ids), collection.bytes_per_item
        else:
            built = CONTENDERS[row](X, "cosine")
            if built is None:
                continue
            before, after = (quality(np.asarray(built.search(Q, 10)).astype(np.int64)) for Q in asked)
            n_bytes = built.n_bytes
        store.add("learned", name, row, {"plain": before, "learned": after, "bytes": n_bytes})
