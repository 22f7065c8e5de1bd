# make demo and make test are the README's two commands; each makes its own virtualenv in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt $(wildcard src/kernel/*)

.PHONY: demo test check bench-learning clean

demo: $(VENV)/demo.installed
	$(BIN)/bitrank demo

test: $(VENV)/test.installed
	$(BIN)/python -m pytest

check: $(VENV)/check.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py

bench-learning: $(VENV)/test.installed
	$(BIN)/python benchmarks/learning.py

clean:
	rm -rf $(VENV) build dist

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp an extra; an editable install, built again when the build files or the kernel change.
$(VENV)/%.installed: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$(if $(filter check,$*),test$(,)check,$*)]"
	touch $@

, := ,
