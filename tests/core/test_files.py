"""Arrays in plain files."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bitrank.core.files import read_array, read_npz, replacing, write_array

ARRAYS = st.one_of(
    hnp.arrays(np.float32, hnp.array_shapes(min_dims=1, max_dims=2), elements=st.floats(0, 1e9, width=32)),
    hnp.arrays(np.int64, hnp.array_shapes(min_dims=1, max_dims=2)),
)


@pytest.mark.parametrize("kind", [".npy", ".csv", ".json"])
@given(array=ARRAYS)
def test_what_is_written_is_read(tmp_path_factory, kind, array):
    path = tmp_path_factory.mktemp("arrays") / f"a{kind}"
    write_array(path, array)
    again = read_array(path)
    np.testing.assert_array_equal(again.reshape(array.shape), array)
    assert (again.dtype.kind == "i") == (array.dtype.kind == "i")


def test_labels_may_be_texts(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("cat\ndog\ncat\n")
    assert read_array(path).tolist() == ["cat", "dog", "cat"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "1", "must end in .npy, .csv, .json"),
        ("a.json", "{", "a.json: "),
        ("a.json", '{"a": 1}', "expected numbers or texts"),
        ("a.json", "[[1], [1, 2]]", "a.json: "),
        ("a.npy", "nonsense", "a.npy: "),
        ("a.csv", "1,2\n3\n", "a.csv: "),
    ],
)
def test_other_files_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        read_array(tmp_path / name)


def test_nothing_is_unpickled(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        read_array(tmp_path / "a.npy")


def test_npz_of_some_names_and_damaged_files(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(3), y=np.ones(2))
    assert list(read_npz(tmp_path / "a.npz")) == ["x", "y"]
    assert list(read_npz(tmp_path / "a.npz", names=["y", "z"])) == ["y"]
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:99])
    with pytest.raises(ValueError, match=r"a\.npz must be a toy, got one that cannot be read"):
        read_npz(tmp_path / "a.npz", what="a toy")
    with pytest.raises(FileNotFoundError):
        read_npz(tmp_path / "b.npz")


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    (tmp_path / "notes").write_bytes(b"old")
    with pytest.raises(TypeError), replacing(tmp_path / "notes") as file:
        file.write("not bytes")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_other_endings_are_not_written(tmp_path):
    with pytest.raises(ValueError, match=r"must end in"):
        write_array(tmp_path / "w.txt", np.ones(2))
    assert not list(tmp_path.iterdir())
