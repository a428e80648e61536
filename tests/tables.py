"""Makes the tables of options in the documentation from their declarations: ``make tables``.

A table stands on any page between two comments, ``<!-- options: <name> -->`` and ``<!-- end -->``. All that is between
them is made here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparklog.jobs.copy.arguments import copy
from sparklog.jobs.export.arguments import export
from sparklog.jobs.load.arguments import load
from sparklog.jobs.restore.arguments import restore
from sparklog.jobs.salvage.arguments import salvage
from sparklog.log.properties import described
from sparklog.spark.options.read import SeglogOptions
from sparklog.spark.options.write import WriteOptions

ROOT: Final = Path(__file__).parent.parent
TABLES: Final[dict[str, tuple[str, Any]]] = {
    "read": ("option of a read", SeglogOptions),
    "write": ("option of a write", WriteOptions),
    "export": ("argument of an export", export),
    "copy": ("argument of a copy", copy),
    "restore": ("argument of a restore", restore),
    "salvage": ("argument of a salvage", salvage),
    "load": ("argument of a load", load),
}
_TABLE: Final = re.compile(r"(<!-- options: (\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


class Argument(NamedTuple):
    """Arguments of a function that its docstring explains together."""

    name: str
    default: str
    doc: str


def options(declaring: Any) -> Sequence[Any]:
    """Return the options that a dataclass declares, or the arguments of a function, each with name, default and doc."""
    return described(declaring) if isinstance(declaring, type) else arguments(declaring)


def arguments(function: Callable[..., object]) -> list[Argument]:
    """Read the arguments of a function from its signature and the section "Parameters" of its docstring."""
    parameters = inspect.signature(function).parameters
    section = (inspect.getdoc(function) or "").partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    found = []
    for entry in re.split(r"\n(?=\S)", section):
        heading, *lines = entry.splitlines()
        names = heading.partition(" : ")[0].split(", ")
        defaults = dict.fromkeys(_default(parameters[name]) for name in names)
        doc = " ".join(line.strip() for line in lines).replace("``", "`")
        found.append(Argument("`, `".join(names), ", ".join(filter(None, defaults)), doc))
    return found


def _default(parameter: inspect.Parameter) -> str:
    default = parameter.default
    if default is inspect.Parameter.empty:
        return "required"
    if default is None or default == ():
        return ""
    return ", ".join(default) if isinstance(default, tuple) else str(default)


def table(heading: str, declaring: Any) -> str:
    """Return the table of the options that a dataclass declares, or of the arguments of a function."""
    lines = [f"| {heading} | default | |", "|---|---|---|"]
    lines += [f"| `{each.name}` | {each.default} | {_escaped(each.doc)} |" for each in options(declaring)]
    return "\n".join(lines) + "\n"


def pages() -> list[Path]:
    """Return the pages that may have a table."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def with_tables(text: str) -> str:
    """Return a text with every table between its comments made anew."""
    return _TABLE.sub(lambda found: f"{found[1]}{table(*TABLES[found[2]])}{found[3]}", text)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    for page in pages():
        page.write_text(with_tables(page.read_text()))
