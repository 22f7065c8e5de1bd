"""Forms of embeddings: each against the formula of the library that writes it, and mistakes that are caught."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitrank import Index, SignBits
from bitrank.core.codes import from_embeddings, pack
from bitrank.hashing import load_hasher

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 72)).astype(np.float32)
CODES = np.packbits(X > 0, axis=1)


def test_the_forms_of_sentence_transformers_and_providers():
    # sentence_transformers.util.quantize_embeddings, precision "ubinary" and "binary"
    ubinary = np.packbits(X > 0).reshape(30, -1)
    binary = (np.packbits(X > 0).reshape(30, -1) - 128).astype(np.int8)
    for form, embeddings in {"ubinary": ubinary, "binary": binary, "float": X, "signs": np.sign(X)}.items():
        np.testing.assert_array_equal(from_embeddings(embeddings, form), CODES)
        np.testing.assert_array_equal(from_embeddings(embeddings.tolist(), form), CODES)  # as JSON brings them
    int8 = np.rint(127 * X / np.abs(X).max()).astype(np.int8)
    np.testing.assert_array_equal(from_embeddings(int8, "float"), np.packbits(int8 > 0, axis=1))


@given(st.integers(1, 40), st.integers(1, 6), st.randoms())
def test_every_form_gives_the_same_codes(n_bits, n, random):
    bits = np.random.default_rng(random.randrange(2**32)).integers(0, 2, (n, n_bits)).astype(bool)
    codes = np.packbits(bits, axis=1)
    forms = {
        "float": np.where(bits, 0.25, -0.5),
        "bits": bits.astype(np.int64),
        "signs": np.where(bits, 1, -1),
        "ubinary": codes.astype(np.int64),
        "binary": codes.astype(np.int64) - 128,
        "int8": codes.view(np.int8),
        "little": np.packbits(bits, axis=1, bitorder="little"),
        "text": ["".join("01"[bit] for bit in row) for row in bits.astype(int)],
    }
    for form, embeddings in forms.items():
        np.testing.assert_array_equal(from_embeddings(embeddings, form), codes)


def test_recognised_forms():
    texts = ["".join(map(str, row)) for row in (X > 0).astype(int)]
    for embeddings in (
        X,
        X.astype(np.float16),
        X > 0,
        (X > 0).astype(np.uint8),
        (X > 0) * 1.0,
        np.sign(X),
        CODES,
        texts,
    ):
        np.testing.assert_array_equal(from_embeddings(embeddings), CODES)
    np.testing.assert_array_equal(from_embeddings(CODES.tolist()), CODES)  # bytes over 127 as whole numbers
    assert from_embeddings(CODES[:0]).shape == (0, 9)


@pytest.mark.parametrize(
    ("embeddings", "form", "message"),
    [
        (
            (CODES - 128).view(np.int8),
            "auto",
            'whole numbers from .* as int8, .*give form="binary" for packed bits less',
        ),
        ((CODES.astype(float) - 128), "auto", "must say their form, got whole numbers .* as float64"),
        (CODES & 127, "binary", None),
        (CODES, "binary", "whole numbers from -128 to 127, got uint8 from 0 to 255"),
        (X, "ubinary", "whole numbers from 0 to 255, got float32"),
        (X, "bits", "must be 0 or 1, got values from -"),
        (CODES, "signs", r"must be \+1 or -1, got values from"),
        (X, "text", "must be a list of texts, got float32"),
        (["01", "012"], "auto", "must have one length, got 2 to 3 digits"),
        (["01", "0x"], "auto", "must hold 0 and 1 only, got 'x'"),
        (X, "int4", "form must be one of auto, float, .*, got 'int4'"),
        (X[0], "auto", r"matrix of numbers with one row per item, got float32 of shape \(72,\)"),
        (np.where(X > 3, np.nan, X), "auto", r"embeddings must be finite, got nan in row \d+, column \d+"),
    ],
)
def test_what_is_no_embedding_of_a_form(embeddings, form, message):
    if message is None:
        assert from_embeddings(embeddings, form).shape == CODES.shape
        return
    if "finite" in message:
        embeddings[2, 3] = np.nan
    with pytest.raises(ValueError, match=message):
        from_embeddings(embeddings, form)


def test_faiss_packs_the_first_dimension_into_the_lowest_bit():
    faiss = pytest.importorskip("faiss")
    packed = np.empty((30, 9), np.uint8)
    faiss.real_to_binary(X.size, faiss.swig_ptr(X), faiss.swig_ptr(packed))
    np.testing.assert_array_equal(from_embeddings(packed, "little"), CODES)
    assert (packed != CODES).any()


def test_pgvector_writes_the_first_dimension_first(postgresql_address):
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgresql_address) as connection:
        connection.execute("create extension if not exists vector")
        query = "select binary_quantize(%s::vector)::text"
        texts = [connection.execute(query, [str(row.tolist())]).fetchone()[0] for row in X[:5]]
    np.testing.assert_array_equal(from_embeddings(texts), CODES[:5])


def test_an_index_answers_embeddings_in_four_lines():
    documents, queries = X, X[:3] + 0.1
    index = Index(from_embeddings(documents))
    ids, distances = index.search(queries, k=5)
    assert ids[:, 0].tolist() == [0, 1, 2]
    scores = queries @ np.where(X > 0, 1, -1).T
    np.testing.assert_array_equal(ids, np.argsort(-scores, axis=1, kind="stable")[:, :5])
    assert distances.shape == (3, 5)


def shifted(n, seed):
    """Embeddings whose dimensions have means of their own, as those of texts have."""
    means = np.random.default_rng(100).normal(size=96) * 0.7
    return np.random.default_rng(seed).normal(size=(n, 96)) + means


def test_sign_bits_of_providers():
    train, others = shifted(500, 0), shifted(300, 1)
    hasher = SignBits(threshold="zero").fit(train)
    np.testing.assert_array_equal(hasher.transform(others), from_embeddings(others))
    np.testing.assert_allclose(hasher.project(others), others, rtol=1e-6)
    with pytest.raises(
        ValueError, match='threshold must be "mean", "zero" or "auto", got "zeros"'.replace('"zeros"', "'zeros'")
    ):
        SignBits(threshold="zeros").fit(train)


def test_a_centred_hasher_refuses_codes_that_were_not_centred(tmp_path):
    train, others = shifted(500, 0), shifted(300, 1)
    centred, plain = SignBits().fit(train), SignBits(threshold="zero").fit(train)
    centred.check_codes(centred.transform(others))
    plain.check_codes(plain.transform(others))
    assert np.unpackbits(centred.transform(others) ^ plain.transform(others)).mean() > 0.05
    with pytest.raises(ValueError, match=r'codes that look like signs .* not centred .*"zero"'):
        centred.check_codes(plain.transform(others))
    with pytest.raises(ValueError, match="codes of 96 bits must be 12 bytes wide, got 3"):
        centred.check_codes(np.zeros((2, 3), np.uint8))
    centred.check_codes(plain.transform(others[:20]))  # too few to tell
    unshifted = np.random.default_rng(5).normal(size=(500, 96))
    SignBits().fit(unshifted).check_codes(from_embeddings(unshifted))  # centring hardly matters there


def test_the_service_refuses_a_hasher_that_does_not_fit_the_codes(tmp_path):
    sources = pytest.importorskip("bitrank.service.sources", exc_type=ModuleNotFoundError)
    texts = shifted(500, 0)
    Index(from_embeddings(texts)).save(tmp_path / "texts.index")
    for threshold in ("mean", "zero"):
        SignBits(threshold=threshold).fit(texts).save(tmp_path / f"{threshold}.npz")
    assert sources.from_folder(tmp_path / "texts.index", hasher=tmp_path / "zero.npz").hasher is not None
    with pytest.raises(ValueError, match=r'use SignBits\(threshold="zero"\)'):
        sources.from_folder(tmp_path / "texts.index", hasher=tmp_path / "mean.npz")


def test_files_of_before_the_threshold_still_load(tmp_path):
    hasher = SignBits().fit(X)
    hasher.save(tmp_path / "new.npz")
    with np.load(tmp_path / "new.npz") as file:
        np.savez(tmp_path / "old.npz", **{**file, "params": "{}"})
    assert load_hasher(tmp_path / "old.npz").threshold == "mean"
    SignBits(threshold="zero").fit(X).save(tmp_path / "zero.npz")
    np.testing.assert_array_equal(load_hasher(tmp_path / "zero.npz").transform(X), CODES)


def test_pack_names_the_function_for_other_forms():
    with pytest.raises(ValueError, match=r"bits must be 0 or 1, got .*see bitrank.core.codes.from_embeddings"):
        pack(np.sign(X))
