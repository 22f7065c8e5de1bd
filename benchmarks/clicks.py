"""Learning from clicks of simulated users on the embedded digits, each figure beside its bar.

`python benchmarks/clicks.py [users] [poisoning] [flood] [near] [promotion] [adaptive] [new] [alarm]` runs these parts,
or all, and writes one section per part to benchmarks/results/clicks.json. `--workers N` uses N processes. What is
measured is kept in build/clicks.json: a run that was stopped goes on there; without the file, all is measured anew.

`users`: honest clicks, and 30 % or 100 % of the pages clicked at random. `poisoning`: a fifth of the clients are
vandals, one strategy at a time, for 2000 pages; 1000 honest pages follow. `flood`: one client sends 99 of 100 pages,
once a version is active. `near`: a fifth of the clients click near items of other classes, 16 of 20 places explore.
`promotion`: a tenth of the clients promote one item for one query; 400 honest pages follow. `adaptive`: strategies
written with the defence at hand, by 1, 3, 10, 20 and 30 % of the clients. `new`: a class that arrives after learning.
`alarm`: versions of an operator, bad and good, twenty seeds, until the gate replaces them, and good ones for at least
1000 pages; a summary counts the alarms.

The collection is 5000 digits as ITQ codes of 64 bits, each of which may be a user's query. MAP and P@10 are measured
with 2000 other digits as queries, which users never see, in expectation over ties. Pages are ranked by the active
version, one in twenty by Hamming distance, and every version that was ever active is measured.
"""

import argparse
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
from report import RESULTS, Figure, Report, parse_parts, read_results, write_results
from threadpoolctl import threadpool_limits
from vandals import ADAPTIVE, ATTACKS, NearWrong, Promotion

from bitrank import ITQ, QueryVectorRanker, RankingSVM
from bitrank.clicks import ClickLearner
from bitrank.clicks.learn import CANARY
from bitrank.clicks.simulate import SimulatedUsers
from bitrank.core.codes import distances, unpack
from bitrank.core.metrics import average_precision, precision_at
from bitrank.datasets import digits

UNITS = Path(__file__).parents[1] / "build" / "clicks.json"
Rows = dict[str, dict[str, Any]]
N_CLIENTS, VANDALS = 100, 0.2
CANARY_SHARE = 0.05
GAINS = {1000: (0.045, 0.010), 3000: (0.09, 0.025)}
LOSS, POISONED_LOSS, NEW_LOSS = -0.002, -0.004, -0.01
SURELY_WORSE = -0.15  # in MAP: an operator's version so far behind must raise the alarm before it is replaced, or then


class Digits:
    """A collection of digits as codes, and other digits as queries."""

    def __init__(self, seed: int) -> None:
        images, labels = digits()
        rows = np.random.default_rng(seed).permutation(len(images))
        X = images.reshape(len(images), -1).astype(np.float32) / 255
        items, queries = rows[:5000], rows[5000:7000]
        hasher = ITQ(n_bits=64, random_state=seed).fit(X[items])
        self.codes, self.y = hasher.transform(X[items]), labels[items]
        self.queries, self.query_y = hasher.transform(X[queries]), labels[queries]
        self.hamming = self.figures(None)

    def figures(self, ranker: Any, some: Any = slice(None)) -> np.ndarray:
        """Return MAP and P@10 of some queries."""
        codes, weights = self.queries[some], None
        if ranker is not None:
            codes, weights, _ = ranker.queries_for(codes, collection=self.codes)
        relevant = self.query_y[some][:, None] == self.y
        to_all = distances(codes, self.codes, weights)
        return np.array([average_precision(to_all, relevant).mean(), precision_at(to_all, relevant, 10).mean()])

    def gain(self, ranker: Any) -> np.ndarray:
        """Return the gains over Hamming."""
        return np.zeros(2) if ranker is None else self.figures(ranker) - self.hamming


class Service:
    """What the service does with pages, without HTTP: rank, learn, activate, roll back."""

    def __init__(self, data: Digits, seed: int, given: Any = None) -> None:
        self.data, self.random = data, np.random.default_rng(seed)
        self.learner = ClickLearner(data.codes, secret=bytes([seed]), min_clients=10, random_state=seed)
        self.active, self.version, self.gains, self.first, self.n_alarms = given, 1, [data.gain(given)], 0, 0
        self.first_alarm, self.given = 0, given

    def answer(self, users: SimulatedUsers) -> None:
        """Let users see and click one page."""
        canary = self.active is not self.given and self.random.random() < CANARY_SHARE
        page = users.page(None if canary else self.active)
        self.learner.learn(page, version=CANARY if canary else self.version)
        if self.learner.due:
            decision = self.learner.decide(self.active, self.version)
            if decision.alarm and self.active is not None:
                self.n_alarms += 1
                self.first_alarm = self.first_alarm or self.learner.n_pages
            if decision.alarm and self.active is not self.given:
                self._activate(None)
            elif decision.activate:
                self.first = self.first or self.learner.n_pages
                self._activate(self.learner.candidate)

    def _activate(self, ranker: Any) -> None:
        self.active, self.version = ranker, self.version + 1
        self.gains.append(self.data.gain(ranker))


