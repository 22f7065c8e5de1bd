"""Keep the sign bits of embeddings in a LangChain vector store.

pip install 'bitrank[langchain]'
python langchain_search.py
"""

import numpy as np
from langchain_core.embeddings import Embeddings
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.random_projection import GaussianRandomProjection

from bitrank.integrations.langchain import BitrankVectorStore

TEXTS = {
    "how to cook rice with vegetables": "kitchen",
    "baking bread without yeast": "kitchen",
    "repair the chain of a bicycle": "workshop",
    "how to paint a wooden fence": "workshop",
}


class CharacterNgrams(Embeddings):
    """Projected counts of character n-grams; your embedding model in its place."""

    def __init__(self) -> None:
        self._counts = HashingVectorizer(analyzer="char_wb", ngram_range=(3, 5), n_features=2**12)
        self._projection = GaussianRandomProjection(256, random_state=0).fit(np.zeros((1, 2**12)))

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts."""
        return self._projection.transform(self._counts.transform(texts)).tolist()

    def embed_query(self, text: str) -> list[float]:
        """Embed a query."""
        return self.embed_documents([text])[0]


def main() -> None:
    """Add, search, filter, save, load."""
    store = BitrankVectorStore(CharacterNgrams())
    store.add_texts(list(TEXTS), metadatas=[{"room": room} for room in TEXTS.values()])
    for document, score in store.similarity_search_with_score("cooking rice", k=2):
        print(document.page_content, round(score, 3))

    store.save("texts.store")
    loaded = BitrankVectorStore.load("texts.store", CharacterNgrams())
    retriever = loaded.as_retriever(search_kwargs={"k": 1, "filter": {"room": "workshop"}})
    print(retriever.invoke("how to cook rice")[0].page_content)


if __name__ == "__main__":
    main()
