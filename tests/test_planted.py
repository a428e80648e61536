"""Names that others planted: a link, a FIFO, a folder or a file of another user in the place of every name.

The names are those that a verb uses when nothing is planted, as the one module sees them that finds names beneath a
directory, and all that `sparklog.log.files` has: a new file of either kind is planted by itself. Whatever a verb does
then, with or without an error of ours, nothing outside of the directory changes, and it ends.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import SeglogError
from sparklog.jobs.clean.arguments import clean
from sparklog.jobs.copy.arguments import copy
from sparklog.log import files
from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import OffsetCommit
from sparklog.storage import beneath
from sparklog.topic.recover import RecoverOptions, recover_directory
from sparklog.topic.write.txn_versions import TxnVersion
from sparklog.write.group_offsets import commit_group_offsets
from tests.places import directory_at
from tests.topic.staged import NOW_MS, rows, write

CONFIG: Final = LogConfig(
    compression_type="uncompressed", segment_bytes=300, index_interval_bytes=50, file_delete_delay_ms=0
)
OTHERS: Final = b"of others"
NOBODY: Final = 65534
SECONDS_MAX: Final = 20
EVENTS: Final = "events-0"
TORN: Final = "torn-0"


def records(*values: str) -> pa.Table:
    return pa.table({"key": [each[:1].encode() for each in values], "value": [each.encode() for each in values]})


def make_directory(directory: Path) -> None:
    """Make a log directory that has a file of most kinds, with a torn end and a folder that is to be removed."""
    with sparklog.TransactionalWriter.open(directory, "billing", CONFIG) as writer:
        writer.begin()
        writer.append("events", 0, records("a0", "b0"))
        writer.abort()
    with sparklog.PartitionLog.open(directory / EVENTS, CONFIG, topic_id="Q2TYVrXaSDWPZ5lUZtm3Jg") as log:
        for number in range(4):
            log.append(records(f"a{number}", f"b{number}", "c" * 90))
    commit_offsets(directory)
    write(directory, [rows(["x", "y"])], topic="other", partitions=1, config=CONFIG)
    sparklog.LogManager(directory).create_topic("spare", 1, {"cleanup.policy": "compact", "segment.bytes": "300"})
    write(directory, [rows(["whole"])], topic="torn", partitions=1, config=CONFIG)
    with (directory / TORN / f"{0:020d}.log").open("ab") as file:
        file.write(b"torn")
    (directory / files.CLEAN_SHUTDOWN).touch()
    (directory / "events-9.0123456789ab70123456789012345678-delete").mkdir()
    (directory / "events-9.0123456789ab70123456789012345678-delete" / "old.log").touch()


def append(directory: Path) -> None:
    with sparklog.PartitionLog.open(directory / EVENTS, CONFIG) as log:
        for _ in range(3):
            log.append(records("new", "c" * 90))


def commit_rows(directory: Path) -> None:
    write(
        directory,
        [rows(["1", "2", "3" * 200]), rows(["4"])],
        partitions=1,
        config=CONFIG,
        is_overwrite=True,
        transaction=TxnVersion("app", 7),
    )


def commit_transaction(directory: Path) -> None:
    with sparklog.transaction(directory, "billing", CONFIG) as writer:
        writer.append("events", 0, records("in a transaction"))
        writer.append("fresh", 0, records("in a transaction"))
        writer.send_offsets({("events", 0): 2}, "group")


def commit_offsets(directory: Path) -> None:
    for offset in range(3):
        commit_group_offsets(
            directory_at(directory), "group", {TopicPartition("events", 0): OffsetCommit(offset, "", NOW_MS)}
        )


def manage(directory: Path) -> None:
    manager = sparklog.LogManager(directory)
    manager.create_topic("made", 2, {"retention.ms": "1000"})
    manager.alter_configs("made", {"retention.ms": None, "segment.bytes": "300"})
    manager.delete_topic("other")


def compact(directory: Path) -> None:
    clean(
        directory,
        topics=["events", "other", "spare"],
        cleanup_policy="compact,delete",
        retention_bytes=2000,
        erase=["a"],
        config={"segment.bytes": "300", "file.delete.delay.ms": "0"},
        processes=1,
    )


def cut(directory: Path) -> None:
    sparklog.delete_records(directory / EVENTS, before_offset=5)
    sparklog.truncate_to(directory / EVENTS, 10)


def recover(directory: Path) -> None:
    place = directory_at(directory)
    folders = [place.folder(name) for name in (EVENTS, TORN)]
    options = RecoverOptions(CONFIG, 0, truncate=True, drop_cut=True)
    for found in recover_directory(place, folders, options, NOW_MS):
        if isinstance(found, SeglogError):
            raise found


def copy_into(directory: Path) -> None:
    copy(directory.parent / "source", directory, processes=1)


VERBS: Final[dict[str, Callable[[Path], None]]] = {
    each.__name__: each
    for each in (append, commit_rows, commit_transaction, commit_offsets, manage, compact, cut, recover, copy_into)
}
# Of what is there, a link that leads nowhere tells no more than one that leads somewhere.
KINDS: Final = ("link", "fifo", "folder", "dangling")
# What a name begins with that has a part which nobody can know beforehand.
UNKNOWN: Final = re.compile(r"seglog-[0-9a-f]{13}|.*-delete$")


def listed_names() -> Iterator[str]:
    """Yield the names of files that `sparklog.log.files` has, in a log directory and in a partition's folder."""
    found = {value for name, value in vars(files).items() if name.isupper() and isinstance(value, str)}
    for name in found - {files.OWN_PREFIX, files.METADATA_TOPIC, files.TRANSACTION_STATE_TOPIC}:
        if name.startswith(".") and name not in (files.LOCK, files.CLEAN_SHUTDOWN, *MARKERS):
            yield f"{EVENTS}/{0:020d}{name}"
        else:
            for each in (name, files.being_written(name)):
                yield each
                yield f"{EVENTS}/{each}"


