"""Learning from clicks of simulated users on the embedded digits, each figure beside its bar.

`python benchmarks/clicks.py [users] [poisoning] [flood] [near] [promotion] [adaptive] [new] [alarm]` runs these parts,
or all, and writes one section per part to benchmarks/results/clicks.json. `users`: honest clicks, and 30 % or 100 % of
the pages clicked at random. `poisoning`: a fifth of the clients are vandals, one strategy at a time, for 2000 pages;
1000 honest pages follow. `flood`: one client sends 99 of 100 pages. `near`: a fifth of the clients click near items of
other classes, 16 of 20 places explore. `promotion`: a tenth of the clients promote one item for one query; 400 honest
pages follow. `adaptive`: strategies written with the defence at hand, by 1, 3, 10, 20 and 30 % of the clients.
`new`: a class that arrives after learning. `alarm`: versions of an operator, bad and good, twenty seeds, until the gate
replaces them, and good ones for at least 1000 pages; a summary counts the alarms.

The collection is 5000 digits as ITQ codes of 64 bits, each of which may be a user's query. MAP and P@10 are measured
with 2000 other digits as queries, which users never see, in expectation over ties. Pages are ranked by the active
version, one in twenty by Hamming distance, and every version that was ever active is measured.
"""

import argparse
from typing import Any

import numpy as np
from report import RESULTS, Figure, Report, parse_parts
from threadpoolctl import threadpool_limits
from vandals import ADAPTIVE, ATTACKS, NearWrong, Promotion

from bitrank import ITQ, QueryVectorRanker, RankingSVM
from bitrank.clicks import ClickLearner
from bitrank.clicks.learn import CANARY
from bitrank.clicks.simulate import SimulatedUsers
from bitrank.core.codes import distances, unpack
from bitrank.core.metrics import average_precision, precision_at
from bitrank.datasets import digits

AT_RANDOM = (0.0, 0.3, 1.0)
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


def users(report: Report, seeds: range) -> None:
    """Learn from honest clicks and from clicks at random."""
    for seed in seeds:
        data = Digits(seed)
        for at_random in AT_RANDOM:
            people = SimulatedUsers(data.codes, data.y, at_random=at_random, n_clients=N_CLIENTS, random_state=seed)
            service = Service(data, seed)
            for number in range(1, max(GAINS) + 1):
                service.answer(people)
                if number in GAINS:
                    bars = (LOSS, LOSS) if at_random else GAINS[number]
                    least = np.min(service.gains, axis=0)
                    report.add(
                        f"{at_random:.0%} at random, {number} pages, seed {seed}",
                        hamming_map=data.hamming[0],
                        hamming_p10=data.hamming[1],
                        map_gain=Figure(service.gains[-1][0], least=bars[0]),
                        p10_gain=Figure(service.gains[-1][1], least=bars[1]),
                        least_map_gain=Figure(least[0], least=LOSS),
                        least_p10_gain=Figure(least[1], least=LOSS),
                        activations=len(service.gains) - 1,
                        first_activation=service.first,
                        alarms=service.n_alarms,
                    )


def poisoning(report: Report, seeds: range, attacked: int = 2000, after: int = 1000) -> None:
    """Let a fifth of the clients attack, then stop."""
    n_vandals = round(VANDALS * N_CLIENTS)
    for seed in seeds:
        data = Digits(seed)
        honest: np.ndarray | None = None
        for name, attack in {"none": None, **ATTACKS}.items():
            people = SimulatedUsers(data.codes, data.y, n_clients=N_CLIENTS - n_vandals, random_state=seed)
            vandals = people if attack is None else attack(data.codes, data.y, n_clients=n_vandals, random_state=seed)
            service, random = Service(data, seed), np.random.default_rng(seed)
            for _ in range(attacked):
                service.answer(vandals if random.random() < VANDALS else people)
            during, least = service.gains[-1], np.min(service.gains, axis=0)
            for _ in range(after):
                service.answer(people)
            honest = during if honest is None else honest
            report.add(
                f"{name}, seed {seed}",
                map_gain=Figure(during[0], least=0.5 * honest[0]),
                p10_gain=Figure(during[1], least=0.5 * honest[1]),
                least_map_gain=Figure(least[0], least=POISONED_LOSS),
                least_p10_gain=Figure(least[1], least=POISONED_LOSS),
                healed_map_gain=Figure(service.gains[-1][0], least=honest[0]),
                healed_p10_gain=Figure(service.gains[-1][1], least=honest[1]),
                vandals_left_out=sum(client.startswith("vandal") for client in service.learner.dropped),
                users_left_out=sum(client.startswith("user") for client in service.learner.dropped),
                alarms=service.n_alarms,
            )


