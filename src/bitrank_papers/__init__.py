"""Hashers and rankers of other people's papers, to compare with; `bitrank.hashing` and `bitrank.ranking` name them."""
