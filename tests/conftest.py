"""Fixtures of several test modules, workers and their threads, and the number of examples per property.

Neither this module nor its plugins import an extra: without one its tests are skipped.
"""

import gc
import json
import os
import signal
import threading
import urllib.error
from types import SimpleNamespace

import hypothesis
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from bitrank import ITQ, QueryVectorRanker
from bitrank.core.checks import n_threads
from bitrank.core.codes import distances
from bitrank.core.metrics import average_precision, precision_at
from bitrank.datasets import digits

pytest_plugins = ["clickhouse_http", "loopback_service", "milvus_server", "missing_extras", "postgres_server"]

# Workers share the cores: one BLAS thread here, in what is imported later, and in the processes that tests start,
# unless the environment says otherwise, as a row of scripts/test_processors.py does.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
threadpool_limits(int(os.environ["OPENBLAS_NUM_THREADS"]))

os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")

# What a script starts in the background ignores interrupts, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("few", max_examples=10, deadline=None, derandomize=True)
hypothesis.settings.register_profile("all", max_examples=100, deadline=None, derandomize=True)
hypothesis.settings.load_profile("few")


# What is imported for the tests stays: the collector of garbage need not look through it while they are collected, nor
# later.
gc.disable()


def pytest_collection_finish():
    """Collect garbage as usual from here on."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Start one worker per core that this process may use, and one more: tests of servers often wait."""
    return n_threads() + 1


@pytest.fixture
def working_folder(tmp_path, monkeypatch):
    """An empty folder as the working directory, and no token in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BITRANK_TOKEN", raising=False)
    return tmp_path


@pytest.fixture
def printed_json(capsys):
    """Parse what was printed since the last call."""
    return lambda: json.loads(capsys.readouterr().out)


@pytest.fixture(scope="session")
def itq_digits():
    """1200 digits to learn from and 800 others to rank, as ITQ codes of 32 bits with the values before the sign."""
    images, labels = digits()
    X = images[:2000].reshape(2000, -1).astype(np.float32)
    hasher = ITQ(n_bits=32, random_state=0).fit(X[:1200])
    codes, values = hasher.transform(X), hasher.project(X)
    learn, test = slice(0, 1200), slice(1200, 2000)

    def figures(weights=None, query_codes=None):
        """MAP and precision at 10 over the test rows, each a query for the others."""
        searched = codes[test] if query_codes is None else query_codes
        found = distances(searched, codes[test], weights).astype(np.float32)
        relevant = labels[test][:, None] == labels[test]
        np.fill_diagonal(found, np.inf)
        np.fill_diagonal(relevant, False)
        return average_precision(found, relevant).mean(), precision_at(found, relevant, 10).mean()

    return SimpleNamespace(
        codes=codes[learn],
        y=labels[learn],
        values=values[learn],
        queries=codes[test],
        query_y=labels[test],
        query_values=values[test],
        figures=figures,
    )


@pytest.fixture(scope="session")
def featured():
    """Digits, a hasher of few bits, and a ranker for which the gate chose the pixels as features."""
    images, labels = digits()
    X = images[:460].reshape(460, -1).astype(np.float32)
    hasher = ITQ(n_bits=16, random_state=0).fit(X)
    ranker = QueryVectorRanker(n_steps=30, n_hidden=16, random_state=0)
    ranker.fit(hasher.transform(X[:400]), labels[:400], queries=hasher.project(X[:400]), features=X[:400])
    assert ranker.full_part_.inputs.with_features
    assert ranker.full_part_.blend > 0
    return SimpleNamespace(items=X[:400], queries=X[400:], labels=labels[:460], hasher=hasher, ranker=ranker)


@pytest.fixture
def datasets_folder(tmp_path, monkeypatch):
    """An empty folder of data sets, without a network."""
    import sklearn.datasets._openml

    monkeypatch.setenv("BITRANK_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "scikit-learn"))
    (tmp_path / "data").mkdir()

    def refuse(request, *args, **kwargs):
        raise urllib.error.URLError("no network in tests")

    monkeypatch.setattr(sklearn.datasets._openml, "urlopen", refuse)
    monkeypatch.setattr(sklearn.datasets._openml.time, "sleep", lambda seconds: None)
    return tmp_path / "data"
