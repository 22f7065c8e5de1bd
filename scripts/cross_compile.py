"""Compile the kernel for other systems with Zig's Clang, file by file with the options of CMakeLists.txt.

`make cross` runs it. Nothing is linked or run: it shows that the kernel's code is accepted there.
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGETS = {  # of Zig, by CMake's name of the processor
    "x86_64": ["x86_64-windows-gnu", "x86_64-macos", "x86_64-linux-musl"],
    "aarch64": ["aarch64-windows-gnu", "aarch64-macos", "aarch64-linux-gnu"],
}


def commands(processor):
    """The compiler's arguments and the source of each file, as CMake would have them for Linux."""
    folder = ROOT / "build" / "cross" / processor
    options = ["-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={processor}", "-DBITRANK_MODULE=OFF"]
    configure = ["cmake", "-S", ROOT, "-B", folder, *options, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        arguments = shlex.split(entry["command"])[1:]
        output = arguments.index("-o")
        yield [*arguments[:output], *arguments[output + 2 :]], Path(entry["file"])


def main():
    failed = 0
    for processor, targets in TARGETS.items():
        sources = list(commands(processor))
        for target in targets:
            folder = ROOT / "build" / "cross" / target
            folder.mkdir(parents=True, exist_ok=True)
            for arguments, source in sources:
                compiler = [sys.executable, "-m", "ziglang", "c++", "-target", target, "-Wno-unknown-warning-option"]
                done = subprocess.run([*compiler, *arguments, "-o", folder / f"{source.stem}.o"], cwd=folder)
                failed += done.returncode != 0
            print(f"{target}: {len(sources)} files")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
