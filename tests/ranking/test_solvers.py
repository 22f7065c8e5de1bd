"""The solvers against a quadratic programme solved by quadprog, and packed products against dense ones."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from bitrank.core.codes import pack, unpack
from bitrank.ranking.evidence.quadruplets import draw_quadruplets
from bitrank.ranking.solvers.objective import Constraints, Objective, best_scale, duality_gap
from bitrank.ranking.solvers.solvers import SOLVERS, egd, exact, pgd

repeatable = settings(derandomize=True)
n_bits_of_any_kind = st.one_of(st.sampled_from([1, 8, 9, 64, 98]), st.integers(1, 100))


def problem(m=60, n_bits=12, *, width=4, magnitudes=False, seed=0, n_queries=9, n_items=30):
    """Codes of queries and items, quadruplets of them, and magnitudes or None."""
    rng = np.random.default_rng(seed)
    queries, items = (pack(rng.integers(2, size=(n, n_bits))) for n in (n_queries, n_items))
    quadruplets = np.column_stack([rng.integers(n_queries, size=m), rng.integers(n_items, size=(m, width - 1))])
    values = rng.exponential(size=(n_queries, n_bits)).astype(np.float32) if magnitudes else None
    return queries, items, quadruplets, n_bits, values


def dense_rows(queries, items, quadruplets, n_bits, magnitudes):
    """D and T of the module's equations (1) and (2), from unpacked bits."""
    a, b = unpack(queries, n_bits).astype(int), unpack(items, n_bits).astype(int)
    scale = np.ones((len(a), n_bits))
    if magnitudes is not None:
        scale = magnitudes.astype(float) / magnitudes.astype(float).mean(axis=1, keepdims=True)
    order, tie = [], []
    for i, j, k, *s in quadruplets:
        order.append((abs(a[i] - b[j]) - abs(a[i] - b[k])) * scale[i])
        tie += [(abs(a[i] - b[k]) - abs(a[i] - b[other])) * scale[i] for other in s]
    return np.array(order), np.array(tie).reshape(-1, n_bits)


def direct_objective(weights, order, tie, c_order, c_tie, prior):
    slack = np.maximum(0, 1 - order @ weights)
    return 0.5 * np.sum((weights - prior) ** 2) + c_order * np.sum(slack**2) + c_tie * np.sum((tie @ weights) ** 2)


def quadprog_optimum(order, tie, c_order, c_tie, prior):
    """Minimum of (3) over weights and slacks: ½ xᵀGx − aᵀx, with slack ≥ 1 − D w, slack ≥ 0 and w ≥ 0."""
    import quadprog

    k, m = len(prior), len(order) if c_order > 0 else 0
    G = np.zeros((k + m, k + m))
    G[:k, :k] = np.eye(k) + 2 * c_tie * tie.T @ tie
    G[k:, k:] = 2 * c_order * np.eye(m)
    linear = np.concatenate([prior, np.zeros(m)])
    bounds = np.eye(k + m)
    margins = np.hstack([order[:m], np.eye(m)])
    x = quadprog.solve_qp(G, linear, np.vstack([bounds, margins]).T, np.concatenate([np.zeros(k + m), np.ones(m)]))[0]
    weights = np.maximum(x[:k], 0)
    return direct_objective(weights, order, tie, c_order, c_tie, prior)


@st.composite
def objectives(draw, max_rows=40, largest_c=3.0):
    """An Objective and the arguments of the direct one."""
    data = problem(
        draw(st.integers(1, max_rows)),
        draw(st.integers(1, 20)),
        width=draw(st.sampled_from([3, 4])),
        magnitudes=draw(st.booleans()),
        seed=draw(st.integers(0, 2**31)),
    )
    n_bits = data[3]
    c_order, c_tie = (draw(st.just(0.0) | st.floats(-4, largest_c).map(lambda e: 10.0**e)) for _ in range(2))
    kind = draw(st.sampled_from(["zero", "uniform", "array"]))
    constraints = Constraints(*data)
    if kind == "zero":
        prior = np.zeros(n_bits)
    elif kind == "uniform":
        prior = np.full(n_bits, best_scale(constraints, c_order, c_tie))
    else:
        rng = np.random.default_rng(draw(st.integers(0, 2**31)))
        prior = rng.exponential(size=n_bits) * (rng.random(n_bits) < 0.7)
    return Objective(constraints, c_order, c_tie, prior), (*dense_rows(*data), c_order, c_tie, prior)


