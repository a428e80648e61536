"""The rooms: who may import whom. Imports are read from the source, so that none is missed for not being run."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "sparklog"
MODULES = sorted(PACKAGE.rglob("*.py"))
# What each room may know of the others.
BELOW: dict[str, set[str]] = {"errors": set(), "record": {"errors"}, "storage": {"errors"}}
BELOW["log"] = {"record", "storage", "errors"}
BELOW["write"] = BELOW["log"] | {"log"}
BELOW["inspect"] = BELOW["log"] | {"log"}
BELOW["topic"] = BELOW["write"] | {"write", "inspect"}
BELOW["spark"] = BELOW["topic"] | {"topic"}
BELOW["cli"] = BELOW["topic"] | {"topic"}
# What reaches files, processes and the machine behind a storage's back.
FILE_SYSTEM = {"os", "pathlib", "fcntl", "shutil", "glob", "tempfile", "stat", "mmap", "errno"}
OUTSIDE_OF_STORAGE = {
    "record/kernels_compile.py",  # where numba keeps compiled code, which is no log; record and storage never meet
}
# Imports that wait until they are needed, and why.
DEFERRED = {
    ("record/framing.py", "sparklog.record.kernels"),  # planning reads single headers, and should not load numba
    ("log/segment.py", "sparklog.record.wrappers"),  # hardly a log begins with a wrapper that does not say its offset
    ("log/scan.py", "sparklog.record.decode"),  # a plan without transactions checks nothing
    ("log/damage.py", "sparklog.record.kernels_search"),  # most logs are not damaged
    ("write/staging.py", "sparklog.record.encode"),  # a type
    ("write/recovery.py", "sparklog.record.decode"),  # a log that was closed cleanly is not read to be opened
    ("spark/source.py", "sparklog.spark.plan"),  # Spark's look-up imports the source, and should load little else
    ("spark/source.py", "sparklog.spark.write_options"),  # who reads does not write
    ("spark/source.py", "sparklog.spark.writer"),
    ("spark/reader.py", "sparklog.spark.plan"),
    ("spark/reader.py", "sparklog.spark.batches"),  # only a task decodes
    ("spark/writer.py", "sparklog.topic.accumulator"),  # only a task encodes
    ("spark/partitions.py", "sparklog.topic.partitioner"),
    ("spark/plan.py", "sparklog.log.reader"),  # only a time is found by decoding
    ("spark/options.py", "sparklog.log.reader"),  # a type
    ("cli/main.py", "sparklog.cli.dump"),  # describe should not load numba
    ("cli/main.py", "sparklog.cli.verify"),
    ("cli/main.py", "sparklog.cli.recover"),
}


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield each imported module of a file, and whether it is imported at its top."""
    tree = ast.parse(path.read_text())
    top = set(ast.walk(ast.Module([node for node in tree.body if not isinstance(node, _SCOPES)], [])))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node in top


_SCOPES = (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def name(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", [m for m in MODULES if m != PACKAGE / "__init__.py"], ids=name)
def test_room_knows_the_rooms_below_it_only(path: Path) -> None:
    for module, _ in imports(path):
        parts = module.split(".")
        if parts[0] == "sparklog" and len(parts) > 1 and parts[1] != room(path):
            assert parts[1] in BELOW[room(path)], f"{name(path)} imports {module}"


@pytest.mark.parametrize("path", [m for m in MODULES if m != PACKAGE / "__init__.py"], ids=name)
def test_imports_of_our_own_stand_at_the_top(path: Path) -> None:
    late = {(name(path), module) for module, at_top in imports(path) if not at_top and module.startswith("sparklog")}
    assert late <= DEFERRED


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_libraries_stay_in_their_rooms(path: Path) -> None:
    for module, _ in imports(path):
        library = module.split(".")[0]
        if library == "pyspark":
            assert room(path) == "spark"
        elif library in ("numba", "llvmlite"):
            assert name(path).startswith("record/kernels")
        elif library in ("typer", "rich"):
            assert room(path) == "cli"
        elif library in FILE_SYSTEM:
            assert room(path) == "storage" or name(path) in OUTSIDE_OF_STORAGE, f"{name(path)} imports {module}"
        elif library in ("io", "time", "datetime"):
            assert room(path) != "record" or name(path).startswith("record/kernels"), f"{name(path)} imports {module}"


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_only_render_prints(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    prints = [node for node in calls if isinstance(node.func, ast.Name) and node.func.id == "print"]
    assert not prints or name(path) == "cli/render.py"


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_modules_and_functions_stay_small(path: Path) -> None:
    source = path.read_text()
    assert source.count("\n") <= 520
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = [part for part in node.body if not isinstance(part, ast.Expr)]
            lines = (node.end_lineno or 0) - (body[0].lineno if body else node.lineno)
            assert lines <= 70, f"{name(path)}: {node.name} has {lines} lines"


def test_importing_the_package_imports_nothing_slow() -> None:
    code = "import sys, sparklog; print(*(m for m in ('numba', 'numpy', 'pyarrow', 'pyspark') if m in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == ""
