"""Networks that turn what is known of a query into a vector: what they see, how they are trained and stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np
from scipy.special import expit, softmax

from bitrank.core.archives import Archive, check_shapes
from bitrank.core.codes import signs
from bitrank.core.types import Rows
from bitrank.ranking.evidence.kinds import Matrix, QueryRows
from bitrank.ranking.gate.judge import mean_one
from bitrank.ranking.networks.batches import Batch, Draw
from bitrank.ranking.networks.loss import Adam, descend

_MOST_COMPONENTS = 128
_MOST_ROWS = 10_000  # that the components are computed from
# Arrays of a network in a file, with a letter per side: outputs, inputs, hidden units, features and their components.
_SHAPES = {"direct": "oi", "shift": "o", "inner": "hi", "outer": "oh", "center": "f", "components": "fc"}


class Inputs(NamedTuple):
    """φ of a query: `[query, (features − center)·components, 1]`, the query as ±1 bits or as reals of mean size 1.

    Features are reduced to their leading components and divided by one scale: raw features, of hundreds of columns,
    make a network rank worse than the bits alone where rows are few.
    """

    reals: bool
    center: Matrix
    components: Matrix

    @classmethod
    def learn(cls, reals: bool, features: Matrix | None, random: np.random.Generator) -> Self:
        """Learn the components of features, or of none."""
        if features is None:
            return cls(reals, np.zeros(0, np.float32), np.zeros((0, 0), np.float32))
        rows = np.sort(random.permutation(len(features))[:_MOST_ROWS])
        center = features[rows].mean(axis=0, dtype=np.float64)
        centered = features[rows] - center
        values, vectors = np.linalg.eigh(centered.T @ centered / len(rows))
        leading = vectors[:, ::-1][:, : min(_MOST_COMPONENTS, len(rows))]
        spread = np.sqrt(values[::-1][: leading.shape[1]].clip(min=0).mean())
        scaled = leading / spread if spread > 0 else np.zeros_like(leading)
        return cls(reals, center.astype(np.float32), scaled.astype(np.float32))

    @property
    def with_features(self) -> bool:
        """Whether the queries need features."""
        return self.components.size > 0

    def n_inputs(self, n_bits: int) -> int:
        """Length of φ."""
        return n_bits + int(self.components.shape[1]) + 1

    def query(self, queries: QueryRows, n_bits: int) -> Matrix:
        """The query's part of φ: its bits, or its reals where these are used."""
        bits = signs(queries.codes, n_bits)
        if not self.reals or queries.magnitudes is None:
            return bits
        return bits * mean_one(queries.magnitudes).astype(np.float32)

    def __call__(self, queries: QueryRows, features: Matrix | None, n_bits: int) -> Matrix:
        """φ, one row per query."""
        parts = [self.query(queries, n_bits)]
        if self.with_features and features is not None:
            parts.append(np.asarray((features - self.center) @ self.components, np.float32))
        return np.concatenate([*parts, np.ones((len(queries.codes), 1), np.float32)], axis=1)


BITS = Inputs(False, np.zeros(0, np.float32), np.zeros((0, 0), np.float32))
REALS = BITS._replace(reals=True)


