"""One contract, run over every ranker in RANKERS."""

import inspect
import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import estimator_checks_generator

import bitrank
from bitrank import Index, RankingSVM, load_ranker
from bitrank.core.codes import pack, weighted_hamming
from bitrank.core.types import Queries
from bitrank.evaluation import evaluate_rankings
from bitrank.ranking import RANKERS, QueryAdaptiveRanker, Ranker, ranker_class

N_BITS = 13
NEEDS_REALS = {"WhRank", "AgreementRanker"}
SMALL = {"n_quadruplets": 300, "n_steps": 8, "n_hidden": 8, "n_pairs": 500, "n_rows": 200}


def data(n=240, seed=0):
    """Four classes that the first two bits tell, with noise; reals whose signs are the bits."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    bits = rng.integers(2, size=(n, N_BITS))
    bits[:, :2] = np.column_stack([y // 2, y % 2]) ^ (rng.random((n, 2)) < 0.05)
    values = (2 * bits - 1) * rng.uniform(0.1, 2, size=(n, N_BITS))
    return pack(bits), y, values.astype(np.float32)


CODES, Y, VALUES = data()


def make(name, **options):
    cls = ranker_class(name)
    known = inspect.signature(cls).parameters
    options = {**SMALL, "n_bits": N_BITS, "random_state": 0, **options}
    return cls(**{key: value for key, value in options.items() if key in known})


def evidence(name, reals=False):
    return {"queries": VALUES} if reals or name in NEEDS_REALS else {}


@pytest.fixture(scope="module")
def fitted():
    return {name: make(name).fit(CODES, Y, **evidence(name)) for name in RANKERS}


every_ranker = pytest.mark.parametrize("name", list(RANKERS))


@every_ranker
def test_every_ranker_is_public_and_documented(name):
    cls = ranker_class(name)
    assert issubclass(cls, Ranker)
    assert cls.__name__ == name
    assert ">>>" in inspect.getdoc(cls)
    assert cls.learns_from <= {"labels", "pairs", "constraints", "vectors", "features"}


@every_ranker
def test_learned_attributes(name, fitted):
    ranker = fitted[name]
    assert ranker.n_bits_ == N_BITS
    assert 0 <= ranker.blend_ <= 1
    assert isinstance(ranker.report_, list)
    json.dumps(ranker.report_)


@every_ranker
@pytest.mark.parametrize("reals", [False, True])
def test_queries_for_is_what_a_search_takes(name, reals, fitted):
    ranker, n = fitted[name], 7
    asked = VALUES[:n] if reals else CODES[:n]
    before = asked.copy()
    queries = ranker.queries_for(asked)
    assert isinstance(queries, Queries)
    assert queries.codes.dtype == np.uint8
    assert queries.codes.shape == (n, 2)
    assert queries.weights.dtype == np.float32
    assert queries.weights.shape == (n, N_BITS)
    assert (queries.weights >= 0).all()
    assert np.isfinite(queries.weights).all()
    ids, found = Index(CODES, n_bits=N_BITS).search(queries, k=5)
    want = weighted_hamming(queries.codes, CODES, queries.weights)
    order = np.lexsort((np.broadcast_to(np.arange(len(CODES)), want.shape), want), axis=1)[:, :5]
    np.testing.assert_array_equal(ids, order)
    np.testing.assert_array_equal(found, np.take_along_axis(want, order, axis=1))
    np.testing.assert_array_equal(asked, before)


@every_ranker
def test_rankers_of_one_weight_per_bit_say_so(name, fitted):
    weights = fitted[name].one_weight_per_bit()
    one_for_all = {"MDSHRanker", "OnlineRankingSVM", "RankingSVM", "WhRank", "InformationRanker"}  # of CONTRIBUTING
    assert (weights is not None) == (name in one_for_all)
    same = fitted[name] if weights is None else RankingSVM.from_weights(weights)
    for asked in (CODES[:9], VALUES[:9]):
        for expected, found in zip(fitted[name].queries_for(asked), same.queries_for(asked), strict=True):
            np.testing.assert_array_equal(found, expected)


@every_ranker
def test_queries_are_answered_one_by_one_as_together(name, fitted):
    together = fitted[name].queries_for(VALUES[:9])
    for row in range(9):
        alone = fitted[name].queries_for(VALUES[row : row + 1])
        np.testing.assert_array_equal(alone.codes[0], together.codes[row])
        np.testing.assert_allclose(alone.weights[0], together.weights[row], rtol=1e-5, atol=1e-6)
    assert fitted[name].queries_for(CODES[:0]).weights.shape == (0, N_BITS)
    assert fitted[name].queries_for(VALUES[:0]).codes.shape == (0, 2)


@every_ranker
def test_learning_ranks_no_worse_than_hamming(name, fitted):
    if name in NEEDS_REALS:
        pytest.skip("a baseline without a gate")
    codes, y, _ = data(seed=1)
    assert fitted[name].score(codes, y) >= fitted["UniformRanker"].score(codes, y)


def test_score_ranks_as_a_search_of_the_collection_does(itq_digits):
    """Rankers per query are told what they search, as `evaluate_rankings` tells them."""
    codes, y = itq_digits.codes, itq_digits.y
    ranker = QueryAdaptiveRanker(n_steps=50, random_state=0).fit(codes, y)
    figures = evaluate_rankings(codes, {"learned": ranker}, y=y).figures["learned"]
    assert ranker.score(codes, y) == pytest.approx(figures["map"], abs=1e-6)


@every_ranker
def test_learns_on_top_of_float_queries(name):
    ranker = make(name).fit(CODES, Y, queries=VALUES)
    weights = ranker.queries_for(VALUES[:6]).weights
    if name != "UniformRanker":
        assert (ranker.queries_for(2 * VALUES[:6]).weights != weights).any() or name == "QueryVectorRanker"
    assert weights.shape == (6, N_BITS)


@every_ranker
def test_bits_default_to_the_bytes_or_to_the_columns_of_reals(name):
    if name not in NEEDS_REALS:
        assert make(name, n_bits=None).fit(CODES, Y).n_bits_ == 16
    assert make(name, n_bits=None).fit(CODES, Y, queries=VALUES).n_bits_ == N_BITS


@every_ranker
def test_same_seed_same_ranker(name, fitted):
    again = make(name).fit(CODES, Y, **evidence(name))
    np.testing.assert_array_equal(again.queries_for(VALUES).weights, fitted[name].queries_for(VALUES).weights)
    assert again.report_ == fitted[name].report_


# Evidence -------------------------------------------------------------------------------------------------------------


@every_ranker
def test_constraints_are_learned_from_or_refused(name):
    rows = np.random.default_rng(0).integers(len(CODES), size=(300, 4))
    ranker = make(name)
    if "constraints" in ranker.learns_from:
        for some in (rows, rows[:, :3]):
            assert ranker.fit_constraints(CODES, some).n_bits_ == N_BITS
            assert ranker.fit_constraints(CODES, some % 50, queries=VALUES[:50]).n_bits_ == N_BITS
    else:
        with pytest.raises(ValueError, match=f"{name} cannot learn from constraints; .*RankingSVM.* can"):
            ranker.fit_constraints(CODES, rows)
        assert not hasattr(ranker, "n_bits_")


@every_ranker
def test_pairs_are_learned_from_or_refused(name):
    pairs = np.argwhere(Y[:40, None] == Y[None])
    ranker = make(name)
    if "pairs" in ranker.learns_from:
        for queries in (CODES[:40], VALUES[:40]):
            assert ranker.fit_pairs(CODES, pairs, queries=queries).n_bits_ == N_BITS
            assert ranker.queries_for(queries).weights.shape == (40, N_BITS)
    else:
        with pytest.raises(ValueError, match=f"{name} cannot learn from pairs; .*QueryVectorRanker.* can"):
            ranker.fit_pairs(CODES, pairs, queries=VALUES[:40])
        assert not hasattr(ranker, "n_bits_")


@every_ranker
def test_vectors_are_learned_from_or_refused(name):
    ranker = make(name)
    if "vectors" in ranker.learns_from:
        assert ranker.fit_vectors(CODES, VALUES, queries=VALUES).n_bits_ == N_BITS
        assert ranker.queries_for(VALUES[:4]).weights.shape == (4, N_BITS)
    else:
        with pytest.raises(ValueError, match=f"{name} cannot learn from vectors; QueryVectorRanker can"):
            ranker.fit_vectors(CODES, VALUES)
        assert not hasattr(ranker, "n_bits_")


@every_ranker
def test_a_collection_may_be_named(name, fitted):
    for collection in (CODES, Index(CODES, n_bits=N_BITS)):
        queries = fitted[name].queries_for(CODES[:5], collection=collection)
        assert queries.weights.shape == (5, N_BITS)
        assert queries.trust is None or ((queries.trust >= 0) & (queries.trust <= 1)).all()


@every_ranker
def test_features_are_learned_from_or_refused(name):
    ranker = make(name)
    if "features" in ranker.learns_from:
        ranker.fit(CODES, Y, features=VALUES)
        assert ranker.queries_for(CODES[:3], features=VALUES[:3]).weights.shape == (3, N_BITS)
        with pytest.raises(ValueError, match=r"features must have shape \(3, 13\)"):
            ranker.queries_for(CODES[:3], features=VALUES[:3, 1:])
        assert ranker.queries_for(CODES[:3]).weights.shape == (3, N_BITS)  # answered by what needs no features
        with pytest.raises(ValueError, match="features must be finite"):
            ranker.queries_for(CODES[:3], features=VALUES[:3] * np.nan)
    else:
        with pytest.raises(ValueError, match=f"{name} cannot learn from features; QueryVectorRanker can"):
            ranker.fit(CODES, Y, features=VALUES, **evidence(name))
        ranker.fit(CODES, Y, **evidence(name))
        with pytest.raises(ValueError, match=f"features must be None for a {name}"):
            ranker.queries_for(CODES[:3], features=VALUES[:3])


BAD_LABELS = [
    ((CODES.astype(np.int64), Y, None), "codes must be a packed uint8 matrix"),
    ((CODES[0], Y, None), "codes must be a packed uint8 matrix"),
    ((CODES[:0], Y[:0], None), "codes must hold at least one row, got none"),
    ((CODES, Y[1:], None), "y must hold one label for each of the 240 codes"),
    ((CODES, np.where(Y > 0, np.nan, 1.0), None), "y must be finite"),
    ((CODES | np.uint8(1), Y, None), "last 3 bits of a row zero"),
    ((CODES, Y, VALUES[1:]), "queries must have one row for each of the 240 codes, got 239"),
    ((CODES, Y, VALUES[:, 1:]), r"queries of reals must have shape \(n_queries, 13\), got \(240, 12\)"),
    ((CODES, Y, VALUES * np.nan), "queries of reals must be finite in float32"),
    ((CODES, Y, VALUES.astype(float) * 1e300), "queries of reals must be finite in float32"),
    ((CODES, Y, CODES[:, :1]), "queries of 13 bits must be 2 bytes wide, got 1"),
]


@every_ranker
@pytest.mark.parametrize(("arguments", "message"), BAD_LABELS, ids=[message[:30] for _, message in BAD_LABELS])
def test_bad_evidence_is_refused_and_changes_nothing(name, arguments, message, fitted):
    codes, y, queries = arguments
    if queries is None and name in NEEDS_REALS and len(codes) == len(VALUES):
        queries = VALUES
    ranker = fitted[name]
    before = {key: value for key, value in vars(ranker).items() if key.endswith("_")}
    with pytest.raises(ValueError, match=message):
        ranker.fit(codes, y, queries=queries)
    assert all(vars(ranker)[key] is before[key] for key in before)


@every_ranker
def test_bad_queries_are_refused(name, fitted):
    for bad, message in [
        (CODES.astype(np.int64), "queries must be a packed uint8 matrix"),
        (CODES[:, :1], "queries of 13 bits must be 2 bytes wide, got 1"),
        (CODES | np.uint8(1), "last 3 bits of a row zero"),
        (VALUES[:, 1:], r"queries of reals must have shape \(n_queries, 13\), got \(240, 12\)"),
        (VALUES[0], r"queries of reals must have shape \(n_queries, 13\), got \(13,\)"),
        (VALUES * np.inf, "queries of reals must be finite"),
    ]:
        with pytest.raises(ValueError, match=message):
            fitted[name].queries_for(bad)


@pytest.mark.parametrize("name", sorted(NEEDS_REALS))
def test_spread_needs_reals(name):
    with pytest.raises(ValueError, match=f"{name} learns from values before the sign: queries must be reals"):
        make(name).fit(CODES, Y)


# Files ----------------------------------------------------------------------------------------------------------------


ANSWER = """
import sys, numpy as np
from bitrank import load_ranker
folder, names = sys.argv[1], sys.argv[2:]
with np.load(f"{folder}/queries.npz") as queries:
    codes, values = queries["codes"], queries["values"]
