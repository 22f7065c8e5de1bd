"""Hashers that learn from class labels, one file per published method."""