MARKERS: Final = (files.MARKER_OF_WRITER, files.MARKER_OF_COMMIT)


def used_names(directory: Path, verb: Callable[[Path], None]) -> set[str]:
    """Run a verb, and return the names that it finds beneath the directory, with those of the folders on the way."""
    found: set[str] = set()
    plain = beneath.names_beneath

    def recorded(root: str, path: str) -> list[str]:
        names = plain(root, path)
        if root == str(directory) and not any(UNKNOWN.match(name) for name in names):
            found.update("/".join(names[:length]) for length in range(1, len(names) + 1))
        return names

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beneath, "names_beneath", recorded)
        verb(directory)
    return set(one_of_each_kind(found))


def one_of_each_kind(names: set[str]) -> Iterator[str]:
    """Yield the last of the names that differ in numbers only, such as those of a segment's files."""
    kinds = {re.sub("[0-9]+", "0", name): name for name in sorted(names)}
    yield from kinds.values()


def plant(path: Path, kind: str, outside: Path) -> None:
    """Put something in the place of a name; a link leads to what was there before."""
    elsewhere = outside / path.name
    path.parent.mkdir(exist_ok=True)
    if path.is_dir():
        shutil.move(path, elsewhere)
    else:
        elsewhere.write_bytes(path.read_bytes() if path.is_file() else OTHERS)
        path.unlink(missing_ok=True)
    if kind == "link":
        path.symlink_to(elsewhere)
    elif kind == "dangling":
        path.symlink_to(outside / "new")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
        (path / "file").write_bytes(OTHERS)


def state(folder: Path) -> dict[str, tuple[Any, ...]]:
    found = {}
    for path in (folder, *folder.rglob("*")):
        known = path.lstat()
        data = path.read_bytes() if stat.S_ISREG(known.st_mode) else b""
        found[str(path)] = (known.st_ino, known.st_mode, known.st_uid, known.st_gid, known.st_mtime_ns, data)
    return found


