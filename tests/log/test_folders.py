"""What a folder is, and who may be given it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.errors import InvalidOptionError, LockedError, PathNotFoundError, SeglogError
from sparklog.log.folders import FolderKind, look_at
from sparklog.log.reader import open_log
from sparklog.storage.local import LocalStorage
from sparklog.write.partition import LogWriter
from tests.golden import DATA, EXAMPLES
from tests.log.logs import write

UUID = "0123456789abcdef0123456789abcdef"
LOG = "00000000000000000000.log"


def made(folder: Path, *names: str) -> Path:
    """Make files, and folders, whose names end in a slash, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir()
        else:
            path.touch()
    return folder


@pytest.mark.parametrize(
    ("name", "within", "kind"),
    [
        ("events-0", [], FolderKind.PARTITION),
        ("events-0", [LOG], FolderKind.PARTITION),
        ("events-0", ["leader-epoch-checkpoint"], FolderKind.PARTITION),
        ("events-0", ["partition.metadata", "notes.txt"], FolderKind.PARTITION),
        ("events-0", ["leader-epoch-checkpoint.tmp"], FolderKind.PARTITION),
        ("events-0", [f"{LOG}.deleted", "backup/", "backup/x"], FolderKind.PARTITION),
        ("events-0", ["seglog-0123456789ab01-0-1-0.log.staged", ".DS_Store"], FolderKind.PARTITION),
        ("events-0", ["notes.txt"], FolderKind.FOREIGN),
        ("dbus-1", ["system.d/"], FolderKind.FOREIGN),
        *[
            (name, [file], FolderKind.LOG_DIRECTORY)
            for name in ("kafka-logs-1", "data")
            for file in (
                "meta.properties",
                ".lock",
                ".kafka_cleanshutdown",
                ".kafka_cleanshutdown.held",
                "log-start-offset-checkpoint",
                "recovery-point-offset-checkpoint",
                "recovery-point-offset-checkpoint.tmp",
                "replication-offset-checkpoint",
                "cleaner-offset-checkpoint",
                "seglog.lock",
                "seglog.journal",
                "seglog.commit",
                "seglog-0123456789ab01-running.staged",
                f"events-0/{LOG}",
                "events-0/",
                f"events-0.{UUID}-delete/",
            )
        ],
        # What came of a log directory that was once taken for a partition.
        ("kafka-logs-1", ["meta.properties", LOG, "leader-epoch-checkpoint"], FolderKind.LOG_DIRECTORY),
        ("kafka-logs-1", ["events-0/", LOG], FolderKind.MIXED),
        ("data", ["events-0/", LOG], FolderKind.MIXED),
        # Their children are named like partitions, and are none.
        ("etc", ["dbus-1/system.d/", "passwd"], FolderKind.FOREIGN),
        ("disks", ["kafka-logs-1/meta.properties", "kafka-logs-2/meta.properties"], FolderKind.FOREIGN),
        ("disks", ["kafka-logs-1/events-0/"], FolderKind.FOREIGN),
        ("data", [], FolderKind.EMPTY),
        ("backup", [LOG, "notes.txt"], FolderKind.COPY),
        ("__cluster_metadata-0", [LOG], FolderKind.COPY),
        (f"events-0.{UUID}-delete", [LOG], FolderKind.SET_ASIDE),
        (f"events-0.{UUID}-stray", [], FolderKind.SET_ASIDE),
        # A folder in the place of a file tells nothing.
        ("data", ["meta.properties/"], FolderKind.FOREIGN),
    ],
)
def test_what_is_in_a_folder_tells_what_it_is(tmp_path: Path, name: str, within: list[str], kind: FolderKind) -> None:
    assert look_at(LocalStorage(), str(made(tmp_path / name, *within))).kind is kind


def test_files_and_nothing_are_told_apart(tmp_path: Path) -> None:
    assert look_at(LocalStorage(), str(made(tmp_path, "f") / "f")).kind is FolderKind.FILE
    assert look_at(LocalStorage(), str(tmp_path / "f" / "events-0")).kind is FolderKind.NOTHING
    assert look_at(LocalStorage(), str(tmp_path / "events-0")).kind is FolderKind.NOTHING


def test_link_that_leads_to_itself_does_not_make_a_folder_unreadable(tmp_path: Path) -> None:
    made(tmp_path / "data", "events-0/")
    (tmp_path / "data" / "loop-1").symlink_to(tmp_path / "data" / "loop-1")
    assert look_at(LocalStorage(), str(tmp_path / "data")).kind is FolderKind.LOG_DIRECTORY


@pytest.mark.parametrize("logs", [EXAMPLES, *sorted(DATA.glob("*/logs"))], ids=lambda path: path.parent.name)
def test_directories_of_brokers_are_log_directories_and_their_folders_partitions(logs: Path) -> None:
    assert look_at(LocalStorage(), str(logs)).kind is FolderKind.LOG_DIRECTORY
    kinds = {look_at(LocalStorage(), str(path)).kind for path in logs.iterdir() if path.is_dir() and "-" in path.name}
    assert FolderKind.PARTITION in kinds
    assert kinds <= {FolderKind.PARTITION, FolderKind.COPY, FolderKind.SET_ASIDE}


# Reading


