"""Imports on first use: names of packages, since scikit-learn alone takes a second to load, and modules of extras."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def attach(
    package: str, homes: dict[str, str], names: list[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, from its names and the modules of those to import on first use.

    Examples
    --------
    >>> get, names = attach("bitrank", {"pack": "core.codes"}, ["pack", "__version__"])
    >>> names(), get("pack").__module__
    (['__version__', 'pack'], 'bitrank.core.codes')
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(_full_name(package, homes[name])), name)

    return get, lambda: sorted(names)


def class_by_name(kind: str, name: str, package: str, modules: dict[str, str]) -> Any:
    """Import the class that a registry of class names and their modules lists.

    Examples
    --------
    >>> class_by_name("hasher", "ITQ", "bitrank.hashing", {"ITQ": "itq"}).__name__
    'ITQ'
    """
    if name not in modules:
        raise ValueError(f"a {kind} must be one of {', '.join(modules)}, got {name!r}")
    return getattr(import_module(_full_name(package, modules[name])), name)


def _full_name(package: str, module: str) -> str:
    """A module's full name: modules are named within their package, but for those of `bitrank_papers`."""
    return module if module.startswith("bitrank_papers.") else f"{package}.{module}"


def import_extra(module: str, extra: str) -> Any:
    """Import a module that an extra installs, or raise an error that says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        name = error.name or module
        raise ModuleNotFoundError(f"this needs {name}: pip install 'bitrank[{extra}]'", name=name) from None
