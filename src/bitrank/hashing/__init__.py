"""Hashers, from vectors to packed binary codes: scikit-learn transformers, one file per method."""

from typing import TYPE_CHECKING

from bitrank.core.lazy import attach
from bitrank.hashing.registry import HASHERS, hasher_class, load_hasher

if TYPE_CHECKING:
    from bitrank.hashing.bit_planes import BitPlanes as BitPlanes
    from bitrank.hashing.hasher import Hasher as Hasher
    from bitrank.hashing.itq import ITQ as ITQ
    from bitrank.hashing.lsh import LSH as LSH
    from bitrank.hashing.sign_bits import SignBits as SignBits
    from bitrank_papers.bre import BinaryReconstructiveEmbeddings as BinaryReconstructiveEmbeddings
    from bitrank_papers.isotropic import IsotropicHashing as IsotropicHashing
    from bitrank_papers.ksh import KernelSupervisedHashing as KernelSupervisedHashing
    from bitrank_papers.mdsh import MultidimensionalSpectralHashing as MultidimensionalSpectralHashing
    from bitrank_papers.mlh import MinimalLossHashing as MinimalLossHashing
    from bitrank_papers.okh import OnlineKernelHashing as OnlineKernelHashing
    from bitrank_papers.rsh import RankingSupervisedHashing as RankingSupervisedHashing
    from bitrank_papers.spectral import SpectralHashing as SpectralHashing

__all__ = ["HASHERS", "Hasher", "hasher_class", "load_hasher", *HASHERS]

__getattr__, __dir__ = attach(__name__, HASHERS | {"Hasher": "hasher"}, __all__)
