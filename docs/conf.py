"""The documentation site; `make docs` builds it."""

import atexit
import os
import sys
from pathlib import Path

import bitrank

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from postgres_server import PostgresServer

project = "bitrank"
author = "The bitrank developers"
copyright = "The bitrank developers"  # noqa: A001
version = release = bitrank.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc", "sphinx_gallery.gen_gallery"]
templates_path = ["_templates"]
exclude_patterns = ["tutorials/*", "_templates/*"]
default_role = "py:obj"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

autosummary_generate = True
autodoc_mock_imports = ["cupy", "cupyx", "haystack", "langchain_core", "mteb"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "inherited-members": True, "show-inheritance": True}
numpydoc_show_class_members = False

if "DATABASE_URL" not in os.environ:  # the tutorial on PostgreSQL needs a server
    server = PostgresServer()
    atexit.register(server.remove)
    os.environ["DATABASE_URL"] = server.start().url()
sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "generated/tutorials",
    "filename_pattern": "",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "write_computation_times": False,
    "show_memory": False,
    "min_reported_time": float("inf"),
}

html_theme = "furo"
html_title = "bitrank"
html_show_sphinx = False


def _skip(app, what, name, obj, skip, options):
    """Leave out what scikit-learn, tuples and exceptions bring along."""
    module = getattr(obj, "__module__", None)
    return True if module is not None and not module.startswith("bitrank") else None


def setup(app):
    """Connect the filter of members."""
    app.connect("autodoc-skip-member", _skip)
