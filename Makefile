# make demo and make test are the README's two commands; each makes its own virtualenv in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt $(wildcard src/kernel/*)

.PHONY: demo test test-lowest check bench-learning clean

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

bench-learning: $(VENV)/test.installed
	$(BIN)/python benchmarks/learning.py

clean:
	rm -rf $(VENV) $(VENV)-lowest build dist

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp an extra; an editable install, built again when the build files or the kernel change.
$(VENV)/%.installed: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$(if $(filter check,$*),test$(,)check,$*)]"
	touch $@

, := ,