def users(seed: int, share: str) -> Rows:
    """Learn from honest clicks, or from pages of which a share is clicked at random."""
    data = Digits(seed)
    at_random = float(share.partition("%")[0]) / 100
    people = SimulatedUsers(data.codes, data.y, at_random=at_random, n_clients=N_CLIENTS, random_state=seed)
    service, rows = Service(data, seed), {}
    for number in range(1, max(GAINS) + 1):
        service.answer(people)
        if number in GAINS:
            bars = (LOSS, LOSS) if at_random else GAINS[number]
            least = np.min(service.gains, axis=0)
            rows[f"{share}, {number} pages"] = {
                "hamming_map": data.hamming[0],
                "hamming_p10": data.hamming[1],
                "map_gain": Figure(service.gains[-1][0], least=bars[0]),
                "p10_gain": Figure(service.gains[-1][1], least=bars[1]),
                "least_map_gain": Figure(least[0], least=LOSS),
                "least_p10_gain": Figure(least[1], least=LOSS),
                "activations": len(service.gains) - 1,
                "first_activation": service.first,
                "alarms": service.n_alarms,
            }
    return rows


def mixed(seed: int, people: SimulatedUsers, vandals: SimulatedUsers, share: float, n_pages: int) -> Service:
    """Answer pages, a share of them by vandals."""
    service, random = Service(Digits(seed), seed), np.random.default_rng(seed)
    for _ in range(n_pages):
        service.answer(vandals if random.random() < share else people)
    return service


def left_out(service: Service, name: str) -> int:
    return sum(client.startswith(name) for client in service.learner.dropped)


def poisoning(seed: int, name: str, attacked: int = 2000, after: int = 1000) -> Rows:
    """Let a fifth of the clients attack, then stop."""
    data, n_vandals = Digits(seed), round(VANDALS * N_CLIENTS)
    people = SimulatedUsers(data.codes, data.y, n_clients=N_CLIENTS - n_vandals, random_state=seed)
    attack = ATTACKS.get(name)
    vandals = people if attack is None else attack(data.codes, data.y, n_clients=n_vandals, random_state=seed)
    service = mixed(seed, people, vandals, VANDALS, attacked)
    during, least = service.gains[-1], np.min(service.gains, axis=0)
    for _ in range(after):
        service.answer(people)
    row = {
        "map_gain": during[0],
        "p10_gain": during[1],
        "least_map_gain": Figure(least[0], least=POISONED_LOSS),
        "least_p10_gain": Figure(least[1], least=POISONED_LOSS),
        "healed_map_gain": service.gains[-1][0],
        "healed_p10_gain": service.gains[-1][1],
        "vandals_left_out": left_out(service, "vandal"),
        "users_left_out": left_out(service, "user"),
        "alarms": service.n_alarms,
    }
    return {name: row}


def flood(seed: int, name: str, flooded: int = 4000, after: int = 300) -> Rows:
    """Let honest users teach until a version is active, then let one client send 99 of 100 pages, then stop."""
    data = Digits(seed)
    people = SimulatedUsers(data.codes, data.y, n_clients=N_CLIENTS, random_state=seed)
    vandal = ATTACKS["useless bits"](data.codes, data.y, n_clients=1, random_state=seed)
    service = Service(data, seed)
    while not service.first:
        service.answer(people)
    before, n_before, n_looks = service.gains[-1], len(service.gains), service.learner.n_looks
    for number in range(flooded):
        service.answer(vandal if number % 100 else people)
    share, n_flooded = service.learner.teachers.get("vandal 0", 0.0), len(service.gains)
    for _ in range(after):
        service.answer(people)
    least = np.min(service.gains[n_before:] or [before], axis=0) - before
    row = {
        "map_gain_before": before[0],
        "p10_gain_before": before[1],
        "versions_during": n_flooded - n_before,
        "versions_after": len(service.gains) - n_flooded,
        "decisions": service.learner.n_looks - n_looks,
        "least_map_gain": Figure(least[0], least=POISONED_LOSS),
        "least_p10_gain": Figure(least[1], least=POISONED_LOSS),
        "rollbacks": Figure(service.n_alarms, most=0),
        "share": Figure(share, most=0.02),
    }
    return {name: row}


