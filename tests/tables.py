"""Makes the README's tables of options from their declarations: ``make tables``.

A table stands between two comments, ``<!-- options: <name> -->`` and ``<!-- end -->``, and all that is between them is
made here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from sparklog.log.properties import described
from sparklog.spark.options import SeglogOptions
from sparklog.spark.write_options import WriteOptions

README: Final = Path(__file__).parent.parent / "README.md"
TABLES: Final[dict[str, tuple[str, Any]]] = {
    "read": ("option of a read", SeglogOptions),
    "write": ("option of a write", WriteOptions),
}
_TABLE: Final = re.compile(r"(<!-- options: (\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


def table(heading: str, declaring: Any) -> str:
    """Return the table of the options that a dataclass declares."""
    lines = [f"| {heading} | default | |", "|---|---|---|"]
    lines += [f"| `{each.name}` | {each.default} | {_escaped(each.doc)} |" for each in described(declaring)]
    return "\n".join(lines) + "\n"


def with_tables(text: str) -> str:
    """Return a text with every table between its comments made anew."""
    return _TABLE.sub(lambda found: f"{found[1]}{table(*TABLES[found[2]])}{found[3]}", text)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text()))
