"""Exact search by weighted Hamming distance: the index, its rows and segments, its files, and other formats."""

from bitrank.index.index import Index
from bitrank.index.storage import IndexFormatError

__all__ = ["Index", "IndexFormatError"]
