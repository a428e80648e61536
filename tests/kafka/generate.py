"""Makes ``tests/data`` and ``examples/data`` again: ``python -m tests.kafka.generate [set ...]``.

Without names, everything. Broker-side times, ids and file times differ each time; the records do not.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from pathlib import Path

from tests.golden import DATA, EXAMPLES
from tests.kafka.capture import capture
from tests.kafka.examples import generate_examples
from tests.kafka.sets_new import NEW
from tests.kafka.sets_old import OLDEN

RECIPES = {recipe.name: recipe for recipe in (*NEW, *OLDEN)}
REPOSITORY = Path(__file__).parents[2]
EXAMPLES_NAME = "examples"
SUMS = DATA / "SHA256SUMS"


def main() -> None:
    """Run the recipes that the command line names, then write the checksums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", metavar="set", help=f"any of: {', '.join(RECIPES)}, {EXAMPLES_NAME}")
    names = parser.parse_args().sets or [*RECIPES, EXAMPLES_NAME]
    unknown = sorted(set(names) - {*RECIPES, EXAMPLES_NAME})
    if unknown:
        parser.error(f"no such set: {', '.join(unknown)}")
    for name in names:
        began = time.monotonic()
        target = EXAMPLES if name == EXAMPLES_NAME else DATA / name
        if name == EXAMPLES_NAME:
            generate_examples(target)
        else:
            capture(RECIPES[name], target)
        size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
        print(f"{name}: {size / 1024:.0f} KiB, {time.monotonic() - began:.0f} s", flush=True)
    SUMS.write_text(checksums())


def checksums() -> str:
    """Return the lines of ``SHA256SUMS``: a digest for each set and for the examples.

    It is the digest of what ``find DIR -type f | LC_ALL=C sort | xargs sha256sum`` prints in the repository's root.
    """
    return "".join(f"{directory_digest(path)}  {path.relative_to(REPOSITORY)}\n" for path in data_directories())


def data_directories() -> list[Path]:
    """Return the directories under checksum: one a set, and the examples."""
    return [*sorted(path for path in DATA.iterdir() if path.is_dir()), *([EXAMPLES] if EXAMPLES.is_dir() else [])]


def directory_digest(directory: Path) -> str:
    """Return the digest of the sorted digests of a directory's files."""
    files = sorted(str(path.relative_to(REPOSITORY)) for path in directory.rglob("*") if path.is_file())
    lines = (f"{hashlib.sha256((REPOSITORY / name).read_bytes()).hexdigest()}  {name}\n" for name in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


if __name__ == "__main__":
    main()
