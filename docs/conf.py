"""The documentation site; `make docs` builds it."""

import bitrank

project = "bitrank"
author = "The bitrank developers"
copyright = "The bitrank developers"  # noqa: A001
version = release = bitrank.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc"]
templates_path = ["_templates"]
exclude_patterns = ["tutorials/*", "_templates/*"]
default_role = "py:obj"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

autosummary_generate = True
autodoc_mock_imports = ["cupy", "cupyx"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "inherited-members": True, "show-inheritance": True}
numpydoc_show_class_members = False

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
