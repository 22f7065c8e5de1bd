"""NFCorpus as sign bits: documents, queries and relevance judgements, and nDCG@10 of a ranking on its test queries."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from bitrank import SignBits
from bitrank.core.codes import distances
from bitrank.core.metrics import ndcg_at
from bitrank.core.types import Queries

sys.path.append(str(Path(__file__).parents[1]))

from experiments.datasets.files import data_folder, read_arrays

FILE = "nfcorpus_minilm.npz"
_FORMS: Any = {
    "docs": (np.integer, ("documents", "dimensions")),
    "queries": (np.integer, ("queries", "dimensions")),
    "judgements": (np.integer, ("pairs", 3)),
    "part": (np.str_, ("queries",)),
}


class NFCorpus:
    """Codes of the documents, values of the queries, and judgements (query, document, grade) of the training queries.

    Parameters
    ----------
    folder : path, optional
        Where the file is; by default the folder of data sets (BITRANK_DATA).
    """

    def __init__(self, folder: str | None = None) -> None:
        path = (Path(folder) if folder else data_folder()) / FILE
        if not path.exists():
            raise FileNotFoundError(
                f"NFCorpus is not at {path}. Embed the documents and queries of https://www.cl.uni-heidelberg.de/"
                "statnlpgroup/nfcorpus with a sentence encoder, and write docs, queries, judgements and part there, "
                "see docs/data.md"
            )
        arrays = read_arrays(path, _FORMS)
        self.documents, self.query_vectors = (unit(arrays[name]) for name in ("docs", "queries"))
        hasher = SignBits().fit(self.documents)
        self.codes = hasher.transform(self.documents)
        self.values = hasher.project(self.query_vectors).astype(np.float32)
        self.document_values = hasher.project(self.documents).astype(np.float32)
        self.query_codes = np.packbits(self.values > 0, axis=1)
        self.judgements, self.part = arrays["judgements"].astype(np.int64), arrays["part"]
        self.pairs = self.judgements[self.part[self.judgements[:, 0]] == "train"]

    def queries(self, kind: str) -> np.ndarray:
        """Return all queries as values ("float") or as codes ("bare")."""
        return self.values if kind == "float" else self.query_codes

    def rows(self, part: str) -> np.ndarray:
        """Return the row numbers of the queries of a part: train, dev or test."""
        return np.flatnonzero(self.part == part)

    def gains(self, part: str) -> np.ndarray:
        """Return 2^grade − 1 of every document for every query of a part."""
        rows = self.rows(part)
        place = np.full(len(self.part), -1)
        place[rows] = np.arange(len(rows))
        judged = self.judgements[place[self.judgements[:, 0]] >= 0]
        gains = np.zeros((len(rows), len(self.codes)))
        gains[place[judged[:, 0]], judged[:, 1]] = np.exp2(judged[:, 2]) - 1
        return gains

    def ndcg(self, queries: Queries, part: str = "test", documents: Any = None, among: Any = None) -> float:
        """Return nDCG@10 of the queries of a part, as a ranker returns them.

        `documents`: a mask of those that are worth finding; `among`: a mask of those that are searched.
        """
        return ndcg(distances(queries.codes, self.codes, queries.weights), self.gains(part), documents, among)

    def plain(self, kind: str, part: str = "test") -> Queries:
        """Return the queries of a part as they are: asymmetric distance, or Hamming."""
        values, rows = self.values, self.rows(part)
        weights = np.abs(values[rows]) if kind == "float" else np.ones((len(rows), values.shape[1]), np.float32)
        return Queries(self.query_codes[rows], weights)


def ndcg(to_documents: np.ndarray, gains: np.ndarray, documents: Any = None, among: Any = None) -> float:
    """Return the mean nDCG@10 of the queries that have something worth finding."""
    gains = gains if documents is None else gains * documents
    if among is not None:
        to_documents, gains = to_documents[:, among], gains[:, among]
    return float(np.nanmean(ndcg_at(to_documents, gains, 10)))


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors to length 1."""
    floats = vectors.astype(np.float32)
    return floats / np.linalg.norm(floats, axis=1, keepdims=True)
