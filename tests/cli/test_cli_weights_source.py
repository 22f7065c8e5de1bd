"""Weights for a command: from files, from an index, and from a running service."""

import numpy as np
import pytest

from bitrank import Index, load_ranker
from bitrank.cli.weights import read_weights
from bitrank.core.codes import pack
from bitrank.core.files import write_array
from bitrank.ranking import AgreementRanker, WhRank

WEIGHTS = np.random.default_rng(1).random(16).astype(np.float32)


def test_files(tmp_path):
    for name in ("w.csv", "w.json", "w.npy"):
        write_array(tmp_path / name, WEIGHTS)
        np.testing.assert_array_equal(read_weights(str(tmp_path / name)), WEIGHTS)


def test_folder_of_an_index(tmp_path):
    codes = np.random.default_rng(0).integers(0, 256, (20, 2), dtype=np.uint8)
    Index(codes, weights=WEIGHTS).save(tmp_path / "weighted")
    Index(codes).save(tmp_path / "plain")
    np.testing.assert_array_equal(read_weights(str(tmp_path / "weighted")), WEIGHTS)
    np.testing.assert_array_equal(read_weights(str(tmp_path / "plain")), np.ones(16))


def test_version_on_a_service(loopback_service, monkeypatch):
    monkeypatch.delenv("BITRANK_TOKEN", raising=False)
    np.testing.assert_array_equal(read_weights(loopback_service.version), loopback_service.weights)
    loopback_service.token = "secret"
    with pytest.raises(ValueError, match="401"):
        read_weights(loopback_service.version)
    monkeypatch.setenv("BITRANK_TOKEN", "secret")
    np.testing.assert_array_equal(read_weights(loopback_service.version), loopback_service.weights)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((2, 3)), "must hold one weight vector, got float64 of shape"),
        (np.ones(0), "must hold one weight vector"),
        (np.array([1.0, -1.0]), "not negative"),
        (np.array(["a", "b"]), "must hold one weight vector"),
    ],
)
def test_other_arrays_are_refused(tmp_path, array, message):
    write_array(tmp_path / "w.json", array)
    with pytest.raises(ValueError, match=message):
        read_weights(str(tmp_path / "w.json"))


def test_rankers(tmp_path):
    values, y = np.random.default_rng(0).normal(size=(40, 16)), np.arange(40) % 4
    for ranker in (WhRank(), AgreementRanker()):
        ranker.fit(pack(values > 0), y, queries=values).save(tmp_path / f"{type(ranker).__name__}.ranker")
    np.testing.assert_array_equal(
        read_weights(str(tmp_path / "WhRank.ranker")), load_ranker(tmp_path / "WhRank.ranker").weights_
    )
    with pytest.raises(ValueError, match="must hold one weight per bit, got a AgreementRanker"):
        read_weights(str(tmp_path / "AgreementRanker.ranker"))
