"""Ranking with binary codes: learn a weight per bit, rank by weighted Hamming distance."""

from bitrank.hashing import ITQ, LSH, IsotropicHashing, SignBits, SpectralHashing

__all__ = ["ITQ", "LSH", "IsotropicHashing", "SignBits", "SpectralHashing"]

__version__ = "0.1.0"