# Packed rows ----------------------------------------------------------------------------------------------------------


def check_products(data, seed):
    constraints, (order, tie) = Constraints(*data), dense_rows(*data)
    rng, n_bits = np.random.default_rng(seed), data[3]
    weights, values = rng.random(n_bits), rng.normal(size=len(order)) * (rng.random(len(order)) < 0.7)
    signs = rng.integers(-1, 2, len(order)).astype(np.int8)
    assert constraints.n_rows == len(order)
    assert constraints.has_ties == (len(tie) > 0)
    np.testing.assert_allclose(constraints.dense("order"), order, rtol=1e-5)
    np.testing.assert_allclose(constraints.dense("tie"), tie, rtol=1e-5)
    np.testing.assert_allclose(constraints.dense("order", slice(1, 3)), order[1:3], rtol=1e-5)
    # From here on with the magnitudes rounded to float32 as they are held.
    order, tie = constraints.dense("order"), constraints.dense("tie")
    close = {"rtol": 1e-10, "atol": 1e-9}
    np.testing.assert_allclose(constraints.margins(weights), order @ weights, **close)
    np.testing.assert_allclose(constraints.combine(values), order.T @ values, **close)
    gram, total = np.zeros((constraints.n_bits, constraints.n_bits)), np.zeros(constraints.n_bits)
    constraints.add_gram(signs, 1.5, gram, total)
    np.testing.assert_allclose(gram, 1.5 * order.T @ (signs[:, None] * order), **close)
    np.testing.assert_allclose(total, 1.5 * signs @ order, **close)
    np.testing.assert_allclose(constraints.tie_gram, tie.T @ tie, **close)


@given(st.integers(1, 200), n_bits_of_any_kind, st.sampled_from([3, 4]), st.booleans(), st.integers(0, 2**31))
@repeatable
def test_products_equal_dense_ones(m, n_bits, width, magnitudes, seed):
    check_products(problem(m, n_bits, width=width, magnitudes=magnitudes, seed=seed), seed)


@pytest.mark.parametrize("magnitudes", [False, True])
@pytest.mark.parametrize("m", [8191, 8192, 8193, 20_001])
def test_products_over_several_strips(m, magnitudes):
    check_products(problem(m, 21, magnitudes=magnitudes, seed=m), m)


@pytest.mark.parametrize("magnitudes", [False, True])
def test_gram_of_active_rows_from_that_of_others(magnitudes):
    data = problem(300, 21, magnitudes=magnitudes)
    constraints, rng = Constraints(*data), np.random.default_rng(0)
    order = constraints.dense("order")
    for share in (0.5, 0.9, 0.0, 1.0, 0.2):
        active = rng.random(300) < share
        gram, total = constraints.active_gram(active)
        np.testing.assert_allclose(gram, order[active].T @ order[active], atol=1e-9)
        np.testing.assert_allclose(total, order[active].sum(axis=0), atol=1e-9)


def test_products_in_single_precision(monkeypatch):
    data = problem(20_001, 21, magnitudes=True)
    for most_dense in (0, 10**9):  # blocks made anew, and kept
        monkeypatch.setattr("bitrank.ranking.solvers.objective._MOST_DENSE", most_dense)
        precise, single, rng = Constraints(*data), Constraints(*data), np.random.default_rng(0)
        single.precise = False
        weights, values, active = rng.random(21), rng.normal(size=20_001), rng.random(20_001) < 0.5
        close = {"rtol": 1e-4, "atol": 1e-2}
        np.testing.assert_allclose(single.margins(weights), precise.margins(weights), **close)
        np.testing.assert_allclose(single.combine(values), precise.combine(values), **close)
        np.testing.assert_allclose(single.tie_gram, precise.tie_gram, **close)
        for got, wanted in zip(single.active_gram(active), precise.active_gram(active), strict=True):
            np.testing.assert_allclose(got, wanted, **close)