def near(seed: int, name: str, n_pages: int = 2000) -> Rows:
    """Let a fifth of the clients click near items of other classes, where most places explore."""
    data, n_vandals = Digits(seed), round(VANDALS * N_CLIENTS)
    options = {"n_explored": 16, "random_state": seed}
    people = SimulatedUsers(data.codes, data.y, n_clients=N_CLIENTS - n_vandals, **options)
    vandals = people if name == "none" else NearWrong(data.codes, data.y, n_clients=n_vandals, **options)
    service = mixed(seed, people, vandals, VANDALS, n_pages)
    row = {
        "map_gain": service.gains[-1][0],
        "p10_gain": service.gains[-1][1],
        "vandals_left_out": left_out(service, "vandal"),
        "users_left_out": left_out(service, "user"),
    }
    return {name: row}


def promotion(seed: int, name: str, attacked: int = 1500, after: int = 400) -> Rows:
    """Let a tenth of the clients promote one item for one query."""
    data = Digits(seed)
    people = SimulatedUsers(data.codes, data.y, n_clients=90, random_state=seed)
    vandals = Promotion(data.codes, data.y, n_clients=10, random_state=seed)
    service = mixed(seed, people, vandals, 0.1, attacked)
    during = vandals.rank(vandals.query, service.learner.candidate)
    for _ in range(after):
        service.answer(people)
    service.learner.update()
    row = {
        "rank_before": vandals.rank(vandals.query, None),
        "rank": Figure(during, least=20),
        "rank_after": Figure(vandals.rank(vandals.query, service.learner.candidate), least=20),
    }
    return {name: row}


def adaptive(seed: int, name: str, n_pages: int = 1500) -> Rows:
    """Let more and more clients follow strategies that know the defence."""
    data, (strategy, _, percent) = Digits(seed), name.partition(", ")
    n_vandals = int(percent.rstrip("%"))
    people = SimulatedUsers(data.codes, data.y, n_clients=N_CLIENTS - n_vandals, random_state=seed)
    vandals = ADAPTIVE[strategy](data.codes, data.y, n_clients=n_vandals, random_state=seed)
    service = mixed(seed, people, vandals, n_vandals / N_CLIENTS, n_pages)
    service.learner.update()
    least = np.min(service.gains, axis=0)
    row: dict[str, Any] = {
        "map_gain": service.gains[-1][0],
        "p10_gain": service.gains[-1][1],
        "least_map_gain": least[0],
    }
    if isinstance(vandals, Promotion):
        ranks = [vandals.rank(int(query), service.learner.candidate) for query in vandals.near]
        row["rank_before"] = np.median([vandals.rank(int(query), None) for query in vandals.near])
        row |= {"rank": np.median(ranks), "in_first_20": np.mean(np.array(ranks) <= 20)}
    return {name: row | {"vandals_left_out": left_out(service, "vandal")}}


def new(seed: int, name: str, n_pages: int = 2000) -> Rows:
    """Learn from pages of nine digits, then search for the tenth."""
    data = Digits(seed)
    known = data.y != seed % 10
    people = SimulatedUsers(data.codes[known], data.y[known], random_state=seed)
    learner = ClickLearner(data.codes[known], secret=bytes([seed]), random_state=seed)
    for _ in range(n_pages):
        learner.learn(people.page())
    learner.decide()
    rows = {}
    for which, some in (("new", data.query_y == seed % 10), ("known", data.query_y != seed % 10)):
        gain = data.figures(learner.candidate, some) - data.figures(None, some)
        bar = {"least": NEW_LOSS} if which == "new" else {}
        rows[f"{which} {name}"] = {"map_gain": Figure(gain[0], **bar), "p10_gain": Figure(gain[1], **bar)}
    return rows


def operator(data: Digits, seed: int, name: str) -> Any:
    """Return a version that an operator may have activated: four rank worse than Hamming, and three do not."""
    bits = unpack(data.codes, 64)
    telling = np.array([bits[data.y == label].mean(axis=0) for label in np.unique(data.y)]).std(axis=0).argsort()
    random = np.random.default_rng(seed)
    some, half = random.permutation(len(data.y))[:1000], random.permutation(64)[:32]
    chosen = {"one bit": telling[:1], "24 bits": telling[:24], "random half": half}
    if name in chosen:
        return RankingSVM.from_weights(np.isin(np.arange(64), chosen[name]).astype(float))
    if name == "nearly Hamming":
        return RankingSVM.from_weights(1 + random.random(64) / 5)
    labels = data.y[some] % 2 if name == "a lost taste" else data.y[some]
    ranker = RankingSVM if name == "RankingSVM" else QueryVectorRanker
    return ranker(random_state=seed).fit(data.codes[some], labels)


