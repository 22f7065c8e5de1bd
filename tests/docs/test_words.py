"""One word, one meaning: words that the project gave up do not come back, in code, docstrings, comments and pages."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "src").rglob("*.[chp]*")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.py")),
    *sorted((ROOT / "examples").rglob("*.*")),
]
FILES = [path for path in FILES if path.suffix in (".py", ".cpp", ".hpp", ".md", ".cu")]

# Patterns of words that are gone: the word in their place, a line that the pattern finds, the paths to look in, and
# what may stand there all the same.
GONE = {
    r"\b(en|em)bedders?\b|\bencoders?\b": (
        "hasher",
        "an encoder",
        "",
        r"sentence encoder|any encoder|cross-encoder|Encoder\(",
    ),
    r"\bcandidates?\b": ("challenger", "a candidate", r"src/bitrank/(ranking|collection)/|docs/learning", ""),
    r"\b(models?|embeds?|trains|retrieve[rs]?)\b": (
        "ranker, learn",
        "the model",
        r"src/bitrank/(ranking|collection)/",
        "",
    ),
    r"\bclusters?\b": ("cell", "a cluster", r"bitrank/(index|collection)/|docs/scale", r"sklearn\.cluster"),
    r"\baliases\b": ("memory", "the aliases of an item", "", ""),
    r"\breach\b": ("limit", "beyond reach", r"src/kernel|src/bitrank/gpu|docs/search", ""),
    r"\bfirst part of (a|the) code\b|\bprefix\b": ("head", "a prefix", r"docs/search|docs/hashing|bitrank/index", ""),
    r"bitrank\.feedback|bitrank\.batch\b|bitrank/(feedback|batch)/": ("clicks, dask", "bitrank.batch", "", ""),
    r"\bvocabulary\b": ("types", "core/vocabulary", "", ""),
    r"\b(Index|Collection|Ranker)\.open\b": ("load", "Index.open(path)", "", ""),
    r"bitrank (fit|index)\b": ("learn, create", "run `bitrank fit`", "", r'bitrank index"|"bitrank index'),
    r"\bGatedRanker\b|\branker_of_weights\b|\bpair_gate\b": ("choose, from_weights", "GatedRanker", "", ""),
    r"\bre-?train(s|ed)?\b": ("learn again", "retrained", r"^(?!docs/results)", ""),
    r"\b(on_top|in_turn|WAYS|_SURE|Witness|hear|lean)\b": ("a noun", "in_turn", "src/", ""),
    r"\bwe know not\b|\bis for ever\b|\bso many first\b": ("plain words", "0 is for ever", "", ""),
}


@pytest.mark.parametrize("gone", GONE)
def test_words_that_are_gone(gone):
    instead, example, where, allowed = GONE[gone]
    word = re.compile(gone, re.IGNORECASE if gone.islower() else 0)
    assert word.search(example)
    found = []
    for path in FILES:
        name = path.relative_to(ROOT).as_posix()
        if not re.search(where, name):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            rest = re.sub(allowed, "", line) if allowed else line
            if word.search(rest):
                found.append(f"{name}:{number}: {line.strip()}")
    assert not found, f"say {instead}:\n" + "\n".join(found)


def test_files_are_found():
    assert {path.suffix for path in FILES} == {".py", ".cpp", ".hpp", ".md", ".cu"}
    assert len(FILES) > 250
