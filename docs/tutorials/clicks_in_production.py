"""
Clicks in production
====================

You get a ranking that follows the clicks of your users, and a gate that lets a new version through only when held-out
clicks say that it is not worse.

The trade-off: some places of every page go to results from deeper ranks. Clicks on near results alone teach next to
nothing.
"""

# %%
# A collection, and users
# -----------------------
# Simulated users look for digits of the class of their query. They look at low places less often, and one click in
# ten is noise.

import matplotlib.pyplot as plt
import numpy as np

from bitrank import ITQ
from bitrank.clicks import ClickLearner
from bitrank.clicks.simulate import SimulatedUsers
from bitrank.core.codes import distances
from bitrank.core.metrics import mean_average_precision
from bitrank.datasets import digits

images, labels = digits()
vectors = images.reshape(len(images), -1) / 255
codes = ITQ(n_bits=64, random_state=0).fit(vectors[:3000]).transform(vectors)
collection, y = codes[:3000], labels[:3000]
queries, wanted = codes[3000:3300], labels[3000:3300]  # to measure with; no user asks them

users = SimulatedUsers(collection, y, random_state=0)
page = users.page()
print(len(page.shown_codes), "results,", page.explored.sum(), "of them explored,", page.clicked.sum(), "clicked")

# %%
# Learn page by page
# ------------------
# In production, a page is what your log holds: the query, what was shown, which results came from deeper ranks, and
# what was clicked. ``learner.due`` says when enough held-out pages have come for a decision.

learner = ClickLearner(collection, random_state=0)
active, history = None, []
for number in range(1, 401):
    learner.learn(users.page(active))
    if learner.due:
        decision = learner.decide(active)
        if decision.activate:
            active = learner.candidate
        history.append((number, decision))
for number, decision in history:
    print(f"page {number}: {'activated' if decision.activate else 'kept'}; {decision.reason}")

# %%
# What it gained
# --------------
# The win rate is the share of comparable results that are farther than a clicked one: one half is chance. The last
# line measures queries of which nobody ever saw a page.

figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
judged = [(number, decision) for number, decision in history if decision.hamming is not None]
axis.plot([number for number, _ in judged], [decision.hamming for _, decision in judged], "--", label="Hamming")
axis.plot([number for number, _ in judged], [decision.candidate for _, decision in judged], label="candidate")
axis.set(xlabel="pages", ylabel="win rate on held-out pages")
axis.legend()

relevant = wanted[:, None] == y
to_all = distances(queries, collection)
print(f"Hamming  MAP {mean_average_precision(to_all, relevant):.3f}")
if active is not None:
    ranked = active.queries_for(queries, collection=collection)
    to_all = distances(ranked.codes, collection, ranked.weights)
    print(f"active   MAP {mean_average_precision(to_all, relevant):.3f}")

# %%
# A version is a ranker. It has other weights for every query, and trusts them as far as the query is like what was
# clicked:

if active is not None:
    figure, axis = plt.subplots(figsize=(6, 2), layout="constrained")
    axis.bar(np.arange(64), ranked.weights[0])
    axis.set(xlabel="bit", ylabel="weight for one query")
    print("mean trust", ranked.trust.mean().round(2))

# %%
# The service does the same over HTTP, with a log that loses no click, versions and rollback: ``bitrank serve``
# (:doc:`/service`). To try old logs, ``bitrank replay clicks.jsonl`` says what they would have done
# (:doc:`/feedback`).
