"""Rank inside PostgreSQL by queries that a ranker learned.

DATABASE_URL=postgresql://user@host/base python postgresql.py
"""

import os

import bitrank
from bitrank import ITQ, QueryVectorRanker
from bitrank.datasets import digits


def main() -> None:
    """Store codes, learn, and search in two ways."""
    images, y = digits()  # your vectors and labels in their place
    X = images.reshape(len(images), -1) / 255
    hasher = ITQ(n_bits=32, random_state=0).fit(X[:1000])
    codes = hasher.transform(X[:1000])
    ranker = QueryVectorRanker(n_steps=20, random_state=0).fit(codes, y[:1000], queries=hasher.project(X[:1000]))
    values, wanted = hasher.project(X[1000:1050]), y[1000:1050]

    with bitrank.connect(os.environ["DATABASE_URL"], "digits") as engine:
        engine.create(n_bits=32)
        engine.add(codes, range(1000))
        plain = engine.search(values, k=10)
        learned = engine.search(ranker.queries_for(values, collection=codes), k=10)
        print(engine.count(), "codes in the table")
    for name, results in (("float query", plain), ("learned", learned)):
        print(f"{name}: {(y[results.ids] == wanted[:, None]).mean():.3f} of the first ten are right")


if __name__ == "__main__":
    main()
