"""
Images with labels
==================

You get a search for similar images that takes 8 bytes per image and, after learning from labels, finds the right
class more often than the plain search does.

The trade-off: it learns what *your labels* call similar. Images of classes without labels keep the plain ranking.
"""

# %%
# From images to codes
# --------------------
# The package contains 10 000 handwritten digits. Pixels do as vectors here; for photographs use an embedding. Half of
# the images are a collection with labels, and 500 of the others are queries.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from bitrank import ITQ, Index, QueryVectorRanker
from bitrank.core.codes import distances
from bitrank.core.metrics import mean_average_precision, mean_precision_recall, precision_at
from bitrank.datasets import digits

images, labels = digits()
vectors = images.reshape(len(images), -1) / 255
X, y = vectors[:3000], labels[:3000]
Q, wanted = vectors[-500:], labels[-500:]

hasher = ITQ(n_bits=64, random_state=0).fit(X)
codes = hasher.transform(X)
index = Index(codes)
print(f"{codes.nbytes:,} bytes of codes, {X.astype(np.float32).nbytes:,} bytes of vectors")

# %%
# Three ways to ask
# -----------------
# As a code; as numbers, whose sizes tell how certain each bit is; and as what a ranker makes of these numbers. The
# stored codes are the same. ``collection=index`` lets the ranker see which queries are like what it learned from.

ranker = QueryVectorRanker(n_steps=100, random_state=0).fit(codes, y, queries=hasher.project(X))
print("share of what was learned:", ranker.blend_)

queries = {
    "Hamming": hasher.transform(Q),
    "asymmetric": hasher.project(Q),
    "learned": ranker.queries_for(hasher.project(Q), collection=index),
}
results = {name: index.search(asked, k=10) for name, asked in queries.items()}
for name, (ids, _) in results.items():
    print(f"{name:<11} {(y[ids] == wanted[:, None]).mean():.3f} of the first ten are right")

# %%
# The first ten before and after, for the query that gained most:

gain = (y[results["learned"].ids] == wanted[:, None]).sum(1) - (y[results["Hamming"].ids] == wanted[:, None]).sum(1)
query = int(gain.argmax())
figure, axes = plt.subplots(2, 11, figsize=(10, 2.4), layout="constrained")
for line, name in zip(axes, ("Hamming", "learned"), strict=True):
    line[0].imshow(images[-500:][query], cmap="gray")
    line[0].set_title(name, fontsize=9)
    for axis, row in zip(line[1:], results[name].ids[query], strict=True):
        axis.imshow(images[row], cmap="gray_r" if y[row] == wanted[query] else "Reds")
    for axis in line:
        axis.axis("off")

# %%
# The whole ranking
# -----------------
# :doc:`Measures </metrics>` are expectations over ties, of which plain Hamming distance has many.

relevant = wanted[:, None] == y
figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
for name, asked in (("Hamming", (queries["Hamming"], None)), ("learned", queries["learned"][:2])):
    matrix = distances(asked[0], codes, asked[1])
    precision, recall = mean_precision_recall(matrix, relevant)
    axis.plot(recall, precision, label=f"{name}, MAP {mean_average_precision(matrix, relevant):.3f}")
    print(f"{name:<8} P@10 {precision_at(matrix, relevant, 10).mean():.3f}")
axis.set(xlabel="recall", ylabel="precision", ylim=(0, 1))
axis.legend()

# %%
# Keep it
# -------
# ``bitrank serve --index digits.index --hasher digits.hasher`` serves the collection over HTTP (:doc:`/service`).

folder = Path(tempfile.mkdtemp())
ranker.save(folder / "digits.ranker")
hasher.save(folder / "digits.hasher")
index.save(folder / "digits.index")

# %%
# More: :doc:`/learning`, :doc:`/hashing`, :doc:`/results`.
