"""Run the tests as other processors would, one row after another; `make test-processors` runs it.

A row changes one factor: the kernel of BLAS, the path of bitrank's kernel, NumPy's own dispatch, the threads of BLAS.
Rows that load the same are one row, and what this processor cannot load is left out. Row 0 is the processor's own.

    python scripts/test_processors.py --rows list                            # the rows of this processor
    python scripts/test_processors.py --rows "blas-haswell kernel-scalar"    # or by number: "1 3"
    python scripts/test_processors.py --learned                              # only tests of what is learned
    python scripts/test_processors.py tests/ranking -k svm                   # the rest goes to pytest
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOADED = """
import json, os
import numpy, scipy.linalg, threadpoolctl
from bitrank import _kernel
numpy.linalg.svd(numpy.random.default_rng(0).normal(size=(300, 300)))  # dies in a kernel that cannot run here
blas = [library for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]
print(json.dumps({
    "BLAS": sorted({f"{library.get('architecture', library['internal_api'])}" for library in blas}),
    "BLAS threads": int(os.environ["OPENBLAS_NUM_THREADS"]),
    "NumPy": numpy.show_config(mode="dicts")["SIMD Extensions"].get("found", []),
    "kernel": os.environ.get("BITRANK_KERNEL") or _kernel.kernel_paths()[-1],
    "kernels": _kernel.kernel_paths(),
}))
"""
# Where matrices are multiplied: what hashers, rankers, collections and clicks learn, and who asks them to. The others
# test searches, which the kernel answers to the last bit alike on every processor, files, requests, pages and words.
LEARNED = [
    *("tests/ranking", "tests/hashing", "tests/collection", "tests/clicks", "tests/dask", "tests/experiments"),
    *("tests/test_golden.py", "tests/service/test_service_learning.py", "tests/service/test_service_bounds.py"),
    *("tests/service/test_service_collection.py", "tests/cli/test_cli_learn.py", "tests/cli/test_cli_demo.py"),
    *("tests/cli/test_cli_collection.py", "tests/docs/test_docs.py", "tests/integrations/test_langchain.py"),
]
BLAS = ["Haswell", "Prescott", "SkylakeX", "Zen", "Sapphirerapids", "NEOVERSEN1", "ARMV8"]  # names that OpenBLAS knows


def processor():
    """The processor by the name that it gives itself."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    except OSError:
        return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    values = {name.strip(): value.strip() for name, value in lines.items()}
    family = ", ".join(f"{name} {values[name]}" for name in ("cpu family", "model", "stepping") if name in values)
    return f"{values.get('model name', platform.machine())} ({family}), {os.cpu_count()} cores"


def loaded(factor):
    """What a process loads under `factor`, environment variables; None where it cannot run."""
    command = [sys.executable, "-W", "error", "-c", LOADED]
    done = subprocess.run(command, env=environment(factor), capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def environment(factor):
    """The environment of a row: what the caller's says about these factors does not count."""
    factors = ("OPENBLAS_CORETYPE", "BITRANK_KERNEL", "NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES")
    kept = {name: value for name, value in os.environ.items() if name not in factors}
    return {**kept, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **factor}


def matrix():
    """What is loaded and the environment variables of each row, by name; the first is the processor's own."""
    own = loaded({})
    found = own["NumPy"]
    factors = {"own": {}}
    factors |= {f"blas-{name.lower()}": {"OPENBLAS_CORETYPE": name} for name in BLAS}
    factors |= {f"kernel-{name}": {"BITRANK_KERNEL": name} for name in own["kernels"]}
    avx512 = [feature for feature in found if feature.startswith(("X86_V4", "AVX512"))]
    factors |= {
        f"numpy-{name}": {"NPY_DISABLE_CPU_FEATURES": " ".join(off)}
        for name, off in (("baseline", found), ("no-avx512", avx512))
    }
    factors["blas-threads"] = {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    rows = {}
    for name, factor in factors.items():
        what = loaded(factor)
        if what is not None and what not in [row for row, _ in rows.values()]:
            rows[name] = what, factor
    return rows


def described(what):
    """One line about what a row loaded."""
    return "; ".join(f"{name} {' '.join(value) if isinstance(value, list) else value}" for name, value in what.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rows", default="", help="names or numbers, separated by spaces, or list; all by default")
    parser.add_argument("--learned", action="store_true", help="only the tests of what is learned")
    arguments, to_pytest = parser.parse_known_args()
    if arguments.learned:
        to_pytest += LEARNED
    rows = matrix()
    for what, _ in rows.values():
        del what["kernels"]
    print(f"Processor: {processor()}")
    for number, (name, (what, _)) in enumerate(rows.items()):
        print(f"{number:2} {name:16} {described(what)}", flush=True)
    names = {str(number): name for number, name in enumerate(rows)} | {name: name for name in rows}
    wanted = arguments.rows.split() or list(rows)
    if wanted == ["list"]:
        return 0
    if unknown := [row for row in wanted if row not in names]:
        parser.error(f"--rows must be names or numbers of the rows above, got {' '.join(unknown)}")
    results = {}
    for name in (names[row] for row in wanted):
        start = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-q", "--durations=0", "--durations-min=60", *to_pytest]
        done = subprocess.run(command, env=environment(rows[name][1]), cwd=ROOT)
        passed = "passed" if done.returncode == 0 else f"FAILED (pytest ends with {done.returncode})"
        results[name] = f"{passed} in {time.monotonic() - start:.0f} s"
        print(f"Row {name}: {results[name]}", flush=True)
    print(f"\nProcessor: {processor()}")
    for name, result in results.items():
        print(f"{name:16} {result:36} {described(rows[name][0])}")
    return 0 if all(result.startswith("passed") for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
