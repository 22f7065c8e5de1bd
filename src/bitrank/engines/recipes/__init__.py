"""Request bodies that make other engines rank by weighted Hamming distance: plain dicts, lists and text.

One module per engine for which bitrank has no client; `docs/recipes/` says how to send the bodies and which were run.
"""

from bitrank.engines.recipes.elasticsearch import elasticsearch_document, elasticsearch_mapping, elasticsearch_search
from bitrank.engines.recipes.opensearch import opensearch_document, opensearch_mapping, opensearch_search
from bitrank.engines.recipes.qdrant import qdrant_collection, qdrant_point, qdrant_search
from bitrank.engines.recipes.redis import redis_create, redis_document, redis_search
from bitrank.engines.recipes.vespa import vespa_document, vespa_schema, vespa_search

__all__ = [
    "elasticsearch_document",
    "elasticsearch_mapping",
    "elasticsearch_search",
    "opensearch_document",
    "opensearch_mapping",
    "opensearch_search",
    "qdrant_collection",
    "qdrant_point",
    "qdrant_search",
    "redis_create",
    "redis_document",
    "redis_search",
    "vespa_document",
    "vespa_schema",
    "vespa_search",
]
