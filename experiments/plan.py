"""What is run: the groups of cells of `make reproduce` and of `make reproduce-quick`.

A group is one set of codes (protocol, data set, hasher, length, seed); its cells are the rankings compared on them.
"""

from __future__ import annotations

from typing import NamedTuple

HASHERS = ("LSH", "SH", "ISOH", "ITQ")
LEARNED_HASHERS = ("MDSH", "BRE", "BRE-labels", "RSH", "OKH", "MLH", "KSH")
PUBLISHED_HASHERS = ("LSH", "SH", "ITQ", "BRE-labels", "MLH", "KSH")
PUBLISHED_LENGTHS = (12, 24, 32, 48)
LEARNED_LENGTHS = (16, 32, 64, 128)
QUICK_HASHERS = ("LSH", "ITQ")
LENGTHS = (16, 32, 64, 96, 128)
SEEDS = (0, 1, 2)
IMAGES = ("mnist", "cifar10", "youtube_faces")


class Group(NamedTuple):
    """One set of codes, on which several rankings are measured."""

    protocol: str
    dataset: str
    hasher: str
    n_bits: int
    seed: int

    def __str__(self) -> str:
        return f"{self.protocol}/{self.dataset}/{self.hasher}-{self.n_bits}-{self.seed}"


def groups(plan: str) -> list[Group]:
    """List the groups of a plan, sorted by data set, since a worker keeps one data set in memory.

    Examples
    --------
    >>> len(groups("reproduce")) > len(groups("quick"))
    True
    """
    if plan == "quick":
        return [
            *(Group("full", "digits", hasher, 32, seed) for seed in (0, 1) for hasher in QUICK_HASHERS),
            *(Group("acdv", "digits", hasher, 64, seed) for hasher in HASHERS for seed in (0, 1)),
            *(Group("clicks", "digits", "ITQ", 32, seed) for seed in (0, 1)),
            *(Group("learned", "digits", hasher, 32, 0) for hasher in LEARNED_HASHERS),
            Group("stream", "digits", "ITQ", 32, 0),
            Group("picture", "digits", "ITQ", 32, 0),
        ]
    if plan != "reproduce":
        raise ValueError(f'plan must be "reproduce" or "quick", got {plan!r}')
    codes = [(hasher, n_bits, seed) for hasher in HASHERS for n_bits in LENGTHS for seed in SEEDS]
    listed = [Group("full", dataset, *code) for dataset in IMAGES for code in codes]
    listed += [Group("authors", "mnist", *code) for code in codes]
    for seed in SEEDS:
        listed += [Group(protocol, "banking77", "SignBits", 384, seed) for protocol in ("full", "unseen")]
        listed += [Group("unseen", dataset, "ITQ", 64, seed) for dataset in IMAGES]
        for protocol in ("drift", "quadruplets", "clicks"):
            listed += [Group(protocol, dataset, "ITQ", 64, seed) for dataset in IMAGES[:2]]
        listed += [Group("acdv", "mnist", hasher, n_bits, seed) for hasher in HASHERS for n_bits in LENGTHS]
    listed += [Group("picture", "mnist", hasher, n_bits, 0) for hasher in HASHERS for n_bits in LENGTHS]
    listed += [Group("timing", "mnist", "ITQ", 64, 0)]
    listed += _learned_groups()
    order = (*IMAGES, "banking77")
    return sorted(listed, key=lambda group: order.index(group.dataset))


def _learned_groups() -> list[Group]:
    """List the groups of learned codes and of the stream, with one seed."""
    listed = []
    for dataset in IMAGES[:2]:
        codes = [(hasher, n_bits, 0) for hasher in LEARNED_HASHERS for n_bits in LEARNED_LENGTHS]
        listed += [Group(protocol, dataset, *code) for protocol in ("learned", "vectors") for code in codes]
        listed += [Group("eigenvalues", dataset, "MDSH", n_bits, 0) for n_bits in LEARNED_LENGTHS]
        hashers = PUBLISHED_HASHERS if dataset == "mnist" else PUBLISHED_HASHERS[2:]  # as far as published
        listed += [Group("published", dataset, h, n_bits, 0) for h in hashers for n_bits in PUBLISHED_LENGTHS]
        listed += [Group("stream", dataset, "ITQ", 64, 0)]
    return listed
