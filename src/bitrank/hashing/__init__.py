"""Hashers, from vectors to packed binary codes: scikit-learn transformers, one file a method.

First in the path of data; what they give goes to the rankers and the index as plain arrays.
"""

from __future__ import annotations

import os

from bitrank.hashing import files
from bitrank.hashing.hasher import Hasher
from bitrank.hashing.isotropic import IsotropicHashing
from bitrank.hashing.itq import ITQ
from bitrank.hashing.lsh import LSH
from bitrank.hashing.sign_bits import SignBits
from bitrank.hashing.spectral import SpectralHashing

__all__ = ["HASHERS", "ITQ", "LSH", "IsotropicHashing", "SignBits", "SpectralHashing", "load_hasher"]

# A new hasher is one new file and one line here; files and tests find it through this list.
HASHERS: tuple[type[Hasher], ...] = (
    LSH,
    SpectralHashing,
    IsotropicHashing,
    ITQ,
    SignBits,
)


def load_hasher(path: str | os.PathLike[str]) -> Hasher:
    """Read a fitted hasher from a file that its `save` wrote; its codes are exactly the same.

    Parameters
    ----------
    path : path of the file

    Returns
    -------
    hasher : one of `HASHERS`, fitted

    Raises
    ------
    ValueError
        If the file is not one written by `save`, or is damaged.

    Examples
    --------
    >>> import tempfile
    >>> hasher = SignBits().fit([[0.9, 0.1], [0.1, 0.5]])
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     hasher.save(file.name)
    ...     load_hasher(file.name)
    SignBits()
    """
    return files.read(path, HASHERS)
