"""Summaries of weight vectors and of their changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitrank.cli.weights import compare_weights, summarize_weights


@given(n_used=st.integers(1, 50), n_zero=st.integers(0, 50), value=st.floats(0.125, 100, width=32))
def test_effective_bits_of_equal_weights(n_used, n_zero, value):
    summary = summarize_weights(np.float32([value] * n_used + [0.0] * n_zero))
    assert summary["effective_bits"] == pytest.approx(n_used)
    assert (summary["n_bits"], summary["n_zero"]) == (n_used + n_zero, n_zero)
    assert summary["max"] == pytest.approx(value)


def test_summary():
    summary = summarize_weights(np.arange(8))
    assert (summary["min"], summary["mean"], summary["max"]) == (0, 3.5, 7)
    assert summary["effective_bits"] == pytest.approx(28**2 / 140)
    assert summarize_weights(np.zeros(2, np.float32))["effective_bits"] == 0


def test_comparison_does_not_depend_on_the_scale():
    before, after = np.random.default_rng(0).random((2, 16))
    change, scaled = compare_weights(before, after), compare_weights(8 * before, after / 4)
    for one, other in zip(change["bits"], scaled["bits"], strict=True):
        assert one == pytest.approx(other, rel=1e-6)
    assert scaled["mean_change"] == pytest.approx(change["mean_change"])
    expected = before @ after / np.linalg.norm(before) / np.linalg.norm(after)
    assert change["cosine"] == pytest.approx(expected, rel=1e-6)
    moved = np.abs(before / before.mean() - after / after.mean())
    assert change["max_change"] == pytest.approx(moved.max(), rel=1e-5)
    assert change["bits"][0]["bit"] == moved.argmax()


def test_vectors_of_two_lengths_are_refused():
    with pytest.raises(ValueError, match="same number of bits, got 2 and 3"):
        compare_weights(np.ones(2, np.float32), np.ones(3, np.float32))
