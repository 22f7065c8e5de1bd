"""Write the report: ``python -m experiments.report`` reads the cells and writes docs/results.md and its pictures.

It computes means and deviations over seeds, and prints "missing" for a cell that is not stored.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, pstdev

from bitrank.core.files import replacing
from experiments import cells, figures, learned_report
from experiments.plan import HASHERS, IMAGES, LEARNED_LENGTHS, LENGTHS, QUICK_HASHERS, groups
from experiments.protocols import CLICK_C, PAGES, QUADRUPLETS, SLOTS, STEPS, UNSEEN, rankings_of
from experiments.tables import (
    MISSING,
    Results,
    beside_paper,
    bold_best,
    every_ranking,
    goals,
    markdown,
    source,
)

DOCS = Path(__file__).parents[1] / "docs"
TEXT = Path(__file__).parent / "text"


class Page:
    """A page under construction, and the folder of its pictures."""

    def __init__(self, results: Results, output: Path, quick: bool) -> None:
        self.results, self.pictures, self.parts = results, output / "pictures", [_text("opening")]
        self.images = ("digits",) if quick else IMAGES
        self.large = self.images[:2]
        self.hashers, self.lengths = (QUICK_HASHERS, (32,)) if quick else (HASHERS, LENGTHS)
        self.quick = quick

    def add(self, *parts: str) -> None:
        """Add paragraphs."""
        self.parts += parts

    def picture(self, drawn: bool, name: str, title: str, source: str) -> None:
        """Add a picture, or say that it is missing."""
        self.add(f"![{title}](pictures/{name})" if drawn else f"{title}: {MISSING}.", source)

    def write(self, path: Path) -> None:
        """Write all paragraphs to a file."""
        _write(path, [part.strip() for part in self.parts if part.strip()])


def _write(path: Path, paragraphs: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(("\n\n".join(paragraphs) + "\n").encode())


def _text(name: str) -> str:
    return (TEXT / f"{name}.md").read_text(encoding="utf-8")


def write_report(folder: Path, output: Path, quick: bool = False) -> None:
    """Write results.md, its pictures, and readme.md with the README's picture and table."""
    plan = "quick" if quick else "reproduce"
    results = Results(folder, plan)
    page = Page(results, output, quick)
    planned = {group: rankings_of(group.protocol, group.dataset) for group in groups(plan)}
    n_all = sum(map(len, planned.values()))
    n_missing = sum(len(cells.missing(results.cells, group, names, None)) for group, names in planned.items())
    last = cells.read_run(folder)
    ran = "The last run computed {cells} of them in {minutes} minutes with {workers} processes on {cores} cores."
    page.add(f"{n_all - n_missing} of {n_all} cells are present. {ran.format(**last) if last else ''}")
    drawn = figures.map_by_bits(results, page.pictures / "map_by_bits.png", page.images)
    title = "MAP against the number of bits, codes of ITQ"
    page.picture(drawn, "map_by_bits.png", title, source("full", "<dataset>"))
    if not quick:
        page.add("## Goals", markdown(["goal", "result"], goals(results)))
    _maps(page)
    _acdv(page)
    _online(page)
    _questions(page)
    _learned(page)
    page.write(output / "results.md")
    fragment = [f"![{title}](docs/pictures/map_by_bits.png)", readme_table(results, page.images, quick)]
    _write(folder / "readme.md", fragment)


def readme_table(results: Results, images: tuple[str, ...], quick: bool) -> str:
    """Return the README's table: MAP and P@10 of the main rankings with ITQ on every data set."""
    n_bits = 32 if quick else 64
    columns = [("full", dataset, "ITQ", n_bits) for dataset in images]
    columns += [] if quick else [("full", "banking77", "SignBits", 384)]
    names = ("Hamming", "asymmetric", "RankingSVM", "QueryAdaptive", "QueryVector")
    shown = []
    for key in columns:
        parts = []
        for figure in ("map", "p10"):
            means = [results.mean(*key, name, figure=figure) for name in names]
            parts.append(bold_best([results.show(*key, name, figure=figure) for name in names], means))
        shown.append([" · ".join(pair) for pair in zip(*parts, strict=True)])
    header = ["MAP · P@10", *(f"{figures.TITLES[key[1]]}, {key[2]} {key[3]}" for key in columns)]
    return markdown(header, [[name, *(column[i] for column in shown)] for i, name in enumerate(names)])


