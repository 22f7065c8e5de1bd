"""Hashers, from vectors to packed binary codes: scikit-learn transformers, one file per method."""

from typing import TYPE_CHECKING

from bitrank.core.lazy import attach
from bitrank.hashing.registry import HASHERS, hasher_class, load_hasher

if TYPE_CHECKING:
    from bitrank.hashing.hasher import Hasher as Hasher
    from bitrank.hashing.isotropic import IsotropicHashing as IsotropicHashing
    from bitrank.hashing.itq import ITQ as ITQ
    from bitrank.hashing.lsh import LSH as LSH
    from bitrank.hashing.mdsh import MultidimensionalSpectralHashing as MultidimensionalSpectralHashing
    from bitrank.hashing.sign_bits import SignBits as SignBits
    from bitrank.hashing.spectral import SpectralHashing as SpectralHashing
    from bitrank.hashing.supervised.bre import BinaryReconstructiveEmbeddings as BinaryReconstructiveEmbeddings
    from bitrank.hashing.supervised.ksh import KernelSupervisedHashing as KernelSupervisedHashing
    from bitrank.hashing.supervised.mlh import MinimalLossHashing as MinimalLossHashing
    from bitrank.hashing.supervised.okh import OnlineKernelHashing as OnlineKernelHashing
    from bitrank.hashing.supervised.rsh import RankingSupervisedHashing as RankingSupervisedHashing

__all__ = ["HASHERS", "Hasher", "hasher_class", "load_hasher", *HASHERS]

__getattr__, __dir__ = attach(__name__, HASHERS | {"Hasher": "hasher"}, __all__)
