"""Weights adapted to the choices for one query: as far as the order needs, and no farther."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bitrank.clicks import adapt_to_choices
from bitrank.core.codes import distances, pack, signs


def loss(weights, query, passed, chosen):
    """Sum the squared hinge losses over pairs: a chosen item must be nearer than a passed one by 1."""
    near, far = (distances(query, codes, weights)[0].astype(float) for codes in (chosen, passed))
    return sum(max(0.0, 1.0 - (f - n)) ** 2 for f in far for n in near)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 70), st.integers(0, 12), st.integers(0, 4), st.integers(0, 2**31))
def test_the_loss_falls_and_bits_without_evidence_stay(n_bits, n_passed, n_chosen, seed):
    rng = np.random.default_rng(seed)
    query, passed, chosen = (pack(rng.integers(0, 2, (n, n_bits))) for n in (1, n_passed, n_chosen))
    weights = rng.lognormal(0, 0.5, n_bits).astype(np.float32)
    start = weights.copy()
    adapted = adapt_to_choices(weights, query, passed, chosen)
    np.testing.assert_array_equal(weights, start)
    assert adapted.dtype == np.float32
    assert adapted.shape == (n_bits,)
    assert (adapted >= 0).all()
    if n_passed == 0 or n_chosen == 0:
        np.testing.assert_array_equal(adapted, start)
        return
    assert loss(adapted, query, passed, chosen) <= loss(start, query, passed, chosen) + 1e-4
    # Bits that tell no pair apart stay.
    differs = np.unpackbits(query ^ np.concatenate([passed, chosen]), axis=1)[:, :n_bits]
    silent = (differs == differs[0]).all(axis=0)
    np.testing.assert_allclose(adapted[silent], start[silent], rtol=1e-5)


def test_one_choice_moves_the_page_and_brings_similar_items(itq_digits):
    codes, y = itq_digits.codes, itq_digits.y
    rng = np.random.default_rng(0)
    weights = rng.lognormal(0, 0.25, 32).astype(np.float32)
    gains, rises, moved = [], [], 0
    for row in range(60):
        query = itq_digits.queries[[row]]
        order = np.argsort(distances(query, codes, weights)[0], kind="stable")
        page = order[:20]
        wanted = [place for place in range(6, 20) if y[page[place]] == itq_digits.query_y[row]]
        if not wanted:
            continue
        place = wanted[0]
        adapted = adapt_to_choices(weights, query, codes[np.delete(page, place)], codes[[page[place]]])
        again = np.argsort(distances(query, codes, adapted)[0], kind="stable")
        moved += (again[:20] != page).any()
        rises.append(place - np.flatnonzero(again == page[place])[0])
        relevant = y == itq_digits.query_y[row]
        gains.append(relevant[again[:100]].mean() - relevant[order[:100]].mean())
    assert len(gains) > 30
    assert moved > 0.9 * len(gains)
    assert min(rises) >= 0
    assert np.mean(rises) > 2
    assert np.mean(gains) > 0


def test_queries_may_be_reals(itq_digits):
    codes, query = itq_digits.codes[:20], itq_digits.queries[[0]]
    plain = adapt_to_choices(np.ones(32), query, codes[:19], codes[19:])
    reals = itq_digits.query_values[[0]] / np.abs(itq_digits.query_values[0]).mean()
    scaled = adapt_to_choices(np.ones(32), reals, codes[:19], codes[19:])
    assert not np.array_equal(plain, scaled)
    np.testing.assert_array_equal(adapt_to_choices(np.ones(32), signs(query, 32), codes[:19], codes[19:]), plain)
    np.testing.assert_array_equal(adapt_to_choices(np.ones(32), reals[0], codes[:19], codes[19:]), scaled)
