"""Search texts by sign bits of embeddings, with a ranking learned from relevance judgements.

python text_search.py documents.tsv queries.tsv train.qrels "a question"

The first two files have lines of an id, a tab and a text; the third has lines `query 0 document grade`.
"""

import argparse
from pathlib import Path

from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from bitrank import Collection


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
    collection = Collection.from_vectors(vectors, ids=document_ids, random_state=0)
    asked = model.transform(queries)
    print(collection.learn(pairs=arguments.qrels, queries=asked, query_ids=query_ids, ignore_unknown=True))

    ids, distances = collection.search(model.transform([arguments.question]), k=5)
    for name, distance in zip(ids[0], distances[0], strict=True):
        print(f"{distance:8.3f}  {name}  {documents[document_ids.index(name)][:80]}")


if __name__ == "__main__":
    main()
