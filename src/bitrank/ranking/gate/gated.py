"""`GatedRanker`: choose on held-out data, then learn again from all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from bitrank.core.types import Rows
from bitrank.ranking.evidence.kinds import ConstraintEvidence, LabelEvidence, PairEvidence, pairs_of_constraints
from bitrank.ranking.gate import choose as gate
from bitrank.ranking.gate import pair_gate
from bitrank.ranking.gate.choose import Choice, Learner
from bitrank.ranking.gate.held_out import Validation
from bitrank.ranking.gate.near import Factor
from bitrank.ranking.ranker import Ranker


@dataclass(eq=False, repr=False, kw_only=True)
class GatedRanker(Ranker):
    """A ranker whose candidates compete on held-out data before the winner learns from all data.

    A subclass names its learners in `_label_learner` and, where it can, `_constraint_learner`.
    """

    _gate: ClassVar[dict[str, Any]] = {}  # options of `gate.choose`

    scoring: gate.Scoring = "guarded"
    validation: Validation = "rows"
    random_state: Any = None

    def _label_learner(self, evidence: LabelEvidence, random: np.random.Generator) -> Learner:
        raise NotImplementedError

    def _constraint_learner(self, evidence: ConstraintEvidence) -> Learner:
        raise NotImplementedError

    def _fixed_choice(self) -> dict[str, Any] | None:
        """Parameters that leave nothing to choose on held-out data, or None."""
        return None

    def _fit_labels(self, evidence: LabelEvidence) -> None:
        random = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        learner = self._label_learner(evidence, random)

        def choose() -> Choice:
            options = {"scoring": self.scoring, "validation": self.validation, **self._gate}
            return gate.choose(evidence, learner.candidates, random=random, **options)

        self._choose_then_learn(learner, choose, evidence.n_bits)

    def _pair_learner(self, evidence: PairEvidence, random: np.random.Generator) -> Learner:
        raise NotImplementedError

    def _fit_pairs(self, evidence: PairEvidence) -> None:
        random = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        learner = self._pair_learner(evidence, random)

        def choose() -> Choice:
            return pair_gate.choose(evidence, learner.candidates, blends=gate.BLENDS, random=random)

        self._choose_then_learn(learner, choose, evidence.n_bits)

    def _fit_constraints(self, evidence: ConstraintEvidence) -> None:
        learner = self._constraint_learner(evidence)

        def choose() -> Choice:
            random = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
            judged = pairs_of_constraints(evidence)

            def candidates(rows: Rows) -> Iterator[tuple[dict[str, Any], Factor]]:
                queries = np.unique(judged.pairs[rows, 0])
                return learner.candidates(np.flatnonzero(np.isin(evidence.rows[:, 0], queries)))

            itself = evidence.queries.codes is evidence.codes
            return pair_gate.choose(judged, candidates, itself=itself, new_share=0.0, blends=gate.BLENDS, random=random)

        self._choose_then_learn(learner, choose, evidence.n_bits)

    def _choose_then_learn(self, learner: Learner, choose: Callable[[], Choice], n_bits: int) -> None:
        """Choose on held-out data, then learn again from all."""
        fixed = self._fixed_choice()
        choice = choose() if fixed is None else Choice(fixed, 1.0, [])
        learned = learner.learn(choice)
        learned |= {"n_bits_": n_bits, "blend_": choice.blend, "report_": choice.report}
        for name, value in learned.items():
            setattr(self, name, value)
