"""What tells a log from another of the same name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import sparklog
from sparklog.log.config import LogConfig
from sparklog.log.layout import read_layout
from sparklog.log.log_identity import END_BATCH, LOG_ID, TOPIC_ID, EndBatch, LogIdentity, identity_at, read_log_id
from sparklog.log.places import PartitionFolder
from sparklog.storage.local_writing import LocalWritableStorage
from sparklog.write.recovery import recover_log

EARLY = EndBatch(0, 9, 0, -1, -1, -1, 0, 1_000)
LATE = EARLY._replace(max_timestamp=2_000)


def folder_at(path: Path) -> PartitionFolder:
    return PartitionFolder.at(LocalWritableStorage(), str(path))


def append(path: Path, *values: bytes) -> None:
    with sparklog.PartitionLog.open(path) as log:
        for value in values:
            log.append({"value": [value]}, now_ms=int(value, 36))


def test_log_that_is_made_gets_an_id_of_its_own_and_keeps_it(tmp_path: Path) -> None:
    append(tmp_path / "t-0", b"a")
    append(tmp_path / "t-1", b"a")
    first, other = (read_log_id(folder_at(tmp_path / name)) for name in ("t-0", "t-1"))
    assert None not in (first, other)
    assert first != other
    append(tmp_path / "t-0", b"b")
    sparklog.clean(tmp_path, recompress="gzip", processes=1)
    assert read_log_id(folder_at(tmp_path / "t-0")) == first
    shutil.rmtree(tmp_path / "t-0")
    append(tmp_path / "t-0", b"a")
    assert read_log_id(folder_at(tmp_path / "t-0")) not in (None, first)


def test_log_whose_segments_were_removed_is_another(tmp_path: Path) -> None:
    append(tmp_path / "t-0", b"a")
    before = read_log_id(folder_at(tmp_path / "t-0"))
    for file in (tmp_path / "t-0").glob("0*"):
        file.unlink()
    append(tmp_path / "t-0", b"a")
    assert read_log_id(folder_at(tmp_path / "t-0")) not in (None, before)


def test_log_that_recovery_begins_again_is_another(tmp_path: Path) -> None:
    append(tmp_path / "t-0", b"a")
    before = read_log_id(folder_at(tmp_path / "t-0"))
    for file in (tmp_path / "t-0").glob("0*"):
        file.unlink()
    recover_log(folder_at(tmp_path / "t-0"), LogConfig(), 0, dry_run=True)
    assert read_log_id(folder_at(tmp_path / "t-0")) == before
    recover_log(folder_at(tmp_path / "t-0"), LogConfig(), 0)
    begun = read_log_id(folder_at(tmp_path / "t-0"))
    assert begun not in (None, before)
    append(tmp_path / "t-0", b"a")
    assert read_log_id(folder_at(tmp_path / "t-0")) == begun


def test_logs_that_a_commit_makes_have_ids_of_their_own(tmp_path: Path) -> None:
    append(tmp_path / "source" / "t-0", b"a")
    append(tmp_path / "source" / "t-1", b"a")
    sparklog.copy(tmp_path / "source", tmp_path / "target", processes=1)
    ids = [read_log_id(folder_at(path)) for path in sorted(tmp_path.glob("*/t-*"))]
    assert None not in ids
    assert len(set(ids)) == 4
    sparklog.copy(tmp_path / "source", tmp_path / "target", since_last=False, processes=1)
    assert [read_log_id(folder_at(path)) for path in sorted(tmp_path.glob("*/t-*"))] == ids


def test_log_that_others_made_gets_no_id(tmp_path: Path) -> None:
    append(tmp_path / "t-0", b"a")
    (tmp_path / "t-0" / "seglog-identity").unlink()
    append(tmp_path / "t-0", b"b")
    assert read_log_id(folder_at(tmp_path / "t-0")) is None


def test_log_with_nothing_but_an_id_is_a_partition(tmp_path: Path) -> None:
    append(tmp_path / "t-0", b"a")
    for file in (tmp_path / "t-0").iterdir():
        if file.name != "seglog-identity":
            file.unlink()
    assert read_layout(folder_at(tmp_path / "t-0")).end_offset == 0
    append(tmp_path / "t-0", b"a")


@pytest.mark.parametrize(
    "content", [b"", b"version: 0\n", b"version: 1\nlog_id: 0123456789012345678901\n", b"\xff" * 40]
)
def test_damaged_id_is_none(tmp_path: Path, content: bytes) -> None:
    append(tmp_path / "t-0", b"a")
    (tmp_path / "t-0" / "seglog-identity").write_bytes(content)
    assert read_log_id(folder_at(tmp_path / "t-0")) is None


@pytest.mark.parametrize(
    ("known", "found", "difference"),
    [
        (LogIdentity("A", None, None), LogIdentity("B", None, None), TOPIC_ID),
        (LogIdentity("A", "x", None), LogIdentity("A", "y", None), None),
        (LogIdentity(None, "x", None), LogIdentity(None, "y", None), LOG_ID),
        (LogIdentity(None, "x", EARLY), LogIdentity("A", "x", EARLY), None),
        (LogIdentity(None, "x", EARLY), LogIdentity("A", "x", LATE), END_BATCH),
        (LogIdentity("A", "x", EARLY), LogIdentity("A", "x", LATE), END_BATCH),
        (LogIdentity("A", "x", LATE), LogIdentity("A", "x", EARLY), None),
        (LogIdentity("A", "x", EARLY), LogIdentity(), None),
        (LogIdentity(), LogIdentity("A", "x", EARLY), None),
    ],
)
def test_what_proves_that_a_log_is_another(known: LogIdentity, found: LogIdentity, difference: str | None) -> None:
    assert known.difference(found) == difference


def test_copied_folder_is_the_same_log_until_it_is_written_on(tmp_path: Path) -> None:
    append(tmp_path / "a" / "t-0", b"1", b"2")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    ours, copied = (folder_at(tmp_path / name / "t-0") for name in ("a", "b"))
    assert identity_at(read_layout(ours), 2).difference(identity_at(read_layout(copied), 2)) is None
    append(tmp_path / "a" / "t-0", b"3")
    append(tmp_path / "b" / "t-0", b"4", b"5")
    assert identity_at(read_layout(ours), 2).difference(identity_at(read_layout(copied), 2)) is None
    assert identity_at(read_layout(ours), 3).difference(identity_at(read_layout(copied), 3)) == END_BATCH
