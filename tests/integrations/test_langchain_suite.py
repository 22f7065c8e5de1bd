"""LangChain's own tests of vector stores, sync and async: `make test-integrations` installs what they need."""

import pytest
from langchain_tests.integration_tests import VectorStoreIntegrationTests

from bitrank import SignBits
from bitrank.integrations.langchain import BitrankVectorStore


class TestSigns(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self):
        return BitrankVectorStore(self.get_embeddings())


class TestHasher(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self):
        model = self.get_embeddings()
        hasher = SignBits().fit(model.embed_documents([f"text {number}" for number in range(50)]))
        return BitrankVectorStore(model, hasher=hasher)