def test_solutions_for_several_constants_share_constraints_and_do_not_depend_on_it():
    data, prior = problem(400, 30), np.full(30, 0.1)
    shared, start = Constraints(*data), None
    for c_order, c_tie in ((0.01, 0.0), (0.01, 0.01), (1.0, 0.0), (0.1, 0.1)):
        apart = exact(Objective(Constraints(*data), c_order, c_tie, prior))
        together = exact(Objective(shared, c_order, c_tie, prior), start)
        np.testing.assert_allclose(together.weights, apart.weights, atol=1e-4)
        assert together.objective == pytest.approx(apart.objective, rel=1e-7)
        start = together.weights


def test_no_row_active():
    constraints = Constraints(*problem(100, 13))
    gram, total = np.zeros((constraints.n_bits, constraints.n_bits)), np.zeros(constraints.n_bits)
    constraints.add_gram(np.zeros(100, np.int8), 1.0, gram, total)
    assert not gram.any()
    assert not total.any()


def test_a_query_without_magnitudes_has_rows_of_zeros():
    queries, items, quadruplets, n_bits, values = problem(40, 13, magnitudes=True)
    values[2] = 0
    rows = Constraints(queries, items, quadruplets, n_bits, values).dense("order")
    assert np.isfinite(rows).all()
    assert not rows[quadruplets[:, 0] == 2].any()


# Objective ------------------------------------------------------------------------------------------------------------


@given(objectives(), st.integers(0, 2**31))
@repeatable
def test_value_and_gradient(case, seed):
    objective, direct = case
    weights = np.random.default_rng(seed).random(len(objective.prior))
    value, gradient = objective.value_and_gradient(weights)
    assert value == pytest.approx(direct_objective(weights, *direct), rel=1e-5)
    assert objective.value(weights, objective.constraints.margins(weights)) == pytest.approx(value, rel=1e-12)
    # Piecewise quadratic, with a continuous gradient: central differences are exact but for rounding and kinks.
    want = scipy.optimize.approx_fprime(weights, lambda w: objective.value_and_gradient(w)[0], 1e-6)
    np.testing.assert_allclose(gradient, want, rtol=1e-3, atol=1e-4 * (1 + np.abs(want).max()))


# Minima ---------------------------------------------------------------------------------------------------------------


@given(objectives())
@settings(max_examples=2 * settings.default.max_examples, derandomize=True)
def test_exact_reaches_the_optimum_of_an_independent_solver(case):
    objective, (_, _, *constants) = case
    # The same rows for both: those of magnitudes are float32 in one and float64 in the other.
    rows = objective.constraints.dense("order"), objective.constraints.dense("tie")
    optimum = quadprog_optimum(*rows, *constants)
    found = exact(objective)
    assert (found.weights >= 0).all()
    assert found.objective == pytest.approx(direct_objective(found.weights, *rows, *constants), rel=1e-9, abs=1e-12)
    assert found.objective <= optimum * (1 + 1e-8) + 1e-12
    assert found.objective >= optimum * (1 - 1e-8) - 1e-12
    assert 0 <= found.gap <= 1e-8 * found.objective + 1e-14
    assert found.objective - optimum <= found.gap + 1e-9 * optimum + 1e-12


@pytest.mark.parametrize("prior", ["zero", "uniform"])
@pytest.mark.parametrize("c", [1e-3, 1.0, 100.0, 1e5])
def test_exact_on_larger_problems(c, prior):
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=300)
    centres = rng.integers(2, size=(4, 98))
    codes = pack(np.where(rng.random((300, 98)) < 0.3, rng.integers(2, size=(300, 98)), centres[y]))
    drawn = draw_quadruplets(y, 400, random_state=0)
    constraints = Constraints(codes, codes, drawn, 98)
    start = np.zeros(98) if prior == "zero" else np.full(98, best_scale(constraints, c, c))
    found = exact(Objective(constraints, c, c, start))
    optimum = quadprog_optimum(*dense_rows(codes, codes, drawn, 98, None), c, c, start)
    assert found.objective == pytest.approx(optimum, rel=1e-8)
    assert 0 <= found.gap <= 1e-8 * found.objective


