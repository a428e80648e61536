"""What root makes in a broker's directory is the broker's user's, who opens it next."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.jobs.clean.arguments import clean
from sparklog.jobs.copy.arguments import copy
from sparklog.log.config import LogConfig
from sparklog.storage.local_writing import LocalWritableStorage
from sparklog.topic.cutting import delete_records, truncate_to
from tests.topic.staged import rows, write

BROKER = (64_001, 64_002)
CONFIG = LogConfig(compression_type="uncompressed", segment_bytes=300)
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def table(*keys: bytes) -> pa.Table:
    return pa.table({"key": list(keys), "value": [bytes(60)] * len(keys)})


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log directory with the owner and the modes that a broker gives it under the umask 027."""
    directory = tmp_path / "logs"
    with sparklog.PartitionLog.open(directory / "events-0", CONFIG, topic_id="Q2TYVrXaSDWPZ5lUZtm3Jg") as log:
        for _ in range(6):
            log.append(table(b"a", b"b"))
    delete_records(directory / "events-0", before_offset=1)
    for path in (directory, *directory.rglob("*")):
        os.chown(path, *BROKER)
        path.chmod(0o750 if path.is_dir() else 0o640)
    return directory


def owners(directory: Path) -> dict[str, tuple[int, int, str]]:
    found = {path.relative_to(directory): path.lstat() for path in directory.rglob("*")}
    return {str(path): (each.st_uid, each.st_gid, stat.filemode(each.st_mode)) for path, each in found.items()}


def append(directory: Path) -> None:
    for name in ("events-0", "events-1"):
        with sparklog.PartitionLog.open(directory / name, CONFIG) as log:
            for _ in range(3):
                log.append(table(b"c"))


def commit(directory: Path) -> None:
    with sparklog.transaction(directory, "billing", CONFIG) as writer:
        writer.append("events", 0, table(b"a"))
        writer.append("new", 0, table(b"a"))
        writer.send_offsets({("events", 0): 1}, "group")
    write(directory, [rows(["x" * 150, "y" * 150])], topic="others", partitions=2, config=CONFIG, is_overwrite=True)


def cut(directory: Path) -> None:
    truncate_to(directory / "events-0", 9)
    delete_records(directory / "events-0", before_offset=5)


VERBS: dict[str, Callable[[Path], object]] = {
    "append": append,
    "commit": commit,
    "cut": cut,
    "compact": lambda logs: clean(logs, cleanup_policy="compact", config={"segment.bytes": "300"}, processes=1),
    "erase": lambda logs: clean(logs, erase=["a"], processes=1),
    "expire": lambda logs: clean(logs, cleanup_policy="delete", retention_ms=0, processes=1),
    "create": lambda logs: sparklog.LogManager(logs).create_topic("made", 2, {"retention.ms": "1"}),
    "delete": lambda logs: sparklog.LogManager(logs).delete_topic("events"),
    "copy": lambda logs: copy(logs, logs, renames={"events": "copied"}, processes=1),
}


@only_root
@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_broker_owns_what_root_makes_and_others_get_no_more_than_before(
    logs: Path, verb: Callable[[Path], object]
) -> None:
    before = owners(logs)
    verb(logs)
    after = owners(logs)
    assert set(after) - set(before)
    assert set(after.values()) <= {(*BROKER, "-rw-r-----"), (*BROKER, "drwxr-x---")}


@only_root
def test_file_that_replaces_another_has_its_owner_and_mode_and_not_the_folders(logs: Path) -> None:
    folder = logs / "events-0"
    for path in (folder, logs):
        os.chown(path, 0, 0)
        path.chmod(0o755)
    clean(logs, cleanup_policy="compact", config={"segment.bytes": "300", "file.delete.delay.ms": "0"}, processes=1)
    found = owners(folder)
    logs_of_segments = {each for name, each in found.items() if name.endswith((".log", ".index", ".timeindex"))}
    assert logs_of_segments == {(*BROKER, "-rw-r-----")}


@only_root
def test_folder_that_is_shared_by_its_group_or_by_all_gives_no_more_than_that(tmp_path: Path) -> None:
    storage = LocalWritableStorage().beneath(str(tmp_path))
    os.chown(tmp_path, 0, BROKER[1])
    for mode, owner in ((0o2775, (0, BROKER[1], "-rw-rw-r--")), (0o1777, (0, 0, "-rw-r--r--"))):
        tmp_path.chmod(mode)
        storage.create(f"{tmp_path}/{mode}").close()
        assert owners(tmp_path)[str(mode)] == owner
    os.chown(tmp_path, *BROKER)
    tmp_path.chmod(0o777)
    storage.create(f"{tmp_path}/all").close()
    assert owners(tmp_path)["all"] == (*BROKER, "-rw-rw-r--")


def test_writer_that_is_not_the_owner_is_warned_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with sparklog.PartitionLog.open(tmp_path / "events-0"):
        pass
    assert "belongs to another user" not in caplog.text
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    monkeypatch.setattr(os, "fchown", lambda *_: (_ for _ in ()).throw(PermissionError()))
    with caplog.at_level(logging.WARNING, logger="sparklog"):
        for _ in range(2):
            with sparklog.PartitionLog.open(tmp_path / "events-0") as log:
                log.append(pa.table({"value": [b"x"]}))
    told = [each.message for each in caplog.records if "belongs to another user" in each.message]
    assert len(told) == 1
    assert str(tmp_path) in told[0]
