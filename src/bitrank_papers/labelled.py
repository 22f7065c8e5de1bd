"""`SupervisedHasher`, the base of hashers that learn from class labels."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from bitrank.core.checks import check_count, class_numbers
from bitrank.hashing.hasher import Floats, RandomHasher

Rows = npt.NDArray[np.int64]


@dataclass(eq=False, repr=False, kw_only=True)
class SupervisedHasher(RandomHasher):
    """A hasher whose `fit` needs the class of every vector, and learns from the labels of some of them.

    A subclass learns in `_learn_labelled`.
    """

    n_labelled: int = 5000

    @abstractmethod
    def _learn_labelled(
        self, X: npt.NDArray[Any], classes: Rows, rows: Rows, n_bits: int, random: np.random.RandomState
    ) -> dict[str, Floats]:
        """Learn the arrays of `_learned` from vectors, and from the class numbers of the chosen rows."""

    def _learn_from(self, X: npt.NDArray[Any], y: Any, n_bits: int) -> dict[str, Floats]:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        classes = class_numbers(y, len(X))
        random = check_random_state(self.random_state)
        return self._learn_labelled(X, classes, draw_labelled(classes, self.n_labelled, random), n_bits, random)

    def _learn(self, X: npt.NDArray[Any], n_bits: int) -> dict[str, Floats]:
        raise NotImplementedError

    def _check_params(self, n_features: int) -> int:
        check_count("n_labelled", self.n_labelled, 2)
        return super()._check_params(n_features)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def draw_labelled(classes: Rows, n: int, random: np.random.RandomState) -> Rows:
    """Draw at most n rows, as evenly over the classes as their sizes allow, in ascending order.

    Examples
    --------
    >>> classes = np.array([0, 0, 0, 0, 0, 0, 1, 1, 2])
    >>> np.bincount(classes[draw_labelled(classes, 6, np.random.RandomState(0))])
    array([3, 2, 1])
    """
    shuffled = random.permutation(len(classes))
    by_class = shuffled[np.argsort(classes[shuffled], kind="stable")]
    sizes = np.bincount(classes)
    place_in_class = np.arange(len(classes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(by_class[np.argsort(place_in_class, kind="stable")[:n]])


def draw_pairs(classes: Rows, n: int, random: np.random.RandomState) -> tuple[Rows, Rows]:
    """Draw n pairs of rows, the first half of one class each; a row alone in its class is paired with itself."""
    order = np.argsort(classes, kind="stable")
    sizes = np.bincount(classes)
    starts = np.cumsum(sizes) - sizes
    first, second = random.randint(len(classes), size=(2, n))
    similar = slice(0, n // 2)
    label = classes[first[similar]]
    second[similar] = order[starts[label] + (random.random_sample(n // 2) * sizes[label]).astype(np.int64)]
    return first, second