@contextmanager
def ending(what: str) -> Iterator[None]:
    """Fail where the block takes too long: it waits for somebody at the other end of a pipe."""

    def late(*_: object) -> None:
        raise AssertionError(f"{what}: does not end")

    old = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS_MAX)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    make_directory(folder / "logs")
    write(folder / "source", [rows(["from elsewhere"])], topic="copied", partitions=1, config=CONFIG)
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[Path, Path]]:
    """Return what makes a fresh copy of the directory, and a folder outside of it."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # nothing is lost here, and hundreds of runs are quick

    def fresh() -> tuple[Path, Path]:
        for name in ("run", "outside"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
        shutil.copytree(made, tmp_path / "run")
        (tmp_path / "outside").mkdir()
        return tmp_path / "run" / "logs", tmp_path / "outside"

    return fresh


def run_beside(verb: Callable[[Path], None], logs: Path, outside: Path, what: str) -> None:
    """Run a verb; an error of ours is an answer, too, and nothing outside of the directory changes."""
    before = state(outside)
    with ending(what), suppress(SeglogError):
        verb(logs)
    assert state(outside) == before, what


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_planted_name_leads_nobody_out_of_the_directory(
    place: Callable[[], tuple[Path, Path]], verb: Callable[[Path], None]
) -> None:
    logs, _ = place()
    there = {str(path.relative_to(logs)) for path in logs.rglob("*")}
    used = used_names(logs, verb)
    assert used & {files.WRITERS_LOCK, files.GROUP_OFFSETS_LOCK}
    for name in sorted(used):
        for kind in KINDS[:-1] if name in there else KINDS:
            logs, outside = place()
            plant(logs / name, kind, outside)
            run_beside(verb, logs, outside, f"{verb.__name__} with a {kind} at {name}")
    # Names that a verb does not use here, it may use elsewhere: all at once, since none of them is in another's way.
    for kind in KINDS:
        logs, outside = place()
        for name in sorted(set(listed_names()) - used):
            plant(logs / name, kind, outside)
        run_beside(verb, logs, outside, f"{verb.__name__} with a {kind} at each other name")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_files_of_another_user_are_no_way_out_of_the_directory(
    place: Callable[[], tuple[Path, Path]], verb: Callable[[Path], None]
) -> None:
    logs, outside = place()
    (outside / "file").write_bytes(OTHERS)
    for path in (logs, *logs.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
        path.chmod(0o700 if path.is_dir() else 0o600)
    run_beside(verb, logs, outside, f"{verb.__name__} in the directory of another user")
    assert {path.lstat().st_uid for path in logs.rglob("*")} == {NOBODY}


STAGED: Final = "seglog-0123456789abc-forged.staged"
# Where a journal has it lead: the folder of a log, or a file, that is a link, a FIFO or a folder, and paths upwards.
FORGED: Final[dict[str, list[list[Any]]]] = {
    "append by way of a folder": [["append", STAGED, 0, 4, "evil-0/file", 0]],
    "append to a link": [["append", STAGED, 0, 4, "link", 0]],
    "append to nothing outside": [["append", STAGED, 0, 4, "dangling", 0]],
    "append to a FIFO": [["append", STAGED, 0, 4, "fifo", 0]],
    "append from a FIFO": [["append", "fifo", 0, 4, "new", 0]],
    "append from a link": [["append", "link", 0, 4, "new", 0]],
    "rename into a folder": [["rename", STAGED, "evil-0/file"]],
    "rename out of a folder": [["rename", "evil-0/file", "mine"]],
    "rename a link": [["rename", "link", f"{EVENTS}/{0:020d}.log"]],
    "upwards": [["rename", STAGED, "../outside/file"]],
    "upwards on the way": [["rename", STAGED, "../file"]],
    "absolute": [["rename", STAGED, "/tmp/file"]],
    "deep": [["rename", STAGED, "a/b/file"]],
}


@pytest.mark.parametrize("folders", [[], ["evil-0"], ["../outside"], ["dangling"], [".."]], ids=repr)
@pytest.mark.parametrize("moves", FORGED.values(), ids=FORGED)
def test_forged_journal_leads_nobody_out_of_the_directory(
    place: Callable[[], tuple[Path, Path]], moves: list[list[Any]], folders: list[str]
) -> None:
    logs, outside = place()
    (outside / "file").write_bytes(b"")
    (logs / "evil-0").symlink_to(outside)
    (logs / "link").symlink_to(outside / "file")
    (logs / "dangling").symlink_to(outside / "new")
    os.mkfifo(logs / "fifo")
    (logs / STAGED).write_bytes(b"evil")
    extent = {"start_offset": 0, "end_offset": 0, "segment": -1, "position": 0}
    journal = {"version": 1, "commit_id": "x", "partitions": dict.fromkeys(folders, extent), "moves": moves}
    (logs / files.JOURNAL).write_text(json.dumps({**journal, "summary": {}}))
    for verb in (append, recover, commit_rows, commit_offsets):
        run_beside(verb, logs, outside, f"{verb.__name__} with a forged journal")
    assert (outside / "file").read_bytes() == b""
