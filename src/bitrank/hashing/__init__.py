"""Hashers, from vectors to packed binary codes: scikit-learn transformers, one file per method."""

from typing import TYPE_CHECKING

from bitrank.hashing.registry import HASHERS, hasher_class, load_hasher
from bitrank.lazy import attach

if TYPE_CHECKING:
    from bitrank.hashing.bre import BinaryReconstructiveEmbeddings
    from bitrank.hashing.hasher import Hasher
    from bitrank.hashing.isotropic import IsotropicHashing
    from bitrank.hashing.itq import ITQ
    from bitrank.hashing.ksh import KernelSupervisedHashing
    from bitrank.hashing.lsh import LSH
    from bitrank.hashing.mdsh import MultidimensionalSpectralHashing
    from bitrank.hashing.mlh import MinimalLossHashing
    from bitrank.hashing.okh import OnlineKernelHashing
    from bitrank.hashing.rsh import RankingSupervisedHashing
    from bitrank.hashing.sign_bits import SignBits
    from bitrank.hashing.spectral import SpectralHashing

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
