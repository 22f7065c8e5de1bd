"""Parquet folders as Dask arrays, and back."""

import os

import dask
import dask.array as da
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import bitrank.dask
from bitrank import Index


@pytest.fixture(autouse=True)
def in_this_process():
    """Run tasks in this process, one after the other."""
    with dask.config.set(scheduler="synchronous"):
        yield


def test_parquet_there_and_back(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        "code": rng.integers(0, 256, (100, 3), dtype=np.uint8),
        "vector": rng.normal(size=(100, 5)).astype(np.float32),
        "id": rng.permutation(1000)[:100],
        "label": rng.random(100),
    }
    bitrank.dask.to_parquet(
        {
            name: da.from_array(array, chunks=((30, 70), -1) if array.ndim == 2 else ((30, 70),))
            for name, array in arrays.items()
        },
        tmp_path / "there",
    )
    assert sorted(os.listdir(tmp_path / "there")) == ["part-000000.parquet", "part-000001.parquet"]
    for name, array in arrays.items():
        found = bitrank.dask.from_parquet(tmp_path / "there", name)
        assert found.chunks[0] == (30, 70)
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found.compute(), array)
    results = bitrank.dask.search(bitrank.dask.from_parquet(tmp_path / "there"), arrays["code"][:2], 5)
    np.testing.assert_array_equal(results.ids, Index(arrays["code"]).search(arrays["code"][:2], 5).ids)


def test_a_row_group_is_a_block_and_files_go_by_name(tmp_path):
    codes = np.arange(200, dtype=np.uint8).reshape(100, 2)
    for name, part in (("b", codes[60:]), ("a", codes[:60]), ("c", codes[:0])):
        table = pyarrow.table({"code": pyarrow.array([row.tobytes() for row in part], pyarrow.binary())})
        pyarrow.parquet.write_table(table, tmp_path / f"{name}.parquet", row_group_size=25)
    found = bitrank.dask.from_parquet(tmp_path)
    assert found.chunks[0] == (25, 25, 10, 25, 15)
    np.testing.assert_array_equal(found.compute(), codes)


def write(path, **columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def test_bad_parquet_is_a_value_error(tmp_path):
    write(tmp_path / "1.parquet", code=[b"ab"], nulls=[b"ab"], text=["a"])
    write(tmp_path / "2.parquet", code=[b"abc"], nulls=[None], text=["b"])
    for column, message in {"absent": "column 'absent'", "text": "binary values or lists of numbers"}.items():
        with pytest.raises(ValueError, match=message):
            bitrank.dask.from_parquet(tmp_path, column)
    for column, message in {"code": r"shape \(2,\) in every file", "nulls": "no nulls"}.items():
        with pytest.raises(ValueError, match=message):
            bitrank.dask.from_parquet(tmp_path, column).compute()
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty" / "1.parquet", code=pyarrow.array([], pyarrow.binary()))
    with pytest.raises(ValueError, match="at least one row"):
        bitrank.dask.from_parquet(tmp_path / "empty")


def test_a_folder_is_written_whole_or_not_at_all(tmp_path):
    def fail_in_the_last(block, block_info):
        if block_info[0]["array-location"][0][0] == 20:
            raise OSError("disk gone")
        return block

    codes = da.zeros((30, 2), dtype=np.uint8, chunks=(10, 2)).map_blocks(fail_in_the_last, dtype=np.uint8)
    with pytest.raises(OSError, match="disk gone"):
        bitrank.dask.to_parquet({"code": codes}, tmp_path / "codes")
    assert list(tmp_path.iterdir()) == []
    bitrank.dask.to_parquet({"code": codes[:20]}, tmp_path / "codes")
    with pytest.raises(ValueError, match="must be a new folder"):
        bitrank.dask.to_parquet({"code": codes[:20]}, tmp_path / "codes")
    assert len(bitrank.dask.from_parquet(tmp_path / "codes")) == 20
