"""The rooms: who may import whom. Imports are read from the source, so that none is missed for not being run."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

import sparklog
from tests.conftest import HERE, LONGEST_FIRST

PACKAGE = Path(__file__).parent.parent / "sparklog"
MODULES = sorted(PACKAGE.rglob("*.py"))
# What each room may know of the others.
BELOW: dict[str, set[str]] = {"errors": set(), "record": {"errors"}, "storage": {"errors"}}
BELOW["values"] = {"record", "storage", "errors"}
BELOW["log"] = {"record", "storage", "errors"}
BELOW["write"] = BELOW["log"] | {"log"}
BELOW["inspect"] = BELOW["log"] | {"log"}
BELOW["system"] = BELOW["log"] | {"log"}
BELOW["cleaner"] = BELOW["write"] | {"write"}
BELOW["topic"] = BELOW["write"] | {"write", "inspect", "values", "system", "cleaner"}
BELOW["views"] = {"topic"}
BELOW["clients"] = BELOW["topic"] | {"topic"}
BELOW["jobs"] = BELOW["topic"] | {"topic"}
BELOW["spark"] = BELOW["jobs"] | {"jobs"}
BELOW["cli"] = BELOW["jobs"] | {"jobs", "clients"}
# The order of what is inside a room: sub-rooms and single modules, each of which knows only those before it.
INDOORS: dict[str, tuple[str, ...]] = {
    "record": ("format", "kernels", "codecs", "batches", "decode", "encode", "rewrite"),
    "log": (
        *("index", "files", "clock", "checkpoints", "checked_lines", "group_offsets", "properties", "config", "places"),
        *(
            "damage_rows",
            "kept_by_stamp",
            "folders",
            "damage",
            "journal",
            "windows",
            "segment",
            "sound_batches",
            "producer_state",
            "segment_listing",
            "replicas",
            "directory_view",
            "layout",
        ),
        *("log_identity", "scans", "filters", "producer_snapshots", "transactions", "reads"),
        "reader",
    ),
    "jobs": (
        *("files", "ledger", "targets", "check", "run", "clean", "landing", "source", "summary", "across"),
        *("named_logs", "description", "difference", "verification", "copy", "salvage", "export", "load"),
        *("mirror", "backup", "restore"),
    ),
    "topic": (
        *(
            "selection",
            "quarantine",
            "found_damage",
            "places",
            "internal",
            "write",
            "cutting",
            "log_manager",
            "partition_log",
            "reader",
            "recover",
        ),
        *("streams", "transactions"),
    ),
    "cli": ("output", "parsing", "work", "commands"),
    "spark": ("worker", "runner", "jobs", "options", "read", "writer", "stream", "source"),
}
# The doors: where the text of a path becomes a place, which all others are given. The list only gets shorter.
DOORS = {
    "log/reader.py",
    "spark/options/parsing.py",
    "storage/given_options.py",
    "storage/small_files.py",
    "topic/places/discovery.py",
    "write/partition.py",
}
FOLDER_MODULES_MAX = 25
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
# Modules that are imported by a name which is not known before, and why.
IMPORTED_BY_NAME = {
    ("storage/registry.py", "_BUILT_IN[name]"),  # the storage of a scheme, whose library may not be installed
    ("__init__.py", "_HOMES[name]"),  # the public names, each from its home
    ("__init__.py", "_MODULES[name]"),  # and the public modules
    ("record/codecs/table.py", "f'{__package__}.{self.name}'"),  # the library of a codec, which planning does not need
    ("values/imports.py", "module_name"),  # a decoder or a partitioner of the user's own
    ("values/imports.py", "module"),  # fastavro and protobuf, which are optional
}
# Public names that several modules define, and why each may. All others mean one thing.
IDIOMS = {
    "FUNCTIONS": "what a codec is loaded for; its module is found by the codec's name",
    "TOPIC": "the internal topic that a module reads",
    "SCHEMA": "the columns of the one table that a module makes",
    "HISTORY_SCHEMA": "the columns of that table with every record in it",
    "clean": "a job: its function, with Spark, its command, and what prints it",
    "copy": "a job",
    "export": "a job",
    "load": "a job",
    "salvage": "a job",
    "restore": "a job",
    "describe": "a job",
    "diff": "a job",
    "verify": "a job, and a command of ledgers",
    "mirror": "a job: its function, with Spark, its command, and what prints it",
    "backup": "a job",
    "verify_backups": "a job, and with Spark",
    "delete_records": "a public function, and its command",
    "lag": "a public function, and the command that shows a stream's",
}
# What reaches files, processes and the machine behind a storage's back.
FILE_SYSTEM = {"os", "pathlib", "fcntl", "shutil", "glob", "tempfile", "stat", "mmap", "errno"}
OUTSIDE_OF_STORAGE = {
    "record/kernels/cache.py",  # where compiled code is kept, which is no log; record and storage never meet
    "record/kernels/folders.py",
    "record/kernels/ahead.py",
}
# Where names of files are made, and where paths are cut and put together.
NAMES_OF_FILES = "log/files.py"
_IN_STORAGE = (
    "beneath",
    "local",
    "local_writing",
    "lock",
    "mounts",
    "registry",
    "small_files",
    "objects/backend",
    "objects/hdfs",
    "objects/listing",
    "objects/storage",
    "packed/members",
    "packed/storage",
)
PATHS = {"log/places.py", *(f"storage/{name}.py" for name in _IN_STORAGE)}
FILE_NAME = re.compile(
    r"\.(log|index|timeindex|txnindex|snapshot|deleted|cleaned|swap|cut|staged|tmp|lock|checkpoint)($|[^A-Za-z_.])"
    r"|^seglog[.-]|\.kafka_cleanshutdown|^(leader-epoch|log-start-offset|recovery-point-offset|replication-offset)-"
    r"|^partition\.metadata|^__cluster_metadata|^meta\.properties"
)
# Imports that wait until they are needed, and why.
DEFERRED = {
    (
        "record/batches/framing.py",
        "sparklog.record.kernels.scan",
    ),  # planning reads single headers, and should not load numba
    ("storage/registry.py", "sparklog.storage.packed.storage"),  # hardly a path is an archive's
    ("log/segment.py", "sparklog.record.kernels.scan"),  # as above: it checks the headers of whole windows only
    (
        "log/segment.py",
        "sparklog.record.batches.wrappers",
    ),  # hardly a log begins with a wrapper that does not say its offset
    ("log/scans/of_range.py", "sparklog.record.decode.columns"),  # a plan without transactions checks nothing
    ("log/damage.py", "sparklog.record.kernels.search"),  # most logs are not damaged
    ("log/sound_batches.py", "sparklog.record.batches.checksums"),  # as above
    ("log/sound_batches.py", "sparklog.record.kernels.scan"),  # as above
    ("spark/source.py", "sparklog.spark.read.plan"),  # Spark's look-up imports the source, and should load little else
    ("spark/source.py", "sparklog.spark.options.write"),  # who reads does not write
    ("spark/source.py", "sparklog.spark.writer"),
    ("spark/source.py", "sparklog.spark.stream.writer"),
    ("spark/source.py", "sparklog.spark.stream.reader"),  # a batch needs none
    ("spark/stream/reader.py", "sparklog.spark.read.batches"),
    ("spark/read/views.py", "sparklog.log.reads.damage_table"),  # as above: pyarrow
    ("spark/read/reader.py", "sparklog.spark.read.plan"),
    ("spark/read/reader.py", "sparklog.spark.read.batches"),  # only a task decodes
    ("spark/read/decoding.py", "sparklog.spark.options.arrow_types"),  # a driver that decodes nothing loads no pyarrow
    ("spark/read/decoding.py", "sparklog.values.spec"),
    ("spark/read/decoding.py", "sparklog.values.decoder"),
    ("spark/writer.py", "sparklog.topic.write.accumulator"),  # only a task encodes
    ("spark/writer.py", "sparklog.topic.transactions.commit"),  # most writes are no transactions of Kafka
    ("spark/read/partitions.py", "sparklog.topic.write.partitioner"),
    ("spark/read/views.py", "sparklog.topic.internal.views"),  # who reads records reads no view
    ("spark/read/views.py", "sparklog.spark.read.view_batches"),
    ("spark/read/views.py", "sparklog.spark.read.damage_view"),
    ("spark/read/plan.py", "sparklog.log.reader"),  # only a time is found by decoding
    ("spark/read/plan.py", "sparklog.topic.internal.groups"),
    ("write/pipeline.py", "sparklog.record.encode.legacy"),  # hardly a log is written in format 0 or 1
    ("jobs/source.py", "sparklog.topic.internal.groups"),
    ("topic/write/configs.py", "sparklog.topic.internal.views"),  # few log directories have the cluster's metadata
    ("topic/reader.py", "sparklog.topic.internal.groups"),  # and what a group has committed
    ("cli/work/ledger.py", "sparklog.jobs.check.ledger"),  # who shows a ledger reads no table
    ("cli/work/ledger.py", "sparklog.jobs.check.lake"),
    ("cli/commands/main.py", "sparklog.cli.work.dump"),  # describe should not load numba
    ("cli/commands/main.py", "sparklog.cli.work.follow"),
    ("cli/commands/main.py", "sparklog.inspect.dump_range"),
    ("cli/commands/main.py", "sparklog.cli.work.verify"),
    ("cli/commands/diff.py", "sparklog.cli.work.diff"),
    ("cli/commands/main.py", "sparklog.cli.work.recover"),
    ("cli/commands/main.py", "sparklog.record.kernels.warm_up"),
    ("cli/commands/clean.py", "sparklog.cli.work.clean"),
    ("cli/commands/lag.py", "sparklog.cli.work.lag"),
    ("cli/commands/cut.py", "sparklog.cli.work.cut"),
    ("cli/commands/clean.py", "sparklog.cli.work.export"),
    ("cli/commands/jobs.py", "sparklog.cli.work.export"),
    ("cli/commands/restore.py", "sparklog.cli.work.export"),
    ("cli/commands/system.py", "sparklog.cli.work.system"),
    ("cli/commands/groups.py", "sparklog.cli.work.set_offsets"),
    ("cli/commands/produce.py", "sparklog.cli.work.produce"),
    ("cli/commands/topics.py", "sparklog.topic.log_manager"),
    ("cli/commands/salvage.py", "sparklog.cli.work.salvage"),
    ("cli/commands/salvage.py", "sparklog.cli.work.export"),
    ("cli/commands/backup.py", "sparklog.cli.work.backup"),
    ("cli/commands/jobs.py", "sparklog.cli.work.load"),
    ("cli/commands/jobs.py", "sparklog.cli.work.ledger"),
}


@dataclass(frozen=True)
class Import:
    """An import of a module of ours or of others, and when it is made.

    Attributes
    ----------
    module : str
        ``sparklog.log.files`` for ``from sparklog.log import files``; of a public name of the package, its home.
    is_deferred : bool
        Whether it waits within a function or a class.
    """

    module: str
    is_deferred: bool


@cache
def imports(path: Path) -> list[Import]:
    tree = ast.parse(path.read_text())
    deferred = {node for scope in ast.walk(tree) if isinstance(scope, _SCOPES) for node in ast.walk(scope)}
    return [Import(module, node in deferred) for node in ast.walk(tree) for module in _modules(node, path)]


def _modules(node: ast.AST, path: Path) -> Iterator[str]:
    """Yield what a statement imports: by ``import``, by ``from``, and by `importlib`."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert not node.level, f"{name(path)} has a relative import"
        assert node.module is not None
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            yield sparklog._HOMES.get(alias.name, whole) if node.module == "sparklog" else _existing(whole)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        (argument,) = node.args
        if isinstance(argument, ast.Constant):
            yield str(argument.value)
        else:
            assert (name(path), ast.unparse(argument)) in IMPORTED_BY_NAME


