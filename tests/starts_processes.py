"""Finds the tests that start processes of their own by the names in their source, and in that of the helpers they name.

A test that starts a process through a name that is not listed here is marked with ``@pytest.mark.processes``.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
STARTS_ONE: Final = re.compile(r"\b(subprocess|Popen|multiprocessing|ProcessPool\w*|fork|processes=[2-9])\b")


@cache
def starts_processes(module: Path) -> frozenset[str]:
    """Return the names of a module of the tests that start processes when they are called."""
    text = module.read_text()
    helpers, uses = set[str](), dict[str, set[str]]()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            helper = ROOT / f"{str(node.module).replace('.', '/')}.py"
            if helper.exists():
                found = starts_processes(helper)
                helpers |= {each.asname or each.name for each in node.names if each.name in found}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            words = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            # A fixture is named by an argument.
            words |= {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
            uses[node.name] = words
            if STARTS_ONE.search(ast.get_source_segment(text, node) or ""):
                helpers.add(node.name)
    while grown := {name for name, words in uses.items() if name not in helpers and words & helpers}:
        helpers |= grown
    return frozenset(helpers)
