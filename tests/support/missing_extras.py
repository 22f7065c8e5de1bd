"""Skip what an extra is missing for, so that the tests of the core run where nothing else is installed."""

from importlib.util import find_spec

import pytest

# Packages of the extras, and those that only tests use.
PACKAGES = """
chdb clickhouse_connect cupy dask distributed duckdb faiss fastapi haystack httptools httpx langchain_core
langchain_tests llama_index matplotlib msgspec mteb pandas PIL playwright prometheus_client psycopg pyarrow pydantic
pymilvus qdrant_edge quadprog schemathesis sqlalchemy usearch uvicorn
"""
MISSING = {name for name in PACKAGES.split() if find_spec(name) is None}


def skip_if_missing(error):
    """Skip after the failed import of a package of an extra; return after any other error."""
    package = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and package in MISSING:
        pytest.skip(f"needs {package}", allow_module_level=True)


class Module(pytest.Module):
    """A test module that is skipped where a package that it imports is missing."""

    def collect(self):
        try:
            return super().collect()
        except self.CollectError as error:
            skip_if_missing(error.__cause__)
            raise


def pytest_pycollect_makemodule(module_path, parent):
    return Module.from_parent(parent, path=module_path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup():
    try:
        return (yield)
    except ModuleNotFoundError as error:
        skip_if_missing(error)
        raise


pytest_runtest_call = pytest_runtest_setup