@pytest.mark.parametrize("seed", [0, 114])  # exchanging wrong signs alone never ended for the last
@pytest.mark.parametrize("c", [7203.947538981965, 1e6])
def test_exact_ends_where_the_constants_are_large(seed, c):
    data = problem(152, 116, width=3, seed=seed, n_items=27)
    prior = np.full(116, 0.028531468531468533)
    found = exact(Objective(Constraints(*data), c, 0.0, prior))
    # Where constants are large quadprog is the less exact of the two; the gap certifies the optimum.
    assert found.objective <= quadprog_optimum(*dense_rows(*data), c, 0.0, prior) * (1 + 1e-8)
    assert 0 <= found.gap <= 1e-8 * found.objective


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_start_does_not_matter(solver):
    objective = Objective(Constraints(*problem(80, 12)), 0.3, 0.2, np.full(12, 0.1))
    want = exact(objective)
    for start in (np.zeros(12), np.ones(12), -np.ones(12), np.random.default_rng(0).random(12)):
        found = solver(objective, start)
        assert want.objective * (1 - 1e-9) <= found.objective <= want.objective * (1 + 1e-4)


@given(objectives(largest_c=1.0))
@repeatable
def test_gradient_solvers_come_within_a_ten_thousandth_and_their_gap_is_a_bound(case):
    objective, _ = case
    optimum = exact(objective)
    for solver in (pgd, egd):
        found = solver(objective)
        assert (found.weights >= 0).all()
        assert np.isfinite(found.weights).all()
        value, gradient = objective.value_and_gradient(found.weights)
        assert found.objective == pytest.approx(value, rel=1e-12)
        assert found.gap == pytest.approx(duality_gap(found.weights, gradient), rel=1e-9)
        assert found.objective <= optimum.objective * (1 + 1e-4) + 1e-9
        assert found.objective - optimum.objective <= found.gap + 1e-9 * optimum.objective + 1e-12


@given(objectives(largest_c=2.0), st.integers(0, 2**31))
@repeatable
def test_gap_is_a_bound_at_every_feasible_point(case, seed):
    objective, _ = case
    optimum = exact(objective)
    rng = np.random.default_rng(seed)
    for scale in (1e-3, 0.1, 1.0, 10.0):
        weights = rng.exponential(scale, len(objective.prior)) * (rng.random(len(objective.prior)) < 0.8)
        value, gradient = objective.value_and_gradient(weights)
        gap = duality_gap(weights, gradient)
        assert gap >= 0
        assert value - optimum.objective <= gap * (1 + 1e-9) + 1e-9 * value
    assert duality_gap(optimum.weights, objective.value_and_gradient(optimum.weights)[1]) <= 1e-7 * (
        optimum.objective + 1e-6
    )


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_few_iterations_are_obeyed_and_reported(solver):
    objective = Objective(Constraints(*problem(200, 30)), 10.0, 1.0, np.full(30, 0.1))
    found = solver(objective, max_iter=1)
    assert found.n_iter == 1
    assert found.gap > 0
    assert found.objective <= objective.value_and_gradient(objective.prior)[0]
    loose = solver(objective, tol=0.1)
    assert loose.gap <= 0.1 * loose.objective


# Degenerate cases -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
@pytest.mark.parametrize("prior", [0.0, 0.3])
def test_constants_of_zero_leave_the_prior(solver, prior):
    objective = Objective(Constraints(*problem(50, 9)), 0.0, 0.0, np.full(9, prior))
    found = solver(objective)
    np.testing.assert_allclose(found.weights, prior, atol=1e-5)
    assert found.objective <= 1e-9


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_rows_of_zeros_leave_the_prior(solver):
    codes = pack(np.zeros((4, 9)))
    constraints = Constraints(codes, codes, np.array([[0, 1, 2, 3], [3, 2, 1, 0]]), 9)
    found = solver(Objective(constraints, 5.0, 5.0, np.full(9, 0.3)))
    np.testing.assert_allclose(found.weights, 0.3, rtol=1e-3)
    assert found.objective == pytest.approx(10.0, rel=1e-6)  # two unmet constraints, whatever the weights