class Network(NamedTuple):
    """f(φ) = direct·φ + shift + outer·relu(inner·φ); a vector `direct` multiplies the first inputs, one per bit.

    Where there are classes, one row of a vector and a constant each, these are their logits, and f is the mean of the
    vectors by the probabilities. `inputs` gives φ of a query, and `blend` is the share λ of f(φ) in the vector that is
    searched with.
    """

    direct: Matrix
    shift: Matrix
    inner: Matrix
    outer: Matrix
    inputs: Inputs = BITS
    blend: float = 0.0
    classes: Matrix = np.zeros((0, 0), np.float32)

    @property
    def n_bits(self) -> int:
        """Length of the vectors."""
        return self.classes.shape[1] - 1 if len(self.classes) else len(self.shift)

    def __call__(self, phi: Matrix) -> Matrix:
        """Vectors, one row per query."""
        outputs = self.linear(phi)
        if len(self.inner):
            hidden = phi @ self.inner.T
            outputs += np.maximum(hidden, 0, out=hidden) @ self.outer.T
        return softmax(outputs, axis=1) @ self.classes[:, :-1] if len(self.classes) else outputs

    def linear(self, phi: Matrix) -> Matrix:
        """The linear part of the outputs."""
        direct = phi[:, : len(self.shift)] * self.direct if self.direct.ndim == 1 else phi @ self.direct.T
        outputs: Matrix = direct + self.shift
        return outputs

    def known(self, queries: QueryRows, phi: Matrix) -> Matrix:
        """Probability that a query belongs to the class that is likeliest by its own bits or reals."""
        own = phi[:, : self.n_bits] if self.inputs.reals else REALS.query(queries, self.n_bits)
        known: Matrix = expit((own @ self.classes[:, :-1].T + self.classes[:, -1]).max(axis=1))
        return known

    def write(self, archive: Archive, name: str) -> None:
        """Add the network to an archive."""
        arrays = (*self[:4], self.inputs.center, self.inputs.components)
        archive.arrays.update({f"{name}_{key}": array for key, array in zip(_SHAPES, arrays, strict=True)})
        if len(self.classes):
            archive.arrays[f"{name}_classes"] = self.classes
        archive.facts[f"{name}_part"] = {"reals": self.inputs.reals, "blend": self.blend}

    @classmethod
    def take(cls, archive: Archive, name: str) -> Self:
        """Take a network out of an archive, or raise a ValueError that says what is wrong with it."""
        keys = [f"{name}_{key}" for key in _SHAPES]
        if not archive.arrays.keys() >= set(keys) or not isinstance(archive.facts.get(f"{name}_part"), dict):
            raise ValueError(f"expected the arrays {keys} and {name}_part, got {sorted(archive.arrays)}")
        arrays = {key: archive.arrays.pop(f"{name}_{key}") for key in _SHAPES}
        facts = archive.facts.pop(f"{name}_part")
        shapes = _SHAPES | ({"direct": "o"} if arrays["direct"].ndim == 1 else {})
        n_outputs = arrays["shift"].shape[-1] if arrays["shift"].ndim else 0
        n_bits, classes = n_outputs, archive.arrays.pop(f"{name}_classes", cls._field_defaults["classes"])
        if classes.size:
            arrays, shapes = arrays | {"classes": classes}, shapes | {"classes": "ov"}
            n_bits = classes.shape[-1] - 1 if classes.ndim else 0
        sizes = {"o": n_outputs, "v": n_bits + 1, "i": n_bits + arrays["components"].shape[-1] + 1}
        check_shapes(arrays, shapes, sizes)
        share = facts.get("blend")
        if not isinstance(share, int | float) or not 0 <= share <= 1 or not isinstance(facts.get("reals"), bool):
            raise ValueError(f"expected a part with reals and blend, got {facts!r:.80}")
        direct, shift, inner, outer, center, components = (arrays[key] for key in _SHAPES)
        return cls(direct, shift, inner, outer, Inputs(facts["reals"], center, components), share, classes)


def start_network(
    n_bits: int, n_inputs: int, random: np.random.Generator, *, n_hidden: int = 0, scale: float = 1.0
) -> Network:
    """A network that returns its first n_bits inputs, divided by √n_bits and times a scale.

    With hidden units `direct` is a vector, and a full matrix without.
    """
    size = np.float32(scale / np.sqrt(n_bits))
    direct = np.full(n_bits, size) if n_hidden else size * np.eye(n_bits, n_inputs, dtype=np.float32)
    inner = random.standard_normal((n_hidden, n_inputs), np.float32) / np.float32(np.sqrt(n_inputs))
    return Network(direct, np.zeros(n_bits, np.float32), inner, np.zeros((n_bits, n_hidden), np.float32))


def train(
    network: Network,
    draw: Draw,
    inputs: Callable[[Batch], Matrix],
    *,
    rate: float,
    decay: float = 0.0,
    n_steps: int,
    random: np.random.Generator,
    label: str,
) -> Network:
    """Train a network in place and return it.

    Parameters
    ----------
    network : Network
    draw : callable
        Draws a batch.
    inputs : callable
        From a batch to the inputs φ of its queries.
    rate : float
        Learning rate.
    decay : float
        Share of the way back to its start that `direct` goes per step.
    n_steps : int
    random : numpy Generator
    label : str
        For the progress bar.
    """
    n_bits, has_hidden = len(network.shift), len(network.inner) > 0

    def gradients() -> tuple[Matrix, ...]:
        batch = draw(random)
        phi = inputs(batch)
        outputs = network.linear(phi)
        hidden = np.maximum(phi @ network.inner.T, 0)
        if has_hidden:
            outputs += hidden @ network.outer.T
        by_vector = batch.gradient(outputs)
        diagonal = network.direct.ndim == 1
        by_direct = (by_vector * phi[:, :n_bits]).sum(axis=0) if diagonal else by_vector.T @ phi
        if not has_hidden:
            return by_direct, by_vector.sum(axis=0)
        by_hidden = (by_vector @ network.outer) * (hidden > 0)
        return by_direct, by_vector.sum(axis=0), by_hidden.T @ phi, by_vector.T @ hidden

    arrays = network[:4] if has_hidden else network[:2]
    steps = [Adam(array, rate, decay if array is network.direct else 0.0) for array in arrays]
    descend(steps, gradients, n_steps, label)
    return network


def take(features: Matrix | None, rows: Rows) -> Matrix | None:
    """Some rows of features, where there are any."""
    return None if features is None else features[rows]