def flood(report: Report, seeds: range, honest: int = 300, flooded: int = 4000) -> None:
    """Let one client send 99 of 100 pages, after honest ones."""
    for seed in seeds:
        data = Digits(seed)
        people = SimulatedUsers(data.codes, data.y, n_clients=N_CLIENTS, random_state=seed)
        vandal = ATTACKS["useless bits"](data.codes, data.y, n_clients=1, random_state=seed)
        service = Service(data, seed)
        for _ in range(honest):
            service.answer(people)
        before = service.gains[-1]
        for number in range(flooded):
            service.answer(vandal if number % 100 else people)
        least = np.min([before, *service.gains], axis=0)
        report.add(
            f"one client, seed {seed}",
            least_map_gain=Figure(least[0], least=POISONED_LOSS),
            least_p10_gain=Figure(least[1], least=POISONED_LOSS),
            rollbacks=Figure(service.n_alarms, most=0),
            share=Figure(service.learner.teachers.get("vandal 0", 0.0), most=0.02),
        )


def near(report: Report, seeds: range, n_pages: int = 2000) -> None:
    """Let a fifth of the clients click near items of other classes, where most places explore."""
    n_vandals, honest = round(VANDALS * N_CLIENTS), np.zeros(2)
    for seed in seeds:
        data = Digits(seed)
        for name in ("none", "near items of other classes"):
            options = {"n_explored": 16, "random_state": seed}
            people = SimulatedUsers(data.codes, data.y, n_clients=N_CLIENTS - n_vandals, **options)
            vandals = people if name == "none" else NearWrong(data.codes, data.y, n_clients=n_vandals, **options)
            service, random = Service(data, seed), np.random.default_rng(seed)
            for _ in range(n_pages):
                service.answer(vandals if random.random() < VANDALS else people)
            gain = service.gains[-1]
            honest = gain if name == "none" else honest
            report.add(
                f"{name}, seed {seed}",
                map_gain=Figure(gain[0], least=0.5 * honest[0]),
                p10_gain=Figure(gain[1], least=0.5 * honest[1]),
                vandals_left_out=sum(client.startswith("vandal") for client in service.learner.dropped),
                users_left_out=sum(client.startswith("user") for client in service.learner.dropped),
            )


def promotion(report: Report, seeds: range, attacked: int = 1500, after: int = 400) -> None:
    """Let a tenth of the clients promote one item for one query."""
    for seed in seeds:
        data = Digits(seed)
        people = SimulatedUsers(data.codes, data.y, n_clients=90, random_state=seed)
        vandals = Promotion(data.codes, data.y, n_clients=10, random_state=seed)
        service, random = Service(data, seed), np.random.default_rng(seed)
        for _ in range(attacked):
            service.answer(vandals if random.random() < 0.1 else people)
        during = vandals.rank(vandals.query, service.learner.candidate)
        for _ in range(after):
            service.answer(people)
        service.learner.update()
        report.add(
            f"one item for one query, seed {seed}",
            rank_before=vandals.rank(vandals.query, None),
            rank=Figure(during, least=20),
            rank_after=Figure(vandals.rank(vandals.query, service.learner.candidate), least=20),
        )


def adaptive(report: Report, seeds: range, n_pages: int = 1500) -> None:
    """Let more and more clients follow strategies that know the defence."""
    for seed in seeds:
        data = Digits(seed)
        for name, attack in ADAPTIVE.items():
            for n_vandals in (1, 3, 10, 20, 30):
                people = SimulatedUsers(data.codes, data.y, n_clients=N_CLIENTS - n_vandals, random_state=seed)
                vandals = attack(data.codes, data.y, n_clients=n_vandals, random_state=seed)
                service, random = Service(data, seed), np.random.default_rng(seed)
                for _ in range(n_pages):
                    service.answer(vandals if random.random() < n_vandals / N_CLIENTS else people)
                service.learner.update()
                figures: dict[str, Any] = {}
                if isinstance(vandals, Promotion):
                    ranks = [vandals.rank(int(query), service.learner.candidate) for query in vandals.near]
                    figures = {"rank_before": np.median([vandals.rank(int(query), None) for query in vandals.near])}
                    figures |= {"rank": np.median(ranks), "in_first_20": np.mean(np.array(ranks) <= 20)}
                report.add(
                    f"{name}, {n_vandals}%, seed {seed}",
                    map_gain=service.gains[-1][0],
                    p10_gain=service.gains[-1][1],
                    least_map_gain=np.min(service.gains, axis=0)[0],
                    **figures,
                    vandals_left_out=sum(client.startswith("vandal") for client in service.learner.dropped),
                )


