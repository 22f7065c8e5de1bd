"""
Codes in PostgreSQL
===================

You get learned rankings inside the database that you have: the table stays, its codes stay, and a query brings its
own weights.

The trade-off: an exact search reads the whole table. From some million rows on, let an index of pgvector find
candidates and rank those by weight; a sample tells how many candidates you need.
"""

# %%
# A table of bits
# ---------------
# ``DATABASE_URL`` names the database, such as ``postgresql://user@host/base``. Suppose it has products with a column
# of 64 bits.

import os

import matplotlib.pyplot as plt
import numpy as np
import psycopg

import bitrank
from bitrank import ITQ, QueryVectorRanker
from bitrank.core.codes import unpack
from bitrank.datasets import digits
from bitrank.engines import suggest_candidates

images, labels = digits()
vectors = images.reshape(len(images), -1) / 255
X, y, Q, wanted = vectors[:2000], labels[:2000], vectors[-100:], labels[-100:]
hasher = ITQ(n_bits=64, random_state=0).fit(X)
codes = hasher.transform(X)

url = os.environ["DATABASE_URL"]
with psycopg.connect(url, autocommit=True) as base:
    base.execute("CREATE EXTENSION IF NOT EXISTS vector")  # pgvector finds candidates, further below
    base.execute("CREATE TABLE products (sku int PRIMARY KEY, title text, bits bit(64))")
    with base.cursor() as cursor:
        rows = ["".join(map(str, row)) for row in unpack(codes, 64)]
        cursor.executemany(
            "INSERT INTO products VALUES (%s, %s, %s::bit(64))",
            [(sku, f"a {label}", row) for sku, (label, row) in enumerate(zip(y, rows, strict=True))],
        )

# %%
# Learn, and ask the table
# ------------------------
# ``engine.search`` takes what `bitrank.Index` takes. The database computes the weighted distance with popcounts.

ranker = QueryVectorRanker(n_steps=50, random_state=0).fit(codes, y, queries=hasher.project(X))
asked = ranker.queries_for(hasher.project(Q), collection=codes)

with bitrank.connect(url, "products", id_column="sku", code_column="bits") as engine:
    plain = engine.search(hasher.transform(Q), k=10)
    learned = engine.search(asked, k=10)
for name, results in (("Hamming", plain), ("learned", learned)):
    print(f"{name:<8} {(y[results.ids] == wanted[:, None]).mean():.3f} of the first ten are right")

# %%
# The ids are those of the table, so that other columns come by a join:

with psycopg.connect(url) as base:
    for row in base.execute("SELECT sku, title FROM products WHERE sku = ANY(%s)", [learned.ids[0, :3].tolist()]):
        print(row)

# %%
# Two stages
# ----------
# ``method="rerank"`` fetches candidates by plain Hamming distance, from an index where there is one, and ranks them
# by weight.

weights = np.asarray(asked.weights).mean(axis=0)
for recall in (0.9, 0.99):
    print(recall, suggest_candidates(codes, weights, k=10, recall=recall, random_state=0), "candidates")

shares = []
counts = [10, 20, 50, 100, 200, 500]
with bitrank.connect(url, "products", id_column="sku", code_column="bits") as engine:
    for candidates in counts:
        results = engine.search(asked, k=10, method="rerank", candidates=candidates)
        shares.append(np.mean([np.isin(a, b).mean() for a, b in zip(learned.ids, results.ids, strict=True)]))
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
axis.semilogx(counts, shares, "o-")
axis.set(xlabel="candidates", ylabel="share of the exact first ten", ylim=(0, 1.02))

# %%
# More: :doc:`/engines` (several servers, other databases), :doc:`/scale` (times at a million codes).
