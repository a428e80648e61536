"""Every code that ``verify`` gives is explained, and every command of an explanation exists and can be parsed."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.errors import InvalidOptionError
from sparklog.inspect.explanations import EXPLANATIONS, explanation_of
from tests.terminal import COMMANDS, run

ROOMS = ("inspect", "jobs/across", "jobs/backup")
OTHER_PROGRAMS = {"rm", "mv", "kafka-storage.sh", "kafka-topics.sh"}
MAKERS = {"Finding", "report", "_warn", "_error", "_note_missing"}
NAMED = {"TORN_TAIL", "ZERO_TAIL", "_PRESENT"}


def codes_in(tree: ast.AST) -> Iterator[str]:
    """Yield the codes in a module: beside a severity, named ``code``, or given to what makes findings."""
    for node in ast.walk(tree):
        given: list[Any] = []
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given += node.args[:2] if name in MAKERS else []
            given += [each.value for each in node.keywords if each.arg == "code"]
        elif isinstance(node, ast.Tuple | ast.Return):
            parts = node.elts if isinstance(node, ast.Tuple) else getattr(node.value, "elts", [])
            given += parts[:2] if parts and "everity" in ast.unparse(parts[0]) else []
        elif isinstance(node, ast.Assign) and {"code", *NAMED} & set(names_of(node.targets)):
            given += node.value.elts[:1] if isinstance(node.value, ast.Tuple) else [node.value]
        elif isinstance(node, ast.AnnAssign) and NAMED & set(names_of([node.target])):
            given.append(node.value)
        elif isinstance(node, ast.arguments):
            named = [*zip(node.kwonlyargs, node.kw_defaults, strict=True)]
            named += zip(node.args[len(node.args) - len(node.defaults) :], node.defaults, strict=True)
            given += [default for argument, default in named if argument.arg == "code"]
        for each in given:
            for leaf in (each.body, each.orelse) if isinstance(each, ast.IfExp) else (each,):
                if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str):
                    yield leaf.value


def names_of(targets: list[ast.expr]) -> list[str]:
    return [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]


def codes_of_source() -> set[str]:
    package = Path(sparklog.__file__).parent
    modules = [path for room in ROOMS for path in (package / room).glob("*.py") if path.name != "explanations.py"]
    found = {code for path in modules for code in codes_in(ast.parse(path.read_text()))}
    return {code for code in found if re.fullmatch(r"[a-z]+(-[a-z]+)*", code)}


def test_codes_of_the_source_are_those_that_are_explained() -> None:
    assert codes_of_source() == set(EXPLANATIONS)


@pytest.mark.parametrize(
    "command", sorted({part for each in EXPLANATIONS.values() for part in each.command.split(" && ")})
)
def test_command_of_an_explanation_exists_and_parses(command: str) -> None:
    program, *words = shlex.split(command)
    if program != "sparklog":
        assert program in OTHER_PROGRAMS
        return
    found: Any = COMMANDS
    while words and words[0] in getattr(found, "commands", {}):
        found = found.commands[words.pop(0)]
    assert found is not COMMANDS
    found.make_context(program, words)


@pytest.mark.parametrize("code", EXPLANATIONS)
def test_explanation_says_all_four_things(code: str) -> None:
    found = explanation_of(code)
    assert all(found)
    assert found.meaning.endswith(".")
    assert found.effect.endswith(".")
    assert not found.fault.endswith(".")
    assert found.command in found.paragraph(code)


def test_code_is_explained_at_the_terminal_without_a_path() -> None:
    found = run("verify", "--explain", "topic-id")
    assert found.exit_code == 0
    assert "sparklog copy DIR NEW --keep-offsets" in found.stdout


def test_unknown_code_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InvalidOptionError, match="did you mean 'topic-id'"):
        explanation_of("topic-di")
    assert run("verify", "--explain", "topic-di").exit_code == 2
