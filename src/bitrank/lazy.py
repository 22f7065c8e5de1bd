"""Imports on first use: names of packages, since scikit-learn alone takes a second to load, and modules of extras."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def attach(package: str, homes: dict[str, tuple[str, ...]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, from its names by the modules in it that define them.

    Examples
    --------
    >>> get, names = attach("bitrank", {"codes": ("pack", "unpack")})
    >>> names(), get("pack").__module__
    (['pack', 'unpack'], 'bitrank.codes')
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home_of[name]}"), name)

    return get, lambda: sorted(home_of)


def import_extra(module: str, extra: str) -> Any:
    """Import a module that an extra installs, or raise an error that says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        name = error.name or module
        raise ModuleNotFoundError(f"this needs {name}: pip install 'bitrank[{extra}]'", name=name) from None
