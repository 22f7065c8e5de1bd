"""False matches against radius and weights from edits, against NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitrank.core.codes import pack, unpack
from bitrank.duplicates import false_matches, log_odds_weights


def edited(rng, n, n_bits, share=0.1):
    bits = rng.random((n, n_bits)) < 0.5
    return pack(bits), pack(bits ^ (rng.random((n, n_bits)) < share))


@given(st.integers(1, 40), st.integers(2, 30), st.integers(1, 12), st.booleans(), st.integers(0, 2**32 - 1))
def test_counts_are_those_of_numpy(n_bits, n, n_pairs, weighted, seed):
    rng = np.random.default_rng(seed)
    codes, (originals, copies) = edited(rng, n, n_bits)[0], edited(rng, n_pairs, n_bits)
    weights = rng.integers(0, 5, n_bits).astype(np.float32) if weighted else None
    result = false_matches(codes, originals=originals, copies=copies, weights=weights, n_bits=n_bits)
    row = np.ones(n_bits) if weights is None else weights
    bits = unpack(codes, n_bits)
    apart = (bits[:, None] != bits) @ row
    flips = (unpack(originals, n_bits) != unpack(copies, n_bits)) @ row
    others = apart[~np.eye(n, dtype=bool)]
    assert result.radii[0] == 0
    assert result.radii[-1] == row.sum()
    for radius, per_query, found in zip(*result, strict=True):
        if weights is None or np.abs(np.append(others, flips) - radius).min() > 1e-3:  # else it rounds either way
            assert per_query == np.sum(others <= radius) / n
            assert found == np.mean(flips <= radius)
    assert result.per_query[-1] == n - 1
    assert result.found[-1] == 1


def test_a_sample_is_asked():
    codes = np.random.default_rng(0).integers(0, 256, (500, 4), dtype=np.uint8)
    few = false_matches(codes, max_queries=40)
    assert few.found is None
    assert abs(few.per_query[14] / false_matches(codes).per_query[14] - 1) < 0.2
    radius = few.radius_for(2.0)
    assert few.per_query[int(radius)] <= 2 < few.per_query[int(radius) + 1]


def test_weights_are_log_odds():
    rng = np.random.default_rng(1)
    n, shares = 20_000, np.array([0.01, 0.1, 0.3, 0.5, 0.7])
    originals = rng.random((n, 5)) < 0.5
    copies = originals ^ (rng.random((n, 5)) < shares)
    np.testing.assert_allclose(
        log_odds_weights(pack(originals), pack(copies), n_bits=5), np.log((1 - shares) / shares).clip(0), atol=0.1
    )
    rare = pack(rng.random((n, 5)) < 0.1)  # unrelated codes differ in 18 % of these bits
    expected = np.log((1 - shares) / shares * 0.18 / 0.82).clip(0)
    np.testing.assert_allclose(log_odds_weights(pack(originals), pack(copies), rare, n_bits=5), expected, atol=0.1)


def test_weights_find_more_copies():
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 256, (2000, 8), dtype=np.uint8)
    flips = rng.random((600, 64)) < np.linspace(0.02, 0.4, 64)
    pairs = {"originals": codes[:600], "copies": codes[:600] ^ pack(flips)}
    learned = log_odds_weights(codes[600:1200], codes[600:1200] ^ pack(rng.permutation(flips)), codes)
    shares = []
    for weights in (None, learned):
        found = false_matches(codes, **pairs, weights=weights)
        shares.append(found.found[np.searchsorted(found.radii, found.radius_for(0.1))])
    assert shares[1] > shares[0] + 0.05


def test_a_picture(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    originals, copies = edited(np.random.default_rng(0), 50, 32)
    found = false_matches(originals, originals=originals, copies=copies)
    axes = found.plot()
    assert axes.lines[0].get_ydata().tolist() == found.per_query.tolist()
    assert [label.get_text() for label in (axes.xaxis.label, axes.yaxis.label)] == ["radius", "false matches per query"]
    assert len(axes.figure.axes) == 2
    assert found._replace(found=None).plot(axes) is axes
    axes.figure.savefig(tmp_path / "found.png")
    matplotlib.pyplot.close(axes.figure)


CODES = np.uint8([[1], [2], [4]])


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: false_matches(CODES[:1]), "codes must hold at least two rows, got 1"),
        (lambda: false_matches(CODES, originals=CODES), "originals and copies must be given together, got one of them"),
        (
            lambda: false_matches(CODES, originals=CODES, copies=CODES[:2]),
            "copies must hold one code for each original, got 2 for 3",
        ),
        (lambda: false_matches(CODES, weights=[1.0]), "weights must hold 8 values, one per bit, got 1"),
        (lambda: false_matches(CODES, max_queries=0), "max_queries must be an int of at least 1, got 0"),
        (lambda: log_odds_weights(CODES, CODES[:, :0]), "copies must have at least one byte per row, got shape (3, 0)"),
        (
            lambda: false_matches(np.repeat(CODES, 2, 0)).radius_for(0.1),
            "per_query must be at least 1, that of radius 0, got 0.1",
        ),
    ],
)
def test_mistakes(mistake, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        mistake()
    assert str(error.value) == message
