"""How far MAP and P@10 move between processors: the tables of docs/results.md, computed with each kernel of BLAS.

`python benchmarks/processors.py [readme] [codes]` runs these parts, or all, prints how far each figure moves beside its
bar, and writes one section per part to benchmarks/results/processors.json. Data: docs/data.md.

readme: the rankings of README's table on its data sets.
codes: the rankings that learn no more than weights of bits, with the four hashers of the paper.
Each kernel of OpenBLAS that this processor runs computes the same cells, in a process of its own; a figure moves by the
largest difference between two of them, of its mean over `--seeds`. `one_seed` is the largest move of a single seed, and
a row of codes shows the ranking that moves most.
"""

import argparse
import contextlib
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from report import RESULTS, Figure, Report, parse_parts
from threadpoolctl import threadpool_info

sys.path.append(str(Path(__file__).parents[1]))

from experiments.data import load
from experiments.plan import HASHERS, Group
from experiments.protocols import compare

KERNELS = ("Haswell", "Prescott", "SkylakeX", "Zen", "Sapphirerapids", "NEOVERSEN1", "ARMV8")
README = {
    "digits": ("ITQ", 32),
    "mnist": ("ITQ", 64),
    "cifar10": ("ITQ", 64),
    "youtube_faces": ("ITQ", 64),
    "banking77": ("SignBits", 384),
}
README_RANKINGS = ["Hamming", "asymmetric", "RankingSVM", "QueryAdaptive", "QueryVector"]
CODES_RANKINGS = ["Hamming", "WhRank-adaptive", "asymmetric", "paper-exact"]
MOST = 0.003


def architecture() -> str:
    """The kernel that the BLAS of this process has loaded, once it has multiplied."""
    np.linalg.svd(np.random.default_rng(0).normal(size=(300, 300)))
    return "+".join(sorted({pool["architecture"] for pool in threadpool_info() if "architecture" in pool}))


def cells(group: Group, rankings: list[str]) -> np.ndarray:
    """MAP and P@10 of each ranking."""
    records = dict(compare(group, rankings, load(group.dataset)))
    return np.array([[records[name]["figures"][figure] for figure in ("map", "p10")] for name in rankings])


def start_pools() -> dict[str, ProcessPoolExecutor]:
    """One process per kernel of BLAS that this processor runs; names that load the same kernel are one."""
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    pools: dict[str, ProcessPoolExecutor] = {}
    loaded = set()
    for name in KERNELS:
        os.environ["OPENBLAS_CORETYPE"] = name
        pool = ProcessPoolExecutor(1, get_context("spawn"))
        with contextlib.suppress(BrokenProcessPool):  # this processor cannot run it
            if (kernel := pool.submit(architecture).result()) not in loaded:
                loaded.add(kernel)
                pools[name] = pool
                continue
        pool.shutdown()
    return pools


def measure(pools: dict[str, ProcessPoolExecutor], groups: list[Group], rankings: list[str]) -> np.ndarray:
    """MAP and P@10, of shape (kernels, seeds, rankings, 2)."""
    futures = [[pool.submit(cells, group, rankings) for group in groups] for pool in pools.values()]
    return np.array([[future.result() for future in of_kernel] for of_kernel in futures])


def moves(figures: np.ndarray) -> dict[str, Figure | float]:
    """The largest moves between kernels, of means over seeds and of one seed, over all other axes."""
    of_means = np.ptp(figures.mean(axis=1), axis=0).reshape(-1, 2).max(axis=0)
    names = ("map_moves", "p10_moves")
    row = {name: Figure(float(move), most=MOST) for name, move in zip(names, of_means, strict=True)}
    return {**row, "one_seed": np.ptp(figures, axis=0).max()}


def readme(report: Report, pools: dict[str, ProcessPoolExecutor], options: argparse.Namespace) -> None:
    for dataset in options.sets:
        groups = [Group("full", dataset, *README[dataset], seed) for seed in options.seeds]
        figures = measure(pools, groups, README_RANKINGS)
        for place, ranking in enumerate(README_RANKINGS):
            maps = {f"map_{name}": figures[row, :, place, 0].mean() for row, name in enumerate(pools)}
            report.add(f"{dataset}, {ranking}", **maps, **moves(figures[:, :, place]))


def codes(report: Report, pools: dict[str, ProcessPoolExecutor], options: argparse.Namespace) -> None:
    for dataset in (name for name in options.sets if name != "banking77"):
        for hasher in HASHERS:
            for n_bits in options.lengths:
                groups = [Group("full", dataset, hasher, n_bits, seed) for seed in options.seeds]
                report.add(f"{dataset}, {hasher}-{n_bits}", **moves(measure(pools, groups, CODES_RANKINGS)))


PARTS = {"readme": readme, "codes": codes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--sets", nargs="+", choices=README, default=list(README))
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--output", type=Path, default=RESULTS / "processors.json")
    options = parse_parts(parser, PARTS)
    pools = start_pools()
    for part in options.parts:
        report = Report(part)
        PARTS[part](report, pools, options)
        report.summarize()
        report.save(options.output)
    for pool in pools.values():
        pool.shutdown()


if __name__ == "__main__":
    main()
