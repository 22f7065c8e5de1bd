"""Files of hashers: damaged, cut off, or of another format."""

import json

import numpy as np
import pytest
from hashers import repeatable, vectors
from hypothesis import given, settings
from hypothesis import strategies as st

from bitrank.hashing import ITQ, SpectralHashing, load_hasher


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_hasher(tmp_path / "nothing")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A file of the hasher with most arrays, and its codes."""
    path = tmp_path_factory.mktemp("saved") / "file"
    hasher = SpectralHashing(n_bits=4).fit(vectors(d=5))
    hasher.save(path)
    return path, hasher.transform(vectors(d=5))


@repeatable
@given(data=st.data())
def test_cut_off_files(saved, data):
    path, _ = saved
    content = path.read_bytes()
    cut = path.with_name("cut")
    cut.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(ValueError, match="must be a file of a bitrank hasher"):
        load_hasher(cut)


@settings(repeatable, max_examples=3 * settings.default.max_examples)
@given(data=st.data())
def test_damaged_files_never_give_other_codes(saved, data):
    path, codes = saved
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    damaged = path.with_name("damaged")
    damaged.write_bytes(content)
    try:
        loaded = load_hasher(damaged)
    except ValueError as error:
        outcome = str(error)
    else:
        np.testing.assert_array_equal(loaded.transform(vectors(d=5)), codes)
        outcome = "must be a file of a bitrank hasher"
    assert "must be a file of a bitrank hasher" in outcome


@pytest.mark.parametrize("kind", ["text", "npy", "pickle", "other npz"])
def test_other_files(kind, tmp_path):
    path = tmp_path / "file"
    with open(path, "wb") as file:
        if kind == "text":
            file.write(b"not a hasher at all\n" * 10)
        elif kind == "npy":
            np.save(file, np.ones(3))
        elif kind == "pickle":
            np.savez(file, format=np.array([{}], dtype=object))
        else:
            np.savez(file, mean_=np.ones(3))
    with pytest.raises(ValueError, match="must be a file of a bitrank hasher"):
        load_hasher(path)


PARAMS = {"n_bits": 4, "n_iter": 50, "random_state": 0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "something else"}, "must be a file of a bitrank hasher"),
        ({"version": 2}, "must have format version 1, got 2"),
        ({"header": None}, "must be a file of a bitrank hasher"),
        ({"header": "{"}, "must hold a header of name, params and facts"),
        ({"name": "Perceptron"}, "a hasher must be one of LSH, .*got 'Perceptron'"),
        ({"name": ["ITQ", "LSH"]}, "must hold a header of name, params and facts"),
        ({"name": "SpectralHashing"}, "expected the parameters of SpectralHashing"),
        ({"params": [1]}, "must hold a header of name, params and facts"),
        ({"params": {"n_bits": 4}}, "expected the parameters of ITQ"),
        ({"params": PARAMS | {"n_bits": 0}}, "n_bits must be an int"),
        ({"params": PARAMS | {"n_bits": 5}}, r"expected components_ of shape \(6, 5\), got \(6, 4\)"),
        ({"params": PARAMS | {"n_iter": -1}}, "n_iter must be an int"),
        ({"mean_": None}, "expected an array mean_ of floats, got None"),
        ({"mean_": np.zeros((6, 1))}, r"expected mean_ with 1 dimensions, got shape \(6, 1\)"),
        ({"mean_": np.zeros(5)}, r"expected components_ of shape \(5, 4\), got \(6, 4\)"),
        ({"mean_": np.zeros(0)}, r"expected components_ of shape \(0, 4\)"),
        ({"components_": np.full((6, 4), np.nan)}, "expected finite values in components_"),
        ({"components_": np.full((6, 4), "a")}, "expected an array components_ of floats"),
        ({"feature_names_in_": np.array(["a"])}, "expected 6 feature names"),
        ({"feature_names_in_": np.zeros(6)}, "expected 6 feature names"),
    ],
)
def test_wrong_entries(change, message, tmp_path):
    change = dict(change)
    path = tmp_path / "file"
    ITQ(n_bits=4, random_state=0).fit(vectors(d=6)).save(path)
    with np.load(path) as archive:
        entries = dict(archive)
    header = json.loads(str(entries["header"]))
    entries["header"] = json.dumps(header | {name: change.pop(name) for name in ("name", "params") if name in change})
    entries |= change
    with open(path, "wb") as file:
        np.savez(file, **{name: value for name, value in entries.items() if value is not None})
    with pytest.raises(ValueError, match=message):
        load_hasher(path)
