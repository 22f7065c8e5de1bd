"""What loads when: importing bitrank and searching needs no scikit-learn. `lint-imports` checks the layers."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "start",
    [
        "from bitrank import Index, connect",
        "from bitrank.cli import make_parser; make_parser()",
        "from bitrank.service import process, sources; sources.embedded_digits()",
    ],
)
def test_what_only_searches_starts_without_scikit_learn(start):
    pytest.importorskip("fastapi", reason="the service is an extra")
    slow = {"sklearn", "scipy", "pandas", "matplotlib", "pyarrow"}
    code = f"import sys; {start}; print(sorted({slow!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.strip() == "[]"


def test_the_published_methods_are_imported_when_one_is_asked_for():
    code = (
        "import sys, bitrank.hashing as h, bitrank.ranking as r\n"
        "h.ITQ, h.LSH, r.QueryVectorRanker, r.RankingSVM\n"
        "assert 'bitrank_papers' not in sys.modules\n"
        "print(h.KernelSupervisedHashing.__module__, r.ranker_class('QaRank').__module__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.split() == ["bitrank_papers.ksh", "bitrank_papers.qa_rank"]


@pytest.mark.parametrize("package", ["bitrank", "bitrank.clicks"])
def test_lazy_names_are_those_that_are_offered(package):
    module = __import__(package, fromlist=["__all__"])
    assert sorted(module.__all__) == dir(module)
    for name in module.__all__:
        assert getattr(module, name).__name__ == name
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018