def _existing(whole: str) -> str:
    """Return the module that ``from module import name`` needs: the name's own where it is one."""
    if not whole.startswith("sparklog."):
        return whole.rpartition(".")[0]
    place = PACKAGE.parent / whole.replace(".", "/")
    return whole if place.is_dir() or place.with_suffix(".py").exists() else whole.rpartition(".")[0]


_SCOPES = (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def inner(path: Path) -> str:
    """Return the sub-room, or the single module, of a room that a file is; empty of what introduces the room."""
    return path.relative_to(PACKAGE).parts[1].removesuffix(".py").removeprefix("__init__")


def name(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize(
    ("line", "module", "is_deferred"),
    [
        ("from sparklog import open_log", "sparklog.log.reader", False),
        ("from sparklog.log import files", "sparklog.log.files", False),
        ("from sparklog.log.files import LOG", "sparklog.log.files", False),
        ("import sparklog.log.files as names", "sparklog.log.files", False),
        ("def f():\n    from sparklog import topic", "sparklog.topic", True),
        ("def f():\n    def g():\n        import os.path", "os.path", True),
        ("if True:\n    from os import path", "os", False),
        ("class A:\n    x = importlib.import_module('sparklog.cli')", "sparklog.cli", True),
    ],
)
def test_no_way_to_import_is_overlooked(tmp_path: Path, line: str, module: str, is_deferred: bool) -> None:
    source = tmp_path / "module.py"
    source.write_text(line)
    assert imports(source) == [Import(module, is_deferred)]


IN_ROOMS = [module for module in MODULES if module != PACKAGE / "__init__.py"]


def test_every_room_is_in_the_picture() -> None:
    assert {room(path) for path in IN_ROOMS} == set(BELOW)


@pytest.mark.parametrize("path", IN_ROOMS, ids=name)
def test_room_knows_the_rooms_below_it_only(path: Path) -> None:
    for each in imports(path):
        parts = each.module.split(".")
        if parts[0] == "sparklog" and len(parts) > 1 and parts[1] != room(path):
            assert parts[1] in BELOW[room(path)], f"{name(path)} imports {each.module}"


def test_every_sub_room_is_in_the_picture() -> None:
    for outer, order in INDOORS.items():
        here = {path.name.removesuffix(".py") for path in (PACKAGE / outer).iterdir() if "__" not in path.name}
        assert here == set(order), outer


@pytest.mark.parametrize("path", [path for path in IN_ROOMS if room(path) in INDOORS and inner(path)], ids=name)
def test_sub_room_knows_those_before_it_only(path: Path) -> None:
    order = INDOORS[room(path)]
    for each in imports(path):
        parts = each.module.split(".")
        if parts[:2] == ["sparklog", room(path)] and len(parts) > 2 and parts[2] != inner(path):
            assert order.index(parts[2]) < order.index(inner(path)), f"{name(path)} imports {each.module}"


@pytest.mark.parametrize("folder", sorted({path.parent for path in IN_ROOMS}), ids=name)
def test_no_folder_has_more_modules_than_can_be_read_at_a_glance(folder: Path) -> None:
    assert len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) <= FOLDER_MODULES_MAX


@pytest.mark.parametrize("path", [path for path in IN_ROOMS if room(path) == "cli"], ids=name)
def test_no_command_knows_both_bytes_and_files(path: Path) -> None:
    known = {each.module.split(".")[1] for each in imports(path) if each.module.startswith("sparklog.")}
    assert not known >= {"record", "storage"}


def test_imports_of_our_own_stand_at_the_top_but_for_those_that_have_a_reason() -> None:
    late = {
        (name(path), each.module)
        for path in IN_ROOMS
        for each in imports(path)
        if each.is_deferred and each.module.startswith("sparklog")
    }
    assert late == set(DEFERRED)


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_libraries_stay_in_their_rooms(path: Path) -> None:
    for each in imports(path):
        library = each.module.split(".")[0]
        if library == "pyspark":
            assert room(path) == "spark"
        elif library in ("numba", "llvmlite"):
            assert name(path).startswith("record/kernels/")
        elif library in ("typer", "rich"):
            assert room(path) == "cli"
        elif library in ("fastavro", "google", "grpc_tools"):
            raise AssertionError(f"{name(path)} imports {library}, and not by sparklog.values.imports")
        elif library in FILE_SYSTEM:
            assert room(path) == "storage" or name(path) in OUTSIDE_OF_STORAGE, f"{name(path)} imports {library}"
        elif library in ("io", "time", "datetime"):
            assert room(path) != "record" or name(path).startswith("record/kernels/"), f"{name(path)} imports {library}"


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_only_render_prints(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    prints = [node for node in calls if isinstance(node.func, ast.Name) and node.func.id == "print"]
    assert not prints or name(path) == "cli/output/render.py"


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_modules_and_functions_stay_small(path: Path) -> None:
    source = path.read_text()
    assert source.count("\n") <= MODULE_LINES_MAX
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = [part for part in node.body if not isinstance(part, ast.Expr)]
            lines = (node.end_lineno or 0) - (body[0].lineno if body else node.lineno)
            assert lines <= FUNCTION_LINES_MAX, f"{name(path)}: {node.name} has {lines} lines"


def public_names(path: Path) -> Iterator[str]:
    """Yield what a module defines. Columns that one statement numbers are read with their table."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found = [node.name]
        else:
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            found = [target.id for target in targets if isinstance(target, ast.Name)]
        yield from (each for each in found if not each.startswith("_"))


def test_public_names_mean_one_thing() -> None:
    homes: dict[str, set[str]] = {}
    for path in IN_ROOMS:
        for each in public_names(path):
            homes.setdefault(each, set()).add(name(path))
    several = {each: sorted(where) for each, where in homes.items() if len(where) > 1}
    assert {each: where for each, where in several.items() if each not in IDIOMS} == {}
    assert set(IDIOMS) == set(several)


def test_importing_the_package_imports_nothing_slow() -> None:
    code = "import sys, sparklog; print(*(m for m in ('numba', 'numpy', 'pyarrow', 'pyspark') if m in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == ""


@pytest.mark.parametrize(
    ("call", "home"),
    [
        ("get_close_matches(", "errors.py"),
        ("time.time_ns(", "log/clock.py"),
        ("time.time(", ""),
        ("encode_batches(", "write/pipeline.py"),
        ("take_records(", "write/pipeline.py"),
    ],
)
def test_what_every_room_needs_is_called_in_one_place(call: str, home: str) -> None:
    callers = {name(path) for path in MODULES if re.search(rf"(?<!def )\b{re.escape(call)}", path.read_text())}
    assert callers <= {home}


def test_paths_become_places_at_the_doors() -> None:
    found = {name(path) for path in MODULES if re.search(r"(?<![\w.])(?<!def )locate\(", path.read_text())}
    assert found - {"storage/registry.py"} == DOORS


def test_accumulator_reaches_records_and_files_through_the_writer_alone() -> None:
    modules = {each.module for each in imports(PACKAGE / "topic/write/accumulator.py")}
    assert not any(module.startswith("sparklog.record") for module in modules)


def constants(path: Path) -> Iterator[str]:
    """Yield the texts in a file that are no docstrings."""
    tree = ast.parse(path.read_text())
    prose = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose:
            yield node.value


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_names_of_files_are_made_in_one_module(path: Path) -> None:
    """What has a space is a sentence that a person reads."""
    if name(path) != NAMES_OF_FILES:
        assert not [text for text in constants(path) if " " not in text.strip() and FILE_NAME.search(text)]


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_paths_are_cut_and_put_together_in_one_module(path: Path) -> None:
    if name(path) in PATHS or room(path) in ("record", "spark", "cli"):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            is_cut = node.func.attr in ("rpartition", "partition", "split", "rsplit", "join")
            assert not is_cut or not _is_slash(node.args[0]), f"{name(path)}:{node.lineno} cuts a path"
        elif isinstance(node, ast.JoinedStr):
            for before, slash in pairwise(node.values):
                is_joined = isinstance(before, ast.FormattedValue) and _begins_with_slash(slash)
                assert not is_joined, f"{name(path)}:{node.lineno} puts a path together"


def _is_slash(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "/"


def _begins_with_slash(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and str(node.value).startswith("/")


def test_files_that_are_run_first_are_there() -> None:
    assert [name for name in LONGEST_FIRST if not (HERE / name).is_file()] == []
