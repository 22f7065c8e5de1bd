"""
Text with judgements
====================

You get text search over sign bits of embeddings (one bit per dimension, 1/32 of the memory of float32), tuned by
relevance judgements as they come in qrels files.

The trade-off: judgements name documents of the past. The gate hides some of the judged documents, and refuses what
would push such documents down.
"""

# %%
# Documents, queries, judgements
# ------------------------------
# Real text that every reader has: the documentation of NumPy, SciPy and scikit-learn. A document is what a docstring
# says after its first line; the first line is the query. Its own document is relevant (grade 2), and so are others of
# the same module (grade 1).

import importlib
import inspect
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from bitrank import Index, QueryVectorRanker, SignBits
from bitrank.evaluation import evaluate_rankings
from bitrank.ranking.evidence.pairs import read_qrels

MODULES = """
numpy.linalg numpy.fft scipy.optimize scipy.signal scipy.ndimage scipy.linalg scipy.interpolate scipy.integrate
scipy.spatial.distance scipy.cluster.hierarchy sklearn.metrics sklearn.preprocessing sklearn.datasets
sklearn.linear_model sklearn.cluster
"""
titles, texts, modules = [], [], []
for name in MODULES.split():
    module = importlib.import_module(name)
    for attribute in sorted(set(getattr(module, "__all__", ()))):
        lines = (inspect.getdoc(inspect.getattr_static(module, attribute, None)) or "").strip().splitlines()
        title = next((line for line in lines if len(line.split()) > 3 and "(" not in line), None)
        if title is not None and len(lines) > 20 and title not in titles:
            titles.append(title)
            texts.append("\n".join(line for line in lines if line != title))
            modules.append(name)
print(len(texts), "documents; a query:", titles[50])

# %%
# Embeddings: TF-IDF and a singular value decomposition, a classic that needs no download. Use your embedding model in
# its place.

tfidf = TfidfVectorizer(sublinear_tf=True, stop_words="english", min_df=2).fit(texts)
svd = TruncatedSVD(64, random_state=0).fit(tfidf.transform(texts))
X, Q = svd.transform(tfidf.transform(texts)), svd.transform(tfidf.transform(titles))

hasher = SignBits().fit(X)
codes = hasher.transform(X)
queries = hasher.project(Q)

# %%
# Judgements are lines ``query 0 document grade``. Two of three queries are there to learn from, the others to measure.

training = np.arange(len(texts)) % 3 != 0
by_module = {name: np.flatnonzero(np.array(modules) == name) for name in set(modules)}
lines = [
    f"q{query} 0 d{document} {2 if query == document else 1}"
    for query in range(len(texts))
    for document in [*by_module[modules[query]][:: 1 + len(by_module[modules[query]]) // 10], query]
]
qrels = Path(tempfile.mkdtemp(), "all.qrels")
qrels.write_text("\n".join(dict.fromkeys(lines)))
pairs, n_unknown = read_qrels(qrels, [f"q{row}" for row in range(len(texts))], [f"d{row}" for row in range(len(texts))])
print(len(pairs), "judgements,", n_unknown, "of unknown documents")

# %%
# Learn and measure
# -----------------
# ``fit_pairs`` numbers queries by row. The gate holds out queries and documents, and judges nDCG@10.

ranker = QueryVectorRanker(n_steps=50, random_state=0)
ranker.fit_pairs(codes, pairs[training[pairs[:, 0]]], queries=queries)
print("share of what was learned:", ranker.blend_)

held_out = pairs[~training[pairs[:, 0]]]
uniform = np.ones(64)
evaluation = evaluate_rankings(codes, {"asymmetric": uniform, "learned": ranker}, pairs=held_out, queries=queries)
hamming = evaluate_rankings(codes, {"Hamming": None}, pairs=held_out, queries=hasher.transform(Q))
figures = hamming.figures | evaluation.figures
for name, values in figures.items():
    print(f"{name:<11} nDCG@10 {values['ndcg10']:.3f}   recall@100 {values['recall100']:.3f}")

figure, axis = plt.subplots(figsize=(6, 2.4), layout="constrained")
axis.barh(list(figures), [values["ndcg10"] for values in figures.values()], color=["#8c8c8c", "#6a51a3", "#009e73"])
axis.set(xlabel="nDCG@10 of queries that were not learned from")
axis.invert_yaxis()

# %%
# Search
# ------

index = Index(codes)
question = "solve a system of linear equations"
values = hasher.project(svd.transform(tfidf.transform([question])))
ids, _ = index.search(ranker.queries_for(values, collection=index), k=5)
for row in ids[0]:
    print(f"{modules[row]:<24} {titles[row]}")

# %%
# More: :doc:`/learning` on relevance judgements and trust, and :doc:`/if-you-now-use` for
# embeddings that come as bits already.
