"""Search texts by sign bits of embeddings, with a ranking learned from relevance judgements.

python text_search.py documents.tsv queries.tsv train.qrels "a question"

The first two files have lines of an id, a tab and a text; the third has lines `query 0 document grade`.
"""

import argparse
from pathlib import Path

from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from bitrank import Index, QueryVectorRanker, SignBits
from bitrank.ranking.evidence.pairs import read_qrels


def read_texts(path: str) -> tuple[list[str], list[str]]:
    """Read ids and texts."""
    lines = [line.partition("\t") for line in Path(path).read_text(encoding="utf-8").splitlines()]
    return [line[0] for line in lines], [line[2] for line in lines]


def main() -> None:
    """Embed, encode, learn, search."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("documents", "queries", "qrels", "question"):
        parser.add_argument(name)
    parser.add_argument("--n-bits", type=int, default=64)
    arguments = parser.parse_args()
    document_ids, documents = read_texts(arguments.documents)
    query_ids, queries = read_texts(arguments.queries)

    # Your embedding model in its place.
    model = make_pipeline(TfidfVectorizer(sublinear_tf=True), TruncatedSVD(arguments.n_bits, random_state=0))
    vectors = model.fit_transform(documents)
    hasher = SignBits().fit(vectors)
    codes = hasher.transform(vectors)

    pairs, n_unknown = read_qrels(arguments.qrels, query_ids, document_ids)
    print(f"{len(documents)} documents, {len(pairs)} judgements, {n_unknown} of unknown ids")
    ranker = QueryVectorRanker(n_steps=50, random_state=0)
    ranker.fit_pairs(codes, pairs, queries=hasher.project(model.transform(queries)))
    print(f"share of what was learned: {ranker.blend_}")

    index = Index(codes)
    asked = ranker.queries_for(hasher.project(model.transform([arguments.question])), collection=index)
    ids, distances = index.search(asked, k=5)
    for row, distance in zip(ids[0], distances[0], strict=True):
        print(f"{distance:8.3f}  {document_ids[row]}  {documents[row][:80]}")


if __name__ == "__main__":
    main()
