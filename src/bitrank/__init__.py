"""Ranking with binary codes: learn a weight per bit, rank by weighted Hamming distance."""

from bitrank.hashing import ITQ, LSH, IsotropicHashing, SignBits, SpectralHashing
from bitrank.index import Index
from bitrank.storage import IndexFormatError

__all__ = ["ITQ", "LSH", "Index", "IndexFormatError", "IsotropicHashing", "SignBits", "SpectralHashing"]

__version__ = "0.1.0"
