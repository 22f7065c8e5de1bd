"""Sections of the report about learned codes: beside published figures, what weights add, times, and the stream."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import numpy as np

from experiments import stream
from experiments.learned_codes import DEPTH, RANKINGS
from experiments.plan import LEARNED_HASHERS, PUBLISHED_HASHERS, PUBLISHED_LENGTHS
from experiments.tables import MISSING, Results, bold_best, markdown, short

# What the report says of a protocol and data set without any cell.
NOT_COMPUTED = "Not computed yet; `make reproduce` does."
PUBLISHED = Path(__file__).parent / "published.csv"


def beside_published(results: Results, dataset: str) -> str:
    """Set our MAP beside the published one; the difference where it exceeds .03 is bold."""
    with open(PUBLISHED, newline="", encoding="utf-8") as file:
        theirs = {(r["dataset"], r["hasher"], int(r["n_bits"])): float(r["map"]) for r in csv.DictReader(file)}
    rows = []
    for hasher in PUBLISHED_HASHERS:
        if ("published", dataset, hasher, PUBLISHED_LENGTHS[0]) not in results.n_seeds:
            continue
        row = []
        for n_bits in PUBLISHED_LENGTHS:
            key = ("published", dataset, hasher, n_bits, "Hamming")
            ours, their = results.mean(*key), theirs.get((dataset, hasher, n_bits))
            text = results.show(*key)
            if ours is not None:
                if their is not None:
                    gap = f"{ours - their:+.3f}"
                    text += f" / {short(their)} ({f'**{gap}**' if abs(ours - their) > 0.03 else gap})"
                text += f" · {results.show(*key, figure=f'map{DEPTH}')}"
            row.append(text)
        rows.append([hasher, *row])
    return markdown([f"ours / published (difference) · ours within {DEPTH}", *_bits(PUBLISHED_LENGTHS)], rows)


def what_weights_add(results: Results, dataset: str, n_bits: int) -> str:
    """Show MAP · P@10 of every ranking on every hasher's codes; the best of a row is bold."""
    columns = [*(("learned", name) for name in RANKINGS), ("vectors", "QueryVector")]
    rows = []
    for hasher in LEARNED_HASHERS:
        keys = [(protocol, dataset, hasher, n_bits, name) for protocol, name in columns]
        rows.append([hasher, *_map_and_p10(results, keys), _seconds(results, keys[0])])
        if hasher == "MDSH":
            by_eigenvalues = _map_and_p10(results, [("eigenvalues", dataset, hasher, n_bits, "MDSHRanker")])
            rows.append(["MDSH by its own weights", *by_eigenvalues, *[""] * len(columns)])
    header = [f"{n_bits} bits: MAP · P@10", *(name for _, name in columns), "s to fit the hasher"]
    return markdown(header, rows)


def _map_and_p10(results: Results, keys: Sequence[tuple[str, str, str, int, str]]) -> list[str]:
    parts = []
    for figure in ("map", "p10"):
        texts = [results.show(*key, figure=figure) for key in keys]
        parts.append(bold_best(texts, [results.mean(*key, figure=figure) for key in keys]))
    return [MISSING if MISSING in pair[0] else " · ".join(pair) for pair in zip(*parts, strict=True)]


def _seconds(results: Results, key: tuple[str, str, str, int, str]) -> str:
    """CPU seconds that the fit of a hasher takes."""
    seconds = [cell["params"]["hasher_seconds"] for cell in results.by_seed.get(key, {}).values()]
    return f"{mean(seconds):.1f}" if seconds else MISSING


def stream_map(results: Results, dataset: str, n_bits: int) -> str:
    """Show MAP of every learner after each step of the stream."""
    rows = []
    for name in stream.LEARNERS:
        key = ("stream", dataset, "ITQ", n_bits)
        shown = [results.show(*key, f"{name}-step{step}") for step in range(len(stream.N_CLASSES))]
        means = [results.mean(*key, f"{name}-step{step}") for step in range(len(stream.N_CLASSES))]
        present = [value for value in means if value is not None]
        rows.append([name, *shown, short(np.mean(present)) if present else MISSING])
    header = [f"{step}: {n} classes" for step, n in enumerate(stream.N_CLASSES)]
    return markdown(["MAP after step", *header, "mean"], rows)


def stream_cost(results: Results, dataset: str, n_bits: int) -> str:
    """Show what the whole stream costs every learner: CPU seconds, and bytes."""
    rows = []
    for name in stream.LEARNERS:
        totals = stream_totals(results, dataset, n_bits, name)
        rows.append([name, *(MISSING for _ in range(5))] if totals is None else [name, *_shown(totals)])
    header = ["", "s to learn", "s to encode", "MB of vectors read", "MB of codes written", "kB per update to publish"]
    return markdown(header, rows)


def stream_totals(results: Results, dataset: str, n_bits: int, name: str) -> dict[str, list[float]] | None:
    """Costs of each step, means over seeds; None if a step is missing."""
    totals: dict[str, list[float]] = {}
    for step in range(len(stream.N_CLASSES)):
        cells = results.by_seed.get(("stream", dataset, "ITQ", n_bits, f"{name}-step{step}"), {})
        if not cells:
            return None
        for cost in stream.COSTS:
            totals.setdefault(cost, []).append(mean(cell["params"][cost] for cell in cells.values()))
    return totals


def _shown(totals: dict[str, list[float]]) -> list[str]:
    return [
        f"{sum(totals['learn_seconds']):.1f}",
        f"{sum(totals['encode_seconds']):.1f}",
        f"{sum(totals['bytes_read']) / 1e6:.0f}",
        f"{sum(totals['bytes_written']) / 1e6:.1f}",
        f"{totals['bytes_published'][-1] / 1e3:.1f}",
    ]


def _bits(lengths: Sequence[int]) -> list[str]:
    return [f"{n_bits} bits" for n_bits in lengths]