for name in names:
    ranker = load_ranker(f"{folder}/{name}.ranker")
    plain, real = ranker.queries_for(codes), ranker.queries_for(values)
    np.savez(f"{folder}/{name}.npz", a=plain.codes, b=plain.weights, c=real.codes, d=real.weights)
"""


@pytest.fixture(scope="module")
def answers_of_another_process(fitted, tmp_path_factory):
    """A folder with the answers of every ranker, saved here and loaded in one other process."""
    folder = tmp_path_factory.mktemp("rankers")
    np.savez(folder / "queries.npz", codes=CODES, values=VALUES)
    for name, ranker in fitted.items():
        ranker.save(folder / f"{name}.ranker")
    subprocess.run([sys.executable, "-c", ANSWER, str(folder), *fitted], check=True, timeout=600)
    return folder


@every_ranker
def test_saved_rankers_answer_the_same_in_another_process(name, fitted, answers_of_another_process):
    plain, real = fitted[name].queries_for(CODES), fitted[name].queries_for(VALUES)
    with np.load(answers_of_another_process / f"{name}.npz") as answers:
        for key, want in zip("abcd", (plain.codes, plain.weights, real.codes, real.weights), strict=True):
            np.testing.assert_array_equal(answers[key], want)


@every_ranker
def test_loaded_rankers_are_whole(name, fitted, tmp_path):
    fitted[name].save(tmp_path / "one.ranker")
    again = load_ranker(tmp_path / "one.ranker")
    assert type(again) is ranker_class(name)
    assert again.get_params() == fitted[name].get_params()
    assert again.report_ == fitted[name].report_
    assert again.blend_ == fitted[name].blend_
    again.save(tmp_path / "two.ranker")
    np.testing.assert_array_equal(
        load_ranker(tmp_path / "two.ranker").queries_for(CODES).weights, again.queries_for(CODES).weights
    )
    with zipfile.ZipFile(tmp_path / "one.ranker") as archive:
        assert all(entry.endswith(".npy") for entry in archive.namelist())


def test_online_learning_continues_from_a_file(tmp_path):
    rows = np.random.default_rng(0).integers(len(CODES), size=(40, 4))
    online = make("OnlineRankingSVM").partial_fit(CODES, rows[:20])
    online.save(tmp_path / "online.ranker")
    again = load_ranker(tmp_path / "online.ranker").partial_fit(CODES, rows[20:])
    np.testing.assert_array_equal(again.weights_, online.partial_fit(CODES, rows[20:]).weights_)
    assert again.n_updates_ == 2


@pytest.mark.parametrize("name", ["QueryVectorRanker", "RankingSVM"])
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_files_give_a_clear_error_or_the_same_answer(name, fitted, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("damage")
    fitted[name].save(folder / "whole.ranker")
    content = bytearray((folder / "whole.ranker").read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    (folder / "damaged.ranker").write_bytes(content)
    try:
        again = load_ranker(folder / "damaged.ranker")
    except ValueError as error:
        assert "damaged.ranker must" in str(error)  # noqa: PT017
    else:
        np.testing.assert_array_equal(again.queries_for(CODES).weights, fitted[name].queries_for(CODES).weights)


def rewrite(path, **changes):
    with np.load(path) as archive:
        entries = {key: archive[key] for key in archive.files}
    header = json.loads(str(entries["header"]))
    for key, value in changes.items():
        if key in ("name", "params", "facts"):
            header[key] = {**header[key], **value} if isinstance(value, dict) else value
        elif value is None:
            del entries[key]
        else:
            entries[key] = value
    with open(path, "wb") as file:
        np.savez(file, **{**entries, "header": json.dumps(header)})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "bitrank hasher"}, "must be a file of a bitrank ranker"),
        ({"version": 2}, "must have format version 1, got 2"),
        ({"name": "os.system"}, "a ranker must be one of"),
        ({"params": {"more": 1}}, "expected the parameters of RankingSVM"),
        ({"facts": {"n_bits_": "many"}}, "expected n_bits_ of at least 1"),
        ({"facts": {"n_bits_": 12}}, r"expected weights_ of shape \(12,\), got \(13,\)"),
        ({"facts": {"blend_": 2}}, "expected blend_ from 0 to 1, got 2"),
        ({"facts": {"more_": 2}}, "expected the facts"),
        ({"weights_": None}, "expected the arrays"),
        ({"weights_": np.ones(12)}, r"expected weights_ of shape \(13,\), got \(12,\)"),
        ({"weights_": np.ones((13, 1))}, "expected weights_ with 1 dimensions"),
        ({"weights_": np.full(13, np.nan)}, "expected finite values in weights_"),
        ({"weights_": -np.ones(13)}, "expected weights_ that are not negative"),
        ({"weights_": np.array(["a"] * 13)}, "expected an array weights_ of floats"),
    ],
)
def test_foreign_content_is_refused(changes, message, fitted, tmp_path):
    path = tmp_path / "foreign.ranker"
    fitted["RankingSVM"].save(path)
    rewrite(path, **changes)
    with pytest.raises(ValueError, match=message):
        load_ranker(path)


def test_pickles_are_never_loaded(tmp_path):
    with open(tmp_path / "evil.ranker", "wb") as file:
        np.savez(file, format="bitrank ranker", version=1, header=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="cannot be read"):
        load_ranker(tmp_path / "evil.ranker")
    with pytest.raises(FileNotFoundError):
        load_ranker(tmp_path / "none.ranker")


# scikit-learn ---------------------------------------------------------------------------------------------------------


@every_ranker
def test_unfitted(name, tmp_path):
    with pytest.raises(NotFittedError):
        make(name).queries_for(CODES)
    with pytest.raises(NotFittedError):
        make(name).save(tmp_path / "none.ranker")
    assert not list(tmp_path.iterdir())


@every_ranker
def test_clone_and_set_params(name, fitted):
    again = clone(fitted[name])
    assert not hasattr(again, "n_bits_")
    assert again.get_params() == fitted[name].get_params()
    again.set_params(**fitted[name].get_params())
    np.testing.assert_array_equal(
        again.fit(CODES, Y, **evidence(name)).queries_for(CODES).weights, fitted[name].queries_for(CODES).weights
    )


@every_ranker
def test_grid_search(name):
    if name in NEEDS_REALS:
        pytest.skip("a grid search hands on codes and labels alone, and these rankers need reals")
    search = GridSearchCV(make(name), {"n_bits": [N_BITS]}, cv=2).fit(CODES, Y)
    assert 0 < search.best_score_ <= 1
    assert search.best_estimator_.n_bits_ == N_BITS


# scikit-learn's checks that do not apply, each with its reason.
FLOATS = "fits matrices of floats or objects; a ranker takes packed uint8 codes and refuses them with a ValueError"
WORDING = "wants other words in the error for such a matrix than 'codes must be a packed uint8 matrix'"
EXCEPTIONS = {
    "check_array_api_input": "fits arrays of other libraries",
    **dict.fromkeys(
        (
            "check_dict_unchanged",
            "check_dont_overwrite_parameters",
            "check_dtype_object",
            "check_estimators_dtypes",
            "check_estimators_fit_returns_self",
            "check_estimators_overwrite_params",
            "check_estimators_pickle",
            "check_f_contiguous_array_estimator",
            "check_fit2d_predict1d",
            "check_fit_check_is_fitted",
            "check_fit_idempotent",
            "check_fit_score_takes_y",
            "check_methods_sample_order_invariance",
            "check_methods_subset_invariance",
            "check_n_features_in",
            "check_n_features_in_after_fitting",
            "check_pipeline_consistency",
            "check_positive_only_tag_during_fit",
            "check_readonly_memmap_input",
        ),
        FLOATS,
    ),
    **dict.fromkeys(
        (
            "check_complex_data",
            "check_estimator_sparse_array",
            "check_estimator_sparse_matrix",
            "check_estimator_sparse_tag",
            "check_estimators_empty_data_messages",
            "check_estimators_nan_inf",
            "check_fit2d_1feature",
            "check_fit2d_1sample",
        ),
        WORDING,
    ),
}


@every_ranker
def test_scikit_learn_checks(name):
    n_run = 0
    for estimator, check in estimator_checks_generator(make(name), legacy=True):
        if check.func.__name__ not in EXCEPTIONS:
            check(estimator)
            n_run += 1
    assert n_run >= 10


def test_names_of_the_package():
    assert set(RANKERS) <= set(bitrank.ranking.__all__)
