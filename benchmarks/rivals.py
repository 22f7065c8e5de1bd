"""What others learn from judged pairs: a linear adapter of the query, and a bilinear similarity of codes.

Both see the same training pairs and draw negatives by the same rule as `QueryVectorRanker`: mostly documents that some
pair names, the others at a fifth of their density, never a document that is relevant to the query.
"""

from typing import Any, NamedTuple

import numpy as np
from nfcorpus import NFCorpus, ndcg
from scipy.special import softmax

from bitrank.core.codes import signs
from bitrank.ranking.networks.loss import Adam, descend

N_QUERIES, N_ITEMS, OTHERS = 256, 1024, 0.2


class Draws:
    """Training queries, a relevant document for each in proportion to 2^grade − 1, and negatives."""

    def __init__(self, data: NFCorpus, seed: int, pairs: np.ndarray | None = None) -> None:
        pairs = data.pairs if pairs is None else pairs
        self.random = np.random.default_rng(seed)
        self.queries = np.unique(pairs[:, 0])
        self.lists = {query: pairs[pairs[:, 0] == query] for query in self.queries}
        self.n_documents = len(data.codes)
        self.named = np.unique(pairs[:, 1])
        self.relevant = np.zeros((len(data.part), self.n_documents), bool)
        self.relevant[pairs[:, 0], pairs[:, 1]] = True

    def draw(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw queries, one relevant document for each, and documents to rank below it."""
        queries = self.queries[self.random.integers(len(self.queries), size=N_QUERIES)]
        return queries, np.array([self.document(query) for query in queries]), self.negatives(N_ITEMS)

    def document(self, query: int) -> int:
        """Draw a relevant document of a query."""
        judged = self.lists[query]
        gains = np.cumsum(np.exp2(judged[:, 2]) - 1)
        return int(judged[np.searchsorted(gains, self.random.random() * gains[-1], side="right"), 1])

    def negatives(self, n: int) -> np.ndarray:
        """Draw documents."""
        n_others = int(OTHERS * n * (self.n_documents - len(self.named)) / len(self.named))
        named = self.named[self.random.integers(len(self.named), size=n)]
        return np.concatenate([named, self.random.integers(self.n_documents, size=n_others)])


class Adapter(NamedTuple):
    """Settings of a linear adapter: sharpness of the softmax, learning rate, and pull back to the identity per step."""

    sharpness: float
    rate: float
    decay: float

    def learn(self, queries: np.ndarray, documents: np.ndarray, draws: Draws, n_steps: int = 300) -> np.ndarray:
        """Return all queries as the adapter gives them: A q + b, learned by a softmax over the negatives.

        That is the loss of LlamaIndex's embedding adapter (multiple negatives ranking), with A at the identity first.
        """
        n = queries.shape[1]
        direct, shift = np.float32(self.sharpness) * np.eye(n, dtype=np.float32), np.zeros(n, np.float32)

        def gradients() -> tuple[np.ndarray, np.ndarray]:
            rows, positives, negatives = draws.draw()
            inputs, right, others = queries[rows], documents[positives], documents[negatives]
            vectors = inputs @ direct.T + shift
            scores = np.empty((len(rows), 1 + len(others)), np.float32)
            scores[:, 0] = np.einsum("qd,qd->q", vectors, right)
            scores[:, 1:] = vectors @ others.T
            scores[:, 1:][draws.relevant[rows][:, negatives]] = -np.inf
            shares = softmax(scores, axis=1)
            by_vector = ((shares[:, :1] - 1) * right + shares[:, 1:] @ others) / np.float32(len(rows))
            return by_vector.T @ inputs, by_vector.sum(axis=0)

        rate = self.rate * self.sharpness
        descend([Adam(direct, rate, self.decay), Adam(shift, rate)], gradients, n_steps, "adapter")
        return queries @ direct.T + shift


class Bilinear(NamedTuple):
    """Settings of a bilinear similarity of codes: scale of the first W, and how far one update may go.

    Weng and Zhu (Online Hashing with Similarity Learning, arXiv 2108.02560) fix the hash functions and learn the
    similarity s_qᵀ W s_d of ±1 codes online. Here every triplet makes one passive-aggressive update of W, which starts
    at the identity, and the mean over all updates is used.
    """

    scale: float
    aggressiveness: float

    def learn(self, queries: np.ndarray, documents: np.ndarray, draws: Draws, n_updates: int = 50_000) -> np.ndarray:
        """Return all queries as Wᵀ s_q."""
        n = queries.shape[1]
        similarity = np.float32(self.scale) * np.eye(n, dtype=np.float32)
        mean, total = np.zeros((n, n)), np.zeros((n, n), np.float32)
        rows = draws.queries[draws.random.integers(len(draws.queries), size=n_updates)]
        others = draws.negatives(n_updates)
        draws.random.shuffle(others)
        for update, (row, other) in enumerate(zip(rows, others[:n_updates], strict=True)):
            if not draws.relevant[row, other]:
                query, difference = queries[row], documents[draws.document(row)] - documents[other]
                loss = 1 - query @ (similarity @ difference)
                if loss > 0:
                    square = float(difference @ difference) * n
                    step = min(self.aggressiveness, float(loss) / max(square, 1.0))
                    similarity += np.outer(np.float32(step) * query, difference)
            if update % 10 == 0:
                total += similarity
            if update % 10_000 == 9_990:
                mean += total
                total[:] = 0
        return queries @ (mean + total).astype(np.float32)


# Searched on the dev queries. On float documents, of sharpness 10 to 40, rates .003 and .01 and decay 0 and .05, a rate
# of .01 with a decay of .05 was best at every sharpness.
ADAPTERS = [Adapter(sharpness, 0.01, decay) for sharpness in (20.0, 40.0) for decay in (0.05, 0.15)]
BILINEARS = [Bilinear(scale, step) for scale in (0.03, 0.1) for step in (1e-7, 1e-6, 1e-5)]


def tune(data: NFCorpus, settings: list[Any], queries: np.ndarray, documents: np.ndarray, seed: int = 100) -> Any:
    """Return the setting with the best nDCG@10 on the dev queries."""
    scores = []
    for setting in settings:
        learned = setting.learn(queries, documents, Draws(data, seed))
        scores.append(ndcg(-(learned[data.rows("dev")] @ documents.T), data.gains("dev")))
        print(f"  {setting}: dev {scores[-1]:.4f}", flush=True)
    return settings[int(np.argmax(scores))]


def bits(codes: np.ndarray, n_bits: int) -> np.ndarray:
    """Return codes as ±1, scaled to length 1, as an adapter sees them."""
    return signs(codes, n_bits) / np.float32(np.sqrt(n_bits))
