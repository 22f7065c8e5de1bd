"""Hashers, from vectors to packed binary codes: scikit-learn transformers, one file per method."""

from typing import TYPE_CHECKING

from bitrank.core.lazy import attach
from bitrank.hashing.registry import HASHERS, hasher_class, load_hasher

if TYPE_CHECKING:
    from bitrank.hashing.hasher import Hasher
    from bitrank.hashing.isotropic import IsotropicHashing
    from bitrank.hashing.itq import ITQ
    from bitrank.hashing.lsh import LSH
    from bitrank.hashing.mdsh import MultidimensionalSpectralHashing
    from bitrank.hashing.sign_bits import SignBits
    from bitrank.hashing.spectral import SpectralHashing
    from bitrank.hashing.supervised.bre import BinaryReconstructiveEmbeddings
    from bitrank.hashing.supervised.ksh import KernelSupervisedHashing
    from bitrank.hashing.supervised.mlh import MinimalLossHashing
    from bitrank.hashing.supervised.okh import OnlineKernelHashing
    from bitrank.hashing.supervised.rsh import RankingSupervisedHashing

__all__ = [
    "HASHERS",
    "ITQ",
    "LSH",
    "BinaryReconstructiveEmbeddings",
    "Hasher",
    "IsotropicHashing",
    "KernelSupervisedHashing",
    "MinimalLossHashing",
    "MultidimensionalSpectralHashing",
    "OnlineKernelHashing",
    "RankingSupervisedHashing",
    "SignBits",
    "SpectralHashing",
    "hasher_class",
    "load_hasher",
]

__getattr__, __dir__ = attach(__name__, HASHERS | {"Hasher": "hasher"}, __all__)
