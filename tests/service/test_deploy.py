"""The files of deploy/: checked as far as that goes without a container engine and without systemd as init."""

import argparse
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bitrank.cli import make_parser

ROOT = Path(__file__).parents[2]
UNIT, CONTAINERFILE = ROOT / "deploy" / "bitrank.service", ROOT / "deploy" / "Containerfile"


def test_the_unit_runs_a_command_that_exists():
    command = re.search(r"^ExecStart=\S+/bitrank (.*)$", UNIT.read_text().replace("\\\n", ""), re.M)[1].split()
    assert make_parser().parse_args(command).command == "serve"


def test_systemd_takes_the_unit(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    program = tmp_path / "bitrank"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "bitrank.service"
    unit.write_text(UNIT.read_text().replace("/usr/local/bin/bitrank", str(program)))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=600
    )
    assert "bitrank.service" not in checked.stderr, checked.stderr


def test_the_containerfile_copies_what_exists_and_names_real_options():
    text = CONTAINERFILE.read_text()
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.M):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
    ignored = (ROOT / ".containerignore").read_text().split()
    copied = {part.split("/")[0] for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.M) for part in line.split()}
    assert not copied & set(ignored)
    commands = next(action for action in make_parser()._actions if isinstance(action, argparse._SubParsersAction))
    options = {action.dest for action in commands.choices["serve"]._actions}
    for variable in re.findall(r"BITRANK_SERVE_([A-Z_]+)=", text):
        assert variable.lower() in options
    project = (ROOT / "pyproject.toml").read_text()
    for extra in re.search(r"\.\[([a-z,]+)\]", text)[1].split(","):
        assert re.search(rf"^{extra} = \[", project, re.M)
