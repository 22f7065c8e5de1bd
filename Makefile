# make demo and make test are the README's two commands; each makes its own virtualenv in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt $(wildcard src/kernel/*)

.PHONY: demo test test-lowest check reproduce reproduce-quick clean

demo: $(VENV)/demo.installed
	$(BIN)/bitrank demo

test: $(VENV)/test.installed
	$(BIN)/python -m pytest

# The same with the lowest versions that pyproject.toml allows, in a virtualenv of its own.
LOWEST := numpy==2.0.* scipy==1.13.* scikit-learn==1.6.* matplotlib==3.9.*
test-lowest:
	test -d $(VENV)-lowest || $(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[test]" $(LOWEST)
	$(VENV)-lowest/bin/python -m pytest

check: $(VENV)/check.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py

# Computes the cells that have no file yet; remove experiments/results/cells to run everything anew.
reproduce: $(VENV)/demo.installed
	$(BIN)/python -m experiments.run
	$(BIN)/python -m experiments.report

# The embedded digits alone, two seeds, from nothing.
QUICK := build/reproduce-quick
reproduce-quick: $(VENV)/demo.installed
	rm -rf $(QUICK)
	$(BIN)/python -m experiments.run --plan quick --results $(QUICK)
	$(BIN)/python -m experiments.report --plan quick --results $(QUICK) --output $(QUICK)

clean:
	rm -rf $(VENV) $(VENV)-lowest build dist

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp an extra; an editable install, built again when the build files or the kernel change.
$(VENV)/%.installed: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$(if $(filter check,$*),test$(,)check,$*)]"
	touch $@

, := ,
