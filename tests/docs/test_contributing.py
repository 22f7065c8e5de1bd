"""The worked examples of CONTRIBUTING.md: one new file and one line in a registry, and every contract test runs on it.

Each example is applied to a copy of the package, and the contract tests run in a process that imports the copy.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from bitrank import _kernel

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n# (src/bitrank/\S+\.py)(?:, in (\w+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Tests of a registry's contract, and the pattern of the functions that run on every entry.
CONTRACTS = {
    "HASHERS": ("hashing/test_hashing.py", r"^@every_\w+\n(?:@.*\n)*def (\w+)"),
    "RANKERS": ("ranking/test_rankers.py", r"^@every_\w+\n(?:@.*\n)*def (\w+)"),
    "ENGINES": ("engines/test_engines.py", r"^def (test_\w+)\((?:scheme, )?(?:connect|any_index)\b"),
}
# An editable install finds its modules before any path does.
CUSTOMIZE = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in type(f).__module__]"


def test_table_names_every_room_in_the_order_of_the_layers():
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"][
        0
    ]
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text[text.index("| room in") : text.index("| elsewhere")]
    rows = [re.findall(r"`(\w+)(?:/|\.py)`", line.split("|")[1]) for line in table.splitlines()[2:] if line]
    named = [room for row in rows for room in row]
    assert len(named) == len(set(named))
    position = 0
    for layer in layers["layers"]:
        rooms = set(layer.split(" | "))
        assert set(named[position : position + len(rooms)]) == rooms
        position += len(rooms)
    assert position == len(named)


def examples():
    """The blocks of the page, in order: path of the file, name of the registry or None, and text."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return [match.groups() for match in BLOCK.finditer(text)]


@pytest.fixture
def copied_package(tmp_path):
    """A folder to import a copy of bitrank from."""
    for package in ("bitrank", "bitrank_papers"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src" / package, tmp_path / "src" / package, ignore=ignore)
    shutil.copy(_kernel.__file__, tmp_path / "src" / "bitrank")
    (tmp_path / "src" / "sitecustomize.py").write_text(CUSTOMIZE)
    return tmp_path


@pytest.mark.parametrize(
    "registry", ["HASHERS", *(pytest.param(name, marks=pytest.mark.slow) for name in ("RANKERS", "ENGINES"))]
)
def test_example(copied_package, registry):
    blocks = examples()
    number = [block[1] for block in blocks].index(registry)
    (new_file, _, source), (registry_file, _, line) = blocks[number - 1 : number + 1]
    assert len(line.splitlines()) == 1
    target = copied_package / registry_file
    before = target.read_text()
    opening = f"{registry} = {{\n"
    assert before.count(opening) == 1
    target.write_text(before.replace(opening, opening + line))
    assert not (copied_package / new_file).exists()
    (copied_package / new_file).write_text(source)

    name = re.search(r'^ *"(\w+)"', line)[1]
    contract, pattern = ROOT / "tests" / CONTRACTS[registry][0], CONTRACTS[registry][1]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", contract, "-k", name],
        cwd=copied_package,
        env={**os.environ, "PYTHONPATH": str(copied_package / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    expected = re.findall(pattern, contract.read_text(encoding="utf-8"), re.MULTILINE)
    passed = re.findall(rf"^PASSED .*::(\w+)\[.*{name}", done.stdout, re.MULTILINE)
    assert expected
    assert set(expected) <= set(passed)
