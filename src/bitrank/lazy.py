"""Names that a package offers and imports when they are first asked for: scikit-learn alone takes a second to load.

So the command line, the service and whoever only searches start at once. A package calls `attach` and imports the same
names for type checkers.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def attach(package: str, homes: dict[str, tuple[str, ...]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for a package: the names by the modules in it that define them.

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
    """A module that an extra installs, or an error that says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f"this needs {module}: pip install 'bitrank[{extra}]'") from None