def alarm(seed: int, name: str, n_pages: int = 1000) -> Rows:
    """Rank pages by an operator's version until the gate replaces it; one that beats Hamming, for at least so many."""
    data = Digits(seed)
    people = SimulatedUsers(data.codes, data.y, n_clients=N_CLIENTS, random_state=seed)
    service = Service(data, seed, operator(data, seed, name))
    gain = service.gains[0]
    while not service.first or (gain[0] >= 0 and service.learner.n_pages < n_pages):
        service.answer(people)
    row: dict[str, Any] = {"map_gain": gain[0], "p10_gain": gain[1]}
    row |= {"replaced": service.first, "first_alarm": service.first_alarm}
    if gain[0] < SURELY_WORSE:
        row["in_time"] = Figure(service.first_alarm > 0, least=1)
    elif gain[0] >= 0:
        row["alarms"] = Figure(service.n_alarms, most=0)
    return {name: row}


def beside_honest(rows: Rows, healed: bool) -> None:
    """Give figures under attack their bars: half of the honest gain of the same seed, and all of it afterwards."""
    honest = {name: dict(row) for name, row in rows.items() if name.startswith("none, ")}
    for name, row in rows.items():
        reference = honest[f"none, {name.rpartition(', ')[2]}"]
        for key in ("map_gain", "p10_gain"):
            row[key] = Figure(row[key], least=0.5 * reference[key])
            if healed:
                row[f"healed_{key}"] = Figure(row[f"healed_{key}"], least=reference[key])


OPERATORS = ("one bit", "a lost taste", "24 bits", "random half", "nearly Hamming", "RankingSVM", "QueryVectorRanker")
PARTS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "users": (users, ("0% at random", "30% at random", "100% at random")),
    "poisoning": (poisoning, ("none", *ATTACKS)),
    "flood": (flood, ("one client",)),
    "near": (near, ("none", "near items of other classes")),
    "promotion": (promotion, ("one item for one query",)),
    "adaptive": (adaptive, tuple(f"{name}, {n}%" for name in ADAPTIVE for n in (1, 3, 10, 20, 30))),
    "new": (new, ("classes",)),
    "alarm": (alarm, OPERATORS),
}
SEEDS = {"alarm": 20}


def summarize_alarms(report: Report) -> None:
    """Print per version in how many seeds an alarm rang, and when."""
    for name in OPERATORS:
        rows = [row for title, row in report.rows.items() if title.startswith(f"{name}, ")]
        column = {key: np.array([row[key].value for row in rows]) for key in ("map_gain", "replaced", "first_alarm")}
        rang = column["first_alarm"][column["first_alarm"] > 0]
        print(
            f"{name}: MAP {column['map_gain'].min():+.3f} to {column['map_gain'].max():+.3f}, an alarm with "
            f"{len(rang)} of {len(rows)} seeds, after {np.median(rang) if len(rang) else np.nan:.0f} pages (median), "
            f"replaced after {np.median(column['replaced']):.0f}"
        )


def measure(part: str, name: str, seed: int) -> Rows:
    """Run one unit; its rows say the seed."""
    with threadpool_limits(1):  # as in the service
        return {f"{row}, seed {seed}": figures for row, figures in PARTS[part][0](seed, name).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, help="collections and users (default: 3; 20 for alarm)")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--units", type=Path, default=UNITS, help="file of what is measured (default: %(default)s)")
    options = parse_parts(parser, PARTS)
    units = [
        (part, name, seed)
        for part in options.parts
        for seed in range(options.first_seed, options.first_seed + (options.seeds or SEEDS.get(part, 3)))
        for name in PARTS[part][1]
    ]
    done: dict[str, Any] = read_results(options.units)
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(measure, *unit): unit for unit in units if str(unit) not in done}
        for future in as_completed(running):
            rows = {
                row: {key: list(f) if isinstance(f, Figure) else float(f) for key, f in figures.items()}
                for row, figures in future.result().items()
            }
            done[str(running[future])] = rows
            print(*running[future], rows, flush=True)
            write_results(options.units, done)
    for part in options.parts:
        report, rows = Report(part), {}
        for unit in units:
            if unit[0] == part:
                for row, figures in done[str(unit)].items():
                    rows[row] = {key: Figure(*f) if isinstance(f, list) else f for key, f in figures.items()}
        if part in ("poisoning", "near"):
            beside_honest(rows, healed=part == "poisoning")
        for row, figures in rows.items():
            report.add(row, **figures)
        report.summarize()
        if part == "alarm":
            summarize_alarms(report)
        report.save(RESULTS / "clicks.json")


if __name__ == "__main__":
    main()
