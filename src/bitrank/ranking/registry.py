"""The registry of rankers, and the reader of their files."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import IO, TYPE_CHECKING

from bitrank.core.archives import Archive, check_shapes, read_archive
from bitrank.core.lazy import class_by_name

if TYPE_CHECKING:
    from bitrank.ranking.ranker import Ranker

FORMAT = "bitrank ranker"
VERSION = 1

# Every ranker and its module, here or in the package of published methods. A new one is a file and a line here; the
# contract tests run over all of them.
RANKERS = {
    "AgreementRanker": "bitrank_papers.agreement",
    "AsymmetricRanker": "plain",
    "MDSHRanker": "bitrank_papers.mdsh",
    "OnlineRankingSVM": "online",
    "QaRank": "bitrank_papers.qa_rank",
    "QueryAdaptiveRanker": "query_adaptive",
    "QueryVectorRanker": "query_vector",
    "RankingSVM": "ranking_svm",
    "UniformRanker": "plain",
    "WhRank": "bitrank_papers.whrank",
}


def ranker_class(name: str) -> type[Ranker]:
    """The class of a ranker by its name in `RANKERS`.

    Examples
    --------
    >>> ranker_class("WhRank").__name__
    'WhRank'
    """
    found: type[Ranker] = class_by_name("ranker", name, __package__, RANKERS)
    return found


def check_archive(archive: Archive, facts: Collection[str], arrays: dict[str, str]) -> None:
    """Check the facts and arrays of a ranker's file; raise a ValueError that says what is wrong with them."""
    if archive.facts.keys() != set(facts):
        raise ValueError(f"expected the facts {sorted(facts)}, got {sorted(archive.facts)}")
    n_bits, share = archive.facts["n_bits_"], archive.facts["blend_"]
    if not isinstance(n_bits, int) or n_bits < 1:
        raise ValueError(f"expected n_bits_ of at least 1, got {n_bits!r}")
    if not isinstance(share, int | float) or not 0 <= share <= 1:
        raise ValueError(f"expected blend_ from 0 to 1, got {share!r}")
    if archive.arrays.keys() != arrays.keys():
        raise ValueError(f"expected the arrays {sorted(arrays)}, got {sorted(archive.arrays)}")
    check_shapes(archive.arrays, arrays, {"b": n_bits})
    if "weights_" in arrays and (archive.arrays["weights_"] < 0).any():
        raise ValueError("expected weights_ that are not negative, got others")


def load_ranker(path: str | os.PathLike[str] | IO[bytes]) -> Ranker:
    """Read a ranker that `Ranker.save` wrote; nothing is unpickled.

    Raises
    ------
    ValueError
        When the file is damaged, of another kind, or of a format version that this bitrank does not read.

    Examples
    --------
    >>> import numpy as np
    >>> from bitrank.ranking import UniformRanker
    >>> UniformRanker().fit(np.zeros((2, 8), np.uint8)).save("plain.ranker")
    >>> load_ranker("plain.ranker").n_bits_
    64
    """
    archive = read_archive(path, FORMAT, VERSION)
    try:
        return ranker_class(archive.name)._from_archive(archive)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} must be a file written by save: {error}") from error
