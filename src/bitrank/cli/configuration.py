"""Options of a command from the command line, the environment or a TOML file, in this order."""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_BOOLEANS = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off", ""), False)


def complete(
    arguments: argparse.Namespace, options: list[argparse.Action], defaults: Mapping[str, Any], config: Path | None
) -> argparse.Namespace:
    """Fill options that the command line left open: from BITRANK_SERVE_NAME, from a TOML file, or with the default.

    Parameters
    ----------
    arguments : Namespace
        Options that were not given are None, or an empty list.
    options : list of argparse actions
    defaults : mapping
        Default of each option; None where it is missing.
    config : Path, optional
        TOML file with the names of options, - or _ between words.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> option = parser.add_argument("--port", type=int)
    >>> complete(parser.parse_args([]), [option], {"port": 8000}, None).port
    8000
    """
    table = {} if config is None else _read(config)
    unknown = set(table) - {option.dest for option in options}
    if unknown:
        raise ValueError(f"{config} must hold options of this command, got {min(unknown)!r}")
    filled = argparse.Namespace(**vars(arguments))
    for option in options:
        if getattr(arguments, option.dest) not in (None, []):
            continue
        variable = f"BITRANK_SERVE_{option.dest.upper()}"  # BITRANK_DATA is the folder of data sets
        value = defaults.get(option.dest, getattr(arguments, option.dest))
        if variable in os.environ:
            value = _checked(option, _from_text(option, os.environ[variable]), variable)
        elif option.dest in table:
            value = _checked(option, table[option.dest], f"{option.dest} of {config}")
        setattr(filled, option.dest, value)
    return filled


def _read(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be TOML: {error}") from None
    return {name.replace("-", "_"): value for name, value in table.items()}


def _from_text(option: argparse.Action, text: str) -> Any:
    """A value as a TOML file would give it."""
    if isinstance(option, argparse._AppendAction):
        return [part.strip() for part in text.split(",") if part.strip()]
    return _BOOLEANS.get(text.lower(), text) if option.nargs == 0 else text


def _checked(option: argparse.Action, value: Any, name: str) -> Any:
    is_flag, is_list = option.nargs == 0, isinstance(option, argparse._AppendAction)
    if is_flag != isinstance(value, bool):
        raise ValueError(f"{name} must be {'true or false' if is_flag else 'no boolean'}, got {value!r}")
    if is_list != isinstance(value, list):
        raise ValueError(f"{name} must be {'a list' if is_list else 'one value'}, got {value!r:.60}")
    if isinstance(value, list):
        return [_convert(option, str(part), name) for part in value]
    return value if is_flag else _convert(option, str(value), name)


def _convert(option: argparse.Action, text: str, name: str) -> Any:
    convert: Any = option.type or str
    try:
        value = convert(text)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a value of {option.option_strings[0]}, got {text!r:.60}") from None
    if option.choices is not None and value not in option.choices:
        raise ValueError(f"{name} must be one of {', '.join(map(str, option.choices))}, got {text!r:.60}")
    return value