def _maps(page: Page) -> None:
    """Add the tables of MAP and the PR curves."""
    listed = [("full", dataset) for dataset in page.images] + ([] if page.quick else [("authors", "mnist")])
    for protocol, dataset in listed:
        page.add(f"## {figures.TITLES[dataset]}, {protocol} protocol", _sizes(page.results, protocol, dataset))
        if not page.quick:
            figure, name = ("voc11", "VOC-11") if protocol == "full" else ("authors_map", "authors_map")
            page.add(f"### Beside the paper: {name}", beside_paper(page.results, protocol, dataset, figure))
            page.add(source(protocol, dataset) + " The paper's values: `experiments/paper.csv`.")
            page.add(_text(f"{dataset}-{protocol}"))
        table = every_ranking(
            page.results, protocol, dataset, page.hashers, page.lengths, rankings_of(protocol, dataset)
        )
        page.add("### Every ranking: MAP ± deviation over seeds · P@10 · P@100", table, source(protocol, dataset))
        name = f"pr_{dataset}_{protocol}.png"
        drawn = figures.pr_curves(page.results, page.pictures / name, dataset, protocol)
        page.picture(drawn, name, f"PR curves, {dataset}", source(protocol, dataset))
    if not page.quick:
        page.add("## Text: banking77, full protocol", _sizes(page.results, "full", "banking77"))
        page.add(
            every_ranking(page.results, "full", "banking77", ("SignBits",), (384,), rankings_of("full", "banking77"))
        )
        page.add(source("full", "banking77"), _text("banking77"))


def _sizes(results: Results, protocol: str, dataset: str) -> str:
    params = results.params(protocol, dataset)
    if not params:
        return f"All cells are {MISSING}."
    return "{n_queries} queries among {n_items} items; learned from {n_train} rows.".format(**params)


def _acdv(page: Page) -> None:
    """Add Table 1 and the pictures of code differences."""
    dataset = page.images[0]
    paper = {"LSH": "71.3", "SH": "83.5", "ITQ": "85.7"}
    lengths = (64,) if page.quick else LENGTHS
    rows = []
    for hasher in HASHERS:
        rows.append([hasher])
        for n_bits in lengths:
            values = page.results.values("acdv", dataset, hasher, n_bits, "linear-SVM", figure="accuracy")
            rows[-1].append(f"{100 * mean(values):.1f} ±{100 * pstdev(values):.1f}" if values else MISSING)
        rows[-1].append(paper.get(hasher, "–"))
    page.add("## Table 1: code differences classified by a linear SVM", _text("acdv"))
    header = ["accuracy, %", *(f"{n_bits} bits" for n_bits in lengths), "paper's, 64 bits"]
    page.add(markdown(header, rows), source("acdv", dataset))
    drawn = figures.acdv(page.results, page.pictures / "acdv.png", dataset)
    title = "Differences of 32-bit ITQ codes: same class, different classes"
    page.picture(drawn, "acdv.png", title, source("picture", dataset))
    if not page.quick:
        drawn = figures.acdv_rates(page.results, page.pictures / "acdv_rates.png", dataset)
        title = "How often each bit differs, for every hasher and length"
        page.picture(drawn, "acdv_rates.png", title, source("picture", dataset))


def _online(page: Page) -> None:
    """Add the picture at 32 bits, as in the paper, and the table of all lengths."""
    page.add("## Online against offline", _text("online"))
    drawn = figures.online(page.results, page.pictures / "online.png", page.images)
    title = "MAP of online and offline learning, 32 bits"
    page.picture(drawn, "online.png", title, source("full", "<dataset>"))
    rows = []
    for dataset in page.images:
        for hasher in page.hashers:
            keys = [("full", dataset, hasher, n_bits) for n_bits in page.lengths]
            shown = [[page.results.show(*key, name) for name in ("RankingSVM", "Online")] for key in keys]
            rows.append([figures.TITLES[dataset], hasher, *(" / ".join(pair) for pair in shown)])
    header = ["MAP, offline / online", "", *(f"{n_bits} bits" for n_bits in page.lengths)]
    page.add(markdown(header, rows), source("full", "<dataset>"))