@pytest.mark.parametrize("prior", [0.0, 0.2])
def test_duplicates_count_as_a_larger_constant(prior):
    queries, items, quadruplets, n_bits, _ = problem(30, 12)
    once = exact(Objective(Constraints(queries, items, quadruplets, n_bits), 0.8, 0.4, np.full(12, prior)))
    often = np.tile(quadruplets, (4, 1))
    found = exact(Objective(Constraints(queries, items, often, n_bits), 0.2, 0.1, np.full(12, prior)))
    np.testing.assert_allclose(found.weights, once.weights, atol=1e-6)
    assert found.objective == pytest.approx(once.objective, rel=1e-8)


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_constraints_that_only_contradict_the_distance(solver):
    # The dissimilar row equals the query, the similar one differs: every weight only hurts.
    codes = pack([[0, 0, 0], [0, 0, 0], [1, 1, 0]])
    objective = Objective(Constraints(codes, codes, np.array([[0, 1, 2]]), 3), 1.0, 1.0, np.array([0.5, 0.1, 0.4]))
    found = solver(objective)
    np.testing.assert_allclose(found.weights, [0, 0, 0.4], atol=1e-2)
    assert found.objective == pytest.approx(0.13 + 1, rel=1e-4)


# The best scale -------------------------------------------------------------------------------------------------------


@given(objectives(), st.booleans())
@repeatable
def test_best_scale(case, ones):
    objective, (order, tie, c_order, c_tie, _) = case
    n_bits = len(objective.prior)
    direction = np.ones(n_bits) if ones else np.random.default_rng(n_bits).random(n_bits)
    scale = best_scale(objective.constraints, c_order, c_tie, None if ones else direction)

    def losses(a):
        slack = np.maximum(0, 1 - a * order @ direction)
        return c_order * slack @ slack + c_tie * np.sum((a * tie @ direction) ** 2)

    found = scipy.optimize.minimize_scalar(losses, bounds=(0, 1e3), method="bounded", options={"xatol": 1e-10})
    assert scale > 0
    if found.x > 1e-6 and found.fun < losses(0) * (1 - 1e-9):
        assert losses(scale) <= found.fun * (1 + 1e-5) + 1e-9
    elif found.x < 1e-6:  # no scale helps
        assert scale == 1 / n_bits


# Memory ---------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is read from /proc")
def test_a_million_quadruplets_fit_in_200_mb():
    script = """
        import numpy as np
        from bitrank.ranking.solvers.objective import Constraints, Objective, best_scale
        from bitrank.ranking.solvers.solvers import egd, exact, pgd

        rng = np.random.default_rng(0)
        y = rng.integers(50, size=20_000)
        bits = rng.integers(2, size=(50, 128), dtype=np.uint8)[y] ^ (rng.random((20_000, 128)) < 0.3)
        codes = np.packbits(bits, axis=1)
        quadruplets = rng.integers(20_000, size=(1_000_000, 4))
        np.linalg.solve(np.eye(128), np.ones(128))  # what linear algebra itself takes
        del bits
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the peak from here on

        def memory(name):
            with open("/proc/self/status") as file:
                return next(int(line.split()[1]) for line in file if line.startswith(name))

        before = memory("VmRSS")
        constraints = Constraints(codes, codes, quadruplets, 128)
        prior = np.full(128, best_scale(constraints, 1e-4, 1e-4))
        objective = Objective(constraints, 1e-4, 1e-4, prior)
        found = exact(objective)
        assert found.gap <= 1e-8 * found.objective
        for solver in (pgd, egd):
            solver(objective, max_iter=3)
        print((memory("VmHWM") - before) / 1024)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True, timeout=300
    )
    assert 48 < float(done.stdout) < 200  # three packed differences alone are 48