NO_PARTITION: dict[str, tuple[Callable[[Path], Path | str], str]] = {
    "log directory": (
        lambda at: made(at / "data", "meta.properties", "events-0/"),
        "it is a log directory, of events-0",
    ),
    "log directory without a partition": (lambda at: made(at / "kafka-logs-1", ".lock"), "which holds no partition"),
    "log directory that was written into": (lambda at: made(at / "kafka-logs-1", ".lock", LOG), "a log directory"),
    "partitions and segments": (lambda at: made(at / "kafka-logs-1", "events-0/", LOG), "it holds events-0 as a log"),
    "foreign folder": (lambda at: made(at / "etc", "passwd", "dbus-1/system.d/"), "it holds dbus-1, passwd"),
    "foreign folder of such a name": (lambda at: made(at / "dbus-1", "system.d/"), "it holds system.d"),
    "empty folder": (lambda at: made(at / "data"), "it is empty"),
    "file": (lambda at: made(at, "f") / "f", "it is a file"),
    "segment": (lambda at: made(at, f"events-0/{LOG}") / "events-0" / LOG, "it is a file"),
    "topic": (lambda at: made(at, "events-0/") / "events", "no such folder"),
    "nothing": (lambda at: at / "events-0", "no such folder"),
    "deleted": (lambda at: made(at / f"events-0.{UUID}-delete", LOG), "set it aside"),
    "system": (lambda _: "/etc", "/etc"),
}


@pytest.mark.parametrize("what", NO_PARTITION)
def test_what_is_no_partition_is_not_an_empty_log(tmp_path: Path, what: str) -> None:
    make, told = NO_PARTITION[what]
    path = make(tmp_path)
    with pytest.raises(PathNotFoundError) as raised:
        open_log(path)
    assert told in str(raised.value)
    assert str(path) in str(raised.value)


def test_example_is_a_log_directory_and_says_of_what() -> None:
    with pytest.raises(PathNotFoundError, match=r"it is a log directory, of __consumer_offsets-0, .*shop-orders-1"):
        open_log(EXAMPLES)


def test_copy_of_a_log_is_read_whatever_its_name(tmp_path: Path) -> None:
    write(tmp_path / "copy of events", 3)
    assert open_log(tmp_path / "copy of events").end_offset == 30


PATHS = ["", " ", "\t\n", "file:", "file://", "a\0b", "/logs\0", "file:///a%00b", "\ud800", "a\udcffb", "file://[x"]


@pytest.mark.parametrize("path", [*PATHS, b"/logs", 7, None])
@pytest.mark.parametrize("open_path", [open_log, LogWriter.open])
def test_path_that_is_none_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: object, open_path: Callable[[object], object]
) -> None:
    """Above all, none of them is the folder that we run in, here one that would do."""
    monkeypatch.chdir(made(tmp_path / "events-0"))
    with pytest.raises(InvalidOptionError, match=r"^\[SEGLOG_INVALID_OPTION\] path ") as raised:
        open_path(path)
    str(raised.value).encode()
    assert not list(Path().iterdir())


# Writing


HOLD_LOCK = "import fcntl, sys, time; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True)"


@pytest.mark.parametrize(
    "within",
    [
        [".lock", "meta.properties"],
        [".lock"],
        ["meta.properties"],
        [".kafka_cleanshutdown"],
        ["recovery-point-offset-checkpoint"],
        ["events-0/"],
        [f"events-0/{LOG}"],
        ["events-0/", LOG],
        ["notes.txt"],
    ],
)
def test_log_directory_that_is_named_like_a_partition_is_not_written_into(tmp_path: Path, within: list[str]) -> None:
    folder = made(tmp_path / "kafka-logs-1", *within)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidOptionError, match="is not the folder of a partition: it"):
        LogWriter.open(folder)
    assert sorted(tmp_path.rglob("*")) == before


def test_directory_of_a_running_broker_that_is_named_like_a_partition_is_left_alone(tmp_path: Path) -> None:
    folder = made(tmp_path / "kafka-logs-1", ".lock", "meta.properties")
    before = sorted(tmp_path.rglob("*"))
    command = [sys.executable, "-c", f"{HOLD_LOCK}; time.sleep(60)", str(folder / ".lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        with pytest.raises(InvalidOptionError, match="a log directory"):
            LogWriter.open(folder)
        with pytest.raises(LockedError):
            LogWriter.open(folder / "events-0")
        broker.kill()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("folder", ["events-0", "backup"])
def test_partitions_folder_is_no_log_directory_to_write_into(tmp_path: Path, folder: str) -> None:
    """Its own records would be hidden: it would be taken for a log directory."""
    made(tmp_path / folder, LOG)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidOptionError, match="is not a log directory: it holds the files of a partition, such as"):
        LogWriter.open(tmp_path / folder / "other-0")
    assert sorted(tmp_path.rglob("*")) == before


def test_log_directory_that_is_named_like_a_partition_is_written_to(tmp_path: Path) -> None:
    """Also one that is new, and empty."""
    for n in range(2):
        folder = tmp_path / "kafka-logs-1" / f"events-{n}"
        with LogWriter.open(folder) as log:
            log.append(pa.table({"value": [b"x"]}))
        assert open_log(folder).end_offset == 1
    with pytest.raises(SeglogError, match="of events-0, events-1"):
        open_log(tmp_path / "kafka-logs-1")
