"""Turns of phrase that make a sentence be read twice: they are counted room by room, and the counts only fall.

A test cannot tell good English. It can tell that the worst habits of this code do not come back: whoever mends
sentences of a room lowers its row of `COUNTS_MAX`, which the test asks for.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
PATTERNS: Final = {
    "a sentence that begins with What": re.compile(r"(?:^|[.:;] )What (?![^.]*\?)", re.MULTILINE),
    "what is, for a noun that has a name": re.compile(r"\bwhat (?:is|was|are|were|has|have|had)\b"),
    "but for": re.compile(r"\bbut for\b"),
    "of which": re.compile(r"\bof which\b"),
    "behind the other": re.compile(r"\bbehind the other"),
    "an attribute that begins with a preposition": re.compile(r"^ +(?:Of|In|By|From|To|For) [a-z]", re.MULTILINE),
    "so many": re.compile(r"\bso (?:many|much)\b"),
    "those that": re.compile(r"\bthose (?:that|of)\b"),
    "is said of": re.compile(r"\bis (?:said|told|asked)\b"),
    "a sentence that begins with Who": re.compile(r"(?:^|[.:;] )Who ", re.MULTILINE),
}
COUNTS_MAX: Final = {
    "pages": 53,
    "cleaner": 4,
    "cli": 9,
    "clients": 13,
    "jobs": 44,
    "log": 26,
    "record": 1,
    "spark": 13,
    "storage": 1,
    "system": 1,
    "topic": 11,
    "values": 1,
    "write": 7,
}


def prose(path: Path) -> str:
    """Return the sentences of a file: a page as it is; of a module its texts and comments."""
    source = path.read_text()
    return source if path.suffix == ".md" else "\n".join(_sentences(source))


def _sentences(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.removeprefix("#").strip()


def rooms() -> dict[str, list[Path]]:
    """Return the files of each room of the package, and the pages."""
    found: dict[str, list[Path]] = {
        "pages": [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "tests/README.md"]
    }
    for path in sorted((ROOT / "sparklog").rglob("*.py")):
        found.setdefault(path.relative_to(ROOT / "sparklog").parts[0].removesuffix(".py"), []).append(path)
    return found


def hits(files: list[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {name}: {' '.join(text[max(0, hit.start() - 60) : hit.end() + 60].split())}"
        for path in files
        for text in [prose(path)]
        for name, pattern in PATTERNS.items()
        for hit in pattern.finditer(text)
    ]


@pytest.mark.parametrize(("room", "files"), rooms().items(), ids=list(rooms()))
def test_sentences_that_are_read_twice_only_become_fewer(room: str, files: list[Path]) -> None:
    found = hits(files)
    most = COUNTS_MAX.get(room, 0)
    assert len(found) <= most, "\n".join([f"{room} had {most} such turns and has {len(found)}:", *found])
    assert len(found) == most, f"{room} has {len(found)} of {most} such turns left: lower its row in COUNTS_MAX"