def new(report: Report, seeds: range, n_pages: int = 2000) -> None:
    """Learn from pages of nine digits, then search for the tenth."""
    for seed in seeds:
        data = Digits(seed)
        known = data.y != seed % 10
        people = SimulatedUsers(data.codes[known], data.y[known], random_state=seed)
        learner = ClickLearner(data.codes[known], secret=bytes([seed]), random_state=seed)
        for _ in range(n_pages):
            learner.learn(people.page())
        learner.decide()
        for name, some in (("new", data.query_y == seed % 10), ("known", data.query_y != seed % 10)):
            gain = data.figures(learner.candidate, some) - data.figures(None, some)
            bar = {"least": NEW_LOSS} if name == "new" else {}
            report.add(f"{name} classes, seed {seed}", map_gain=Figure(gain[0], **bar), p10_gain=Figure(gain[1], **bar))


def operators(data: Digits, seed: int) -> dict[str, Any]:
    """Return versions that an operator may have activated: four that rank worse than Hamming, and three that do not."""
    bits = unpack(data.codes, 64)
    telling = np.array([bits[data.y == label].mean(axis=0) for label in np.unique(data.y)]).std(axis=0).argsort()
    random = np.random.default_rng(seed)
    some, half = random.permutation(len(data.y))[:1000], random.permutation(64)[:32]

    def of_bits(chosen: np.ndarray) -> Any:
        return RankingSVM.from_weights(np.isin(np.arange(64), chosen).astype(float))

    return {
        "one bit": of_bits(telling[:1]),
        "a lost taste": QueryVectorRanker(random_state=seed).fit(data.codes[some], data.y[some] % 2),
        "24 bits": of_bits(telling[:24]),
        "random half": of_bits(half),
        "nearly Hamming": RankingSVM.from_weights(1 + random.random(64) / 5),
        "RankingSVM": RankingSVM(random_state=seed).fit(data.codes[some], data.y[some]),
        "QueryVectorRanker": QueryVectorRanker(random_state=seed).fit(data.codes[some], data.y[some]),
    }


def alarm(report: Report, seeds: range, n_pages: int = 1000) -> None:
    """Rank pages by an operator's version until the gate replaces it; one that beats Hamming, for at least so many."""
    for seed in seeds:
        data = Digits(seed)
        for name, ranker in operators(data, seed).items():
            people = SimulatedUsers(data.codes, data.y, n_clients=N_CLIENTS, random_state=seed)
            service = Service(data, seed, ranker)
            gain = service.gains[0]
            while not service.first or (gain[0] >= 0 and service.learner.n_pages < n_pages):
                service.answer(people)
            figures: dict[str, Any] = {"replaced": service.first, "first_alarm": service.first_alarm}
            if gain[0] < SURELY_WORSE:
                figures["in_time"] = Figure(service.first_alarm > 0, least=1)
            elif gain[0] >= 0:
                figures["alarms"] = Figure(service.n_alarms, most=0)
            report.add(f"{name}, seed {seed}", map_gain=gain[0], p10_gain=gain[1], **figures)
    for name in dict.fromkeys(title.rpartition(", ")[0] for title in report.rows):
        rows = [row for title, row in report.rows.items() if title.startswith(f"{name}, ")]
        column = {key: np.array([row[key].value for row in rows]) for key in ("map_gain", "replaced", "first_alarm")}
        rang = column["first_alarm"][column["first_alarm"] > 0]
        print(
            f"{name}: MAP {column['map_gain'].min():+.3f} to {column['map_gain'].max():+.3f}, an alarm with "
            f"{len(rang)} of {len(rows)} seeds, after {np.median(rang) if len(rang) else np.nan:.0f} pages (median), "
            f"replaced after {np.median(column['replaced']):.0f}"
        )


PARTS = {
    "users": users,
    "poisoning": poisoning,
    "flood": flood,
    "near": near,
    "promotion": promotion,
    "adaptive": adaptive,
    "new": new,
    "alarm": alarm,
}
SEEDS = {"alarm": 20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, help="collections and users (default: 3; 20 for alarm)")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them (default: %(default)s)")
    options = parse_parts(parser, PARTS)
    with threadpool_limits(1):  # as in the service
        for part in options.parts:
            report = Report(part)
            PARTS[part](report, range(options.first_seed, options.first_seed + (options.seeds or SEEDS.get(part, 3))))
            report.save(RESULTS / "clicks.json")


if __name__ == "__main__":
    main()