def _questions(page: Page) -> None:
    """Add the questions that the paper leaves open."""
    if not page.quick:
        _unseen(page)
        steps = {f"step {step}": step for step in STEPS}
        names = ("Hamming", "frozen", "online", "retrained")
        rankings = {name: [f"{name}-step{step}" for step in STEPS] for name in names}
        _question(page, "drift", "Drift: the collection doubles", list(steps), rankings, figures.drift)
        names = ("paper-exact", "RankingSVM")
        rankings = {name: [f"{name}-n{n}" for n in QUADRUPLETS] for name in names}
        _question(page, "quadruplets", "How many quadruplets", QUADRUPLETS, rankings, figures.quadruplets)
    n_bits = 32 if page.quick else 64
    rankings = {
        f"{slots} explored, C={c}": [f"explore{slots}-C{c}-pages{p}" for p in PAGES] for c in CLICK_C for slots in SLOTS
    }

    def draw(results: Results, path: Path, datasets: tuple[str, ...]) -> bool:
        return figures.clicks(results, path, datasets, n_bits)

    _question(page, "clicks", "Clicks", [f"{p} pages" for p in PAGES], rankings, draw, n_bits)


def _unseen(page: Page) -> None:
    page.add("## Classes not seen in training", _text("unseen"))
    for dataset in (*IMAGES, "banking77"):
        hasher, n_bits = ("SignBits", 384) if dataset == "banking77" else ("ITQ", 64)
        table = every_ranking(page.results, "unseen", dataset, (hasher,), (n_bits,), UNSEEN)
        page.add(f"### {figures.TITLES[dataset]}", table, source("unseen", dataset))


def _question(
    page: Page,
    protocol: str,
    title: str,
    columns: Sequence[object],
    rankings: dict[str, list[str]],
    draw: Callable[[Results, Path, tuple[str, ...]], bool],
    n_bits: int = 64,
) -> None:
    """Add a question with its picture and its tables of MAP · P@10 · P@100."""
    page.add(f"## {title}", _text(protocol))
    drawn = draw(page.results, page.pictures / f"{protocol}.png", page.large)
    page.picture(drawn, f"{protocol}.png", title, source(protocol, "<dataset>"))
    for dataset in page.large:
        rows = []
        for name, names in rankings.items():
            row = []
            for ranking in names:
                key = (protocol, dataset, "ITQ", n_bits, ranking)
                texts = [page.results.show(*key, figure=figure) for figure in ("map", "p10", "p100")]
                row.append(MISSING if MISSING in texts else " · ".join(texts))
            rows.append([name, *row])
        page.add(f"### {figures.TITLES[dataset]}: MAP · P@10 · P@100", markdown(["", *columns], rows))
        page.add(source(protocol, dataset))


def _learned(page: Page) -> None:
    """Add learned codes: beside published figures, what weights add to them, times, and the stream."""
    results, n_bits = page.results, 32 if page.quick else 64
    if not page.quick:
        page.add("## Learned codes beside published figures", _text("published"))
        for dataset in page.large:
            table = learned_report.beside_published(results, dataset)
            sources = source("published", dataset) + " Published: `experiments/published.csv`."
            _computed(page, "published", dataset, f"{figures.TITLES[dataset]}, published", table, sources)
    page.add("## What weights add to learned codes", _text("learned"))
    for dataset in page.large:
        lengths = (n_bits,) if page.quick else LEARNED_LENGTHS
        tables = [learned_report.what_weights_add(results, dataset, length) for length in lengths]
        sources = source("learned", dataset) + f" Query vectors: `vectors-{dataset}.jsonl`."
        _computed(page, "learned", dataset, f"{figures.TITLES[dataset]}, learned codes", *tables, sources)
    page.add("## Online against online: a stream with new classes", _text("stream"))
    streamed = [dataset for dataset in page.large if results.params("stream", dataset)]
    drawn = bool(streamed) and figures.stream(results, page.pictures / "stream.png", streamed, n_bits)
    page.picture(drawn, "stream.png", "MAP and cost while classes appear", source("stream", "<dataset>"))
    for dataset in page.large:
        tables = [learned_report.stream_map(results, dataset, n_bits), "The whole stream costs:"]
        tables += [learned_report.stream_cost(results, dataset, n_bits), source("stream", dataset)]
        _computed(page, "stream", dataset, f"{figures.TITLES[dataset]}, stream", *tables)


def _computed(page: Page, protocol: str, dataset: str, title: str, *parts: str) -> None:
    """Add a section, or say that none of its cells is computed."""
    page.add(f"### {title}", *(parts if page.results.params(protocol, dataset) else (learned_report.NOT_COMPUTED,)))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=cells.RESULTS, help="folder of the results")
    parser.add_argument("--output", type=Path, default=DOCS, help="folder of results.md and pictures/")
    parser.add_argument("--plan", choices=("reproduce", "quick"), default="reproduce")
    options = parser.parse_args(arguments)
    write_report(options.results, options.output, options.plan == "quick")
    print(options.output / "results.md")


if __name__ == "__main__":
    main()
