"""
A billion codes
===============

You get the arithmetic and the tools for collections that grow: what a billion codes cost in memory, how long an exact
search takes, and which door to take when one machine is not enough.

The trade-off: exact search reads what it cannot rule out. Uneven weights and real codes let it skip most; random
codes and long codes do not.
"""

# %%
# Time grows with the collection
# ------------------------------
# Random codes are the worst case: nothing in them can be skipped for plain Hamming distance. Real codes are faster
# (:doc:`/search`), and uneven weights let even random ones be skipped in part.

import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from bitrank import Index
from bitrank.engines import connect

rng = np.random.default_rng(0)
codes = rng.integers(0, 256, (1_000_000, 8), dtype=np.uint8)  # 64 bits
queries = rng.integers(0, 256, (20, 8), dtype=np.uint8)
uneven = rng.lognormal(0, 1, 64)

sizes, times = [10_000, 100_000, 1_000_000], {"even weights": [], "uneven weights": []}
for n in sizes:
    for name, weights in (("even weights", np.ones(64)), ("uneven weights", uneven)):
        index = Index(codes[:n], weights=weights)
        index.search(queries[:1], k=10)
        start = time.perf_counter()
        for query in queries:
            index.search(query[None], k=10)
        times[name].append((time.perf_counter() - start) / len(queries) * 1000)

# %%
# A billion codes of 64 bits are 8 GB, and ids as much again (on a GPU only where they are not 0 to n − 1). The point
# on the right was measured on one NVIDIA H200, with k = 100 (:doc:`/gpu`):

figure, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
for name, values in times.items():
    axis.loglog(sizes, values, "o-", label=f"{name}, this machine")
axis.loglog([1e9], [2.8], "k*", label="one query, one H200")
axis.set(xlabel="codes of 64 bits", ylabel="ms per query, k = 10")
axis.legend()

# %%
# On disk
# -------
# A saved index is memory-mapped: it opens at once, and processes on one machine share its pages.

path = Path(tempfile.mkdtemp(), "million.index")
index.save(path)
mapped = Index.load(path, mmap=True)
assert (mapped.search(queries, k=10).ids == index.search(queries, k=10).ids).all()
print(sum(file.stat().st_size for file in path.iterdir()) // len(codes), "bytes per code on disk")

# %%
# Several machines
# ----------------
# A list of addresses is one collection; shard ``id % n`` holds an id. Any engine will do: here two in this process,
# in production ``postgresql://…`` or ``clickhouse://…``.

with connect(["memory://", "memory://"]) as shards:
    shards.create(n_bits=64)
    shards.add(codes[:100_000], np.arange(100_000))
    found = shards.search(queries, k=10, weights=uneven)
assert (found.ids == Index(codes[:100_000]).search(queries, k=10, weights=uneven).ids).all()

# %%
# Which door
# ----------
# ==========================================  =====================================
# collection                                  use
# ==========================================  =====================================
# fits into memory                            `bitrank.Index`
# fits onto a disk of one machine             ``Index.load(path, mmap=True)``
# fits onto a GPU (8 bytes per code)          :doc:`/gpu`
# is in a database                            `bitrank.connect`, exact or two stages
# is on several servers                       ``connect([…])``
# is encoded and searched in batches          :doc:`/batch`
# ==========================================  =====================================
#
# :doc:`/scale` has times of each at a million codes and what they mean for a billion.
