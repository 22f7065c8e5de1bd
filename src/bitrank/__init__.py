"""Ranking with binary codes: learn a weight per bit, rank by weighted Hamming distance."""

__version__ = "0.1.0"
