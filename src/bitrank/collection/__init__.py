"""`Collection`, the one object: items as bits, what was learned about asking for them, and a folder for both."""

from bitrank.collection.collection import Collection
from bitrank.collection.folder import CollectionFormatError
from bitrank.collection.report import CollectionReport, Version
from bitrank.collection.results import CollectionResults

__all__ = ["Collection", "CollectionFormatError", "CollectionReport", "CollectionResults", "Version"]
