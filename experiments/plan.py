"""What is run: every group of cells of `make reproduce` and of `make reproduce-quick`.

A group is one set of codes (protocol, dataset, hasher, length, seed); its cells are the rankings compared on them.
"""

from __future__ import annotations

from typing import NamedTuple

HASHERS = ("LSH", "SH", "ISOH", "ITQ")
QUICK_HASHERS = ("LSH", "ITQ")
LENGTHS = (16, 32, 64, 96, 128)
SEEDS = (0, 1, 2)
IMAGES = ("mnist", "cifar10", "youtube_faces")

# The names of the rankings, in the order of the tables.
RANKINGS = (
    "Hamming",
    "WhRank",
    "WhRank-adaptive",
    "asymmetric",
    "paper-EGD",
    "paper-PGD",
    "paper-exact",
    "RankingSVM",
    "RankingSVM-map",
    "Online",
    "QueryAdaptive",
    "QueryAdaptive-map",
)
# Learned on top of the magnitudes of float queries, where WhRank-adaptive and asymmetric start as well: of faces, where
# these are strong, and of text embeddings, whose queries are floats anyway.
FLOAT = {"youtube_faces": ("RankingSVM-float",), "banking77": ("RankingSVM-float", "QueryAdaptive-float")}
UNSEEN = (
    "Hamming",
    "WhRank-adaptive",
    "asymmetric",
    "paper-exact",
    "RankingSVM",
    "RankingSVM-classes",
    "Online",
    "QueryAdaptive",
    "QueryAdaptive-classes",
    "QueryVector",
    "QueryVector-classes",
)
QUADRUPLETS = (100, 300, 1000, 3000, 10_000, 30_000, 100_000)
STEPS = (0, 1, 2, 3, 4, 5)
PAGES = (0, 10, 100, 1000)
SLOTS = (0, 2, 5)
CLICK_C = (0.01, 0.001)  # how far one page may move the weights: as it ships, and a tenth of that

CELLS = {
    "full": (*RANKINGS, "QueryVector", "Agreement"),
    "authors": RANKINGS,
    "unseen": UNSEEN,
    "drift": tuple(f"{name}-step{step}" for step in STEPS for name in ("Hamming", "frozen", "online", "retrained")),
    "quadruplets": tuple(f"{name}-n{n}" for n in QUADRUPLETS for name in ("paper-exact", "RankingSVM")),
    "clicks": tuple(f"explore{slots}-C{c}-pages{pages}" for c in CLICK_C for slots in SLOTS for pages in PAGES),
    "acdv": ("linear-SVM",),
    "picture": ("pairs",),
    "timing": ("WhRank",),
}


class Group(NamedTuple):
    """One set of codes, on which several rankings are measured."""

    protocol: str
    dataset: str
    hasher: str
    n_bits: int
    seed: int

    def __str__(self) -> str:
        return f"{self.protocol}/{self.dataset}/{self.hasher}-{self.n_bits}-{self.seed}"

    @property
    def rankings(self) -> tuple[str, ...]:
        """Names of its cells."""
        return rankings_of(self.protocol, self.dataset)


def rankings_of(protocol: str, dataset: str) -> tuple[str, ...]:
    """Names of the cells of a protocol on a dataset, in the order of the tables."""
    return (*CELLS[protocol], *(FLOAT.get(dataset, ()) if protocol == "full" else ()))


def groups(plan: str) -> list[Group]:
    """All groups of a plan, those of one dataset together, as a worker keeps one dataset in memory.

    Examples
    --------
    >>> len(groups("reproduce")) > len(groups("quick"))
    True
    """
    if plan == "quick":
        listed = [Group("full", "digits", hasher, 32, seed) for seed in (0, 1) for hasher in QUICK_HASHERS]
        return [
            *listed,
            *(Group("acdv", "digits", hasher, 64, seed) for hasher in HASHERS for seed in (0, 1)),
            *(Group("clicks", "digits", "ITQ", 32, seed) for seed in (0, 1)),
            Group("picture", "digits", "ITQ", 32, 0),
        ]
    if plan != "reproduce":
        raise ValueError(f'plan must be "reproduce" or "quick", got {plan!r}')
    codes = [(hasher, n_bits, seed) for hasher in HASHERS for n_bits in LENGTHS for seed in SEEDS]
    listed = [Group("full", dataset, *code) for dataset in IMAGES for code in codes]
    listed += [Group("authors", "mnist", *code) for code in codes]
    for seed in SEEDS:
        listed += [
            Group("full", "banking77", "SignBits", 384, seed),
            Group("unseen", "banking77", "SignBits", 384, seed),
        ]
        listed += [Group("unseen", dataset, "ITQ", 64, seed) for dataset in IMAGES]
        for protocol in ("drift", "quadruplets", "clicks"):
            listed += [Group(protocol, dataset, "ITQ", 64, seed) for dataset in IMAGES[:2]]
        listed += [Group("acdv", "mnist", hasher, n_bits, seed) for hasher in HASHERS for n_bits in LENGTHS]
    listed += [Group("picture", "mnist", hasher, n_bits, 0) for hasher in HASHERS for n_bits in LENGTHS]
    listed += [Group("timing", "mnist", "ITQ", 64, 0)]
    order = (*IMAGES, "banking77")
    return sorted(listed, key=lambda group: order.index(group.dataset))
