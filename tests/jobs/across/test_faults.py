"""Comparing the files of log directories: each damage made across files is found, and sound directories have none."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import sparklog
from sparklog.errors import InvalidOptionError
from sparklog.log.journal import Append, Journal, Rename
from sparklog.system.cluster_state import ClusterState
from tests.build import ProducerEntry, leader_epoch_checkpoint, offset_checkpoint, producer_snapshot
from tests.golden import EXAMPLES, GoldenSet, golden_set, golden_sets
from tests.growth import SIZES, counted_work, make_partitions
from tests.jobs.verifying import problems_across
from tests.system.test_cluster_metadata import change, framed, topic, write_log

Damage = Callable[[Path, Path], object]
"""Damages the first directory, with a second one to make beside it."""

OTHER_ID = "0q2TYVrXaSDWPZ5lUZtm3J"
LOG, SECOND = "read-by-groups-0", "read-by-groups-1"
META, EPOCHS, MARKER = "meta.properties", "leader-epoch-checkpoint", ".kafka_cleanshutdown"
STARTS, WATERMARKS = "log-start-offset-checkpoint", "replication-offset-checkpoint"
RECOVERY, CLEANER = "recovery-point-offset-checkpoint", "cleaner-offset-checkpoint"


def edit(name: str, old: str, new: str) -> Damage:
    """Replace a text in a file; an empty one stands for the whole content."""

    def change(disk: Path, _: Path) -> None:
        text = (disk / name).read_text()
        assert old in text
        (disk / name).write_text(text.replace(old, new) if old else new)

    return change


def write(name: str, data: bytes | str) -> Damage:
    return lambda disk, _: (disk / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def remove(*names: str) -> Damage:
    def go(disk: Path, _: Path) -> None:
        for name in names:
            shutil.rmtree(disk / name) if (disk / name).is_dir() else (disk / name).unlink()

    return go


def rename(name: str, new: str) -> Damage:
    return lambda disk, _: (disk / name).rename(disk / new)


def copy_folder(name: str, new: str) -> Damage:
    return lambda disk, _: shutil.copytree(disk / name, disk / new)


def both(*damages: Damage) -> Damage:
    def go(disk: Path, other: Path) -> None:
        for damage in damages:
            damage(disk, other)

    return go


def second(*names: str, meta: tuple[str, str] = ("", "")) -> Damage:
    """Make a second directory, with some of the first one's files, and a text of its meta.properties replaced."""

    def make(disk: Path, other: Path) -> None:
        other.mkdir()
        for name in names:
            copy = shutil.copytree if (disk / name).is_dir() else shutil.copy
            copy(disk / name, other / name)
        if META in names and meta[0]:
            edit(META, *meta)(other, other)

    return make


NODE, CLUSTER = "node.id=1", "cluster.id=c3Bhcmtsb2ctdGVzdHMtMQ"
DIRECTORY = "directory.id=XRqbfiuRTM-M4eyTNUBq3w"
OTHER_DIRECTORY = (DIRECTORY, f"directory.id={OTHER_ID}")
STRAY = f"{LOG}.5e44272dcfd049d3a6e6a32495c98238-stray"
FUTURE = f"{SECOND}.5e44272dcfd049d3a6e6a32495c98238-future"
FOREIGN_SNAPSHOT = producer_snapshot([ProducerEntry(producer_id=4711, last_offset=19, last_sequence=3)])
LOST_APPEND = Journal("1", {}, (Append("seglog-0123456789abc-1.staged", 0, 100, f"{LOG}/{0:020d}.log", 1 << 20),))
LOST_RENAME = Journal("1", {}, (Rename("seglog-0123456789abc-1.staged", f"{LOG}/{99:020d}.log"),))
COMMITS = {"read-by-groups": {"0": [999, "", 0]}}

DAMAGES: dict[str, tuple[Damage, str, str, str]] = {
    "no meta.properties": (remove(META), "error", "meta-missing", META),
    "meta.properties of zeros": (write(META, bytes(64)), "error", "meta-garbled", META),
    "meta.properties without a node": (edit(META, NODE, ""), "error", "meta-garbled", META),
    "meta.properties of an unknown version": (edit(META, "version=1", "version=7"), "error", "meta-garbled", META),
    "meta.properties with a number twice": (edit(META, NODE, f"{NODE}\nnode.id=2"), "error", "meta-garbled", META),
    "directory id that is none": (edit(META, DIRECTORY, "directory.id=../../x"), "error", "meta-garbled", META),
    "directory id of another disk": (edit(META, *OTHER_DIRECTORY), "warning", "directory-unknown", META),
    "partitions assigned to another disk": (edit(META, *OTHER_DIRECTORY), "warning", "partition-directory", LOG),
    "disk of another node": (edit(META, NODE, "node.id=5"), "warning", "partition-unassigned", LOG),
    "copied disk": (second(META), "error", "directory-id", META),
    "disk of another cluster": (second(META, meta=(CLUSTER, "cluster.id=x")), "error", "meta-cluster", META),
    "disks of two versions": (
        both(
            second(META, meta=(NODE, "broker.id=1")),
            lambda _, other: edit(META, "version=1", "version=0")(other, other),
        ),
        "warning",
        "meta-node",
        META,
    ),
    "partition on two disks of a node": (second(META, LOG, meta=OTHER_DIRECTORY), "error", "partition-doubled", LOG),
    "second disk without meta.properties": (second(LOG), "warning", "meta-missing", META),
    "topic with two ids on two disks": (
        both(second(META, SECOND, meta=OTHER_DIRECTORY), lambda _, other: new_id(other / SECOND)),
        "error",
        "topic-id",
        "partition.metadata",
    ),
    "topic id that the cluster does not know": (
        both(lambda disk, _: new_id(disk / LOG), lambda disk, _: new_id(disk / SECOND)),
        "warning",
        "topic-id",
        "partition.metadata",
    ),
    "no topic id": (remove(f"{LOG}/partition.metadata"), "warning", "topic-id", "partition.metadata"),
    "folder with another topic's name": (rename(LOG, "payments-0"), "error", "topic-id", "partition.metadata"),
    "topic that the cluster does not know": (
        both(rename(LOG, "payments-0"), lambda disk, _: new_id(disk / "payments-0")),
        "warning",
        "partition-unknown",
        "payments-0",
    ),
    "partition that the topic does not have": (
        copy_folder(LOG, "read-by-groups-9"),
        "warning",
        "partition-unknown",
        "read-by-groups-9",
    ),
    "lost partition": (remove(LOG), "error", "partition-missing", LOG),
    "leader epoch above the cluster's": (
        write(f"{LOG}/{EPOCHS}", leader_epoch_checkpoint([(0, 0), (7, 20)])),
        "error",
        "cluster-epoch",
        EPOCHS,
    ),
    "metadata log with a flipped byte": (
        lambda disk, _: flip(disk / "__cluster_metadata-0" / f"{0:020d}.log", 700),
        "error",
        "cluster-metadata",
        "__cluster_metadata-0",
    ),
    "garbled vote": (write("__cluster_metadata-0/quorum-state", "{"), "error", "quorum-state", "quorum-state"),
    "vote of an older epoch": (
        edit("__cluster_metadata-0/quorum-state", '"leaderEpoch":1', '"leaderEpoch":0'),
        "error",
        "quorum-state",
        "quorum-state",
    ),
    "no vote": (remove("__cluster_metadata-0/quorum-state"), "warning", "quorum-state", "quorum-state"),
    "no recovery points": (remove(RECOVERY), "warning", "checkpoint-missing", RECOVERY),
    "no high watermarks": (remove(WATERMARKS), "warning", "checkpoint-missing", WATERMARKS),
    "recovery point of a log is gone": (
        write(RECOVERY, offset_checkpoint({("read-by-groups", 0): 20})),
        "warning",
        "checkpoint-missing",
        RECOVERY,
    ),
    "negative high watermark": (
        edit(WATERMARKS, "read-by-groups 0 20", "read-by-groups 0 -20"),
        "error",
        "checkpoint-value",
        WATERMARKS,
    ),
    "log start above the high watermark": (
        both(
            write(STARTS, offset_checkpoint({("read-by-groups", 0): 15})),
            edit(WATERMARKS, "read-by-groups 0 20", "read-by-groups 0 7"),
        ),
        "warning",
        "checkpoint-order",
        WATERMARKS,
    ),
    "recovery point below the start": (
        both(
            write(STARTS, offset_checkpoint({("read-by-groups", 0): 15})),
            edit(RECOVERY, "read-by-groups 0 20", "read-by-groups 0 7"),
        ),
        "warning",
        "checkpoint-order",
        RECOVERY,
    ),
    "recovery point before the end after a clean stop": (
        edit(RECOVERY, "read-by-groups 0 20", "read-by-groups 0 12"),
        "warning",
        "shutdown-marker",
        MARKER,
    ),
    "garbled marker": (write(MARKER, b"\0" * 30), "warning", "shutdown-marker", MARKER),
    "marker twice": (write(f"{MARKER}.held", ""), "warning", "shutdown-marker", f"{MARKER}.held"),
    "stray folder of a known topic": (rename(LOG, STRAY), "warning", "stray-known", STRAY),
    "move between disks without its log": (rename(SECOND, FUTURE), "warning", "future-alone", FUTURE),
    "snapshot past the end": (
        write(f"{LOG}/{99:020d}.snapshot", producer_snapshot([])),
        "warning",
        "snapshot-end",
        f"{99:020d}.snapshot",
    ),
    "snapshot of another log": (
        write(f"{LOG}/{20:020d}.snapshot", FOREIGN_SNAPSHOT),
        "warning",
        "snapshot-foreign",
        f"{20:020d}.snapshot",
    ),
    "garbled journal": (write("seglog.journal", "{"), "error", "own-file", "seglog.journal"),
    "journal whose staged batches are lost": (
        write("seglog.journal", LOST_APPEND.to_json()),
        "error",
        "journal-source",
        "seglog.journal",
    ),
    "journal whose staged file is lost": (
        write("seglog.journal", LOST_RENAME.to_json()),
        "error",
        "journal-source",
        "seglog.journal",
    ),
    "garbled ledger of streams": (write("seglog.ledger", "[]"), "error", "own-file", "seglog.ledger"),
    "garbled ledger of jobs": (write("seglog.ledger.jsonl", "{}\n{}\n"), "error", "own-file", "seglog.ledger.jsonl"),
    "garbled offsets of groups": (write("seglog.offsets", "\0\0"), "error", "own-file", "seglog.offsets"),
    "garbled transactional ids": (write("seglog.transactions", "{}"), "error", "own-file", "seglog.transactions"),
    "properties of a misspelt name": (
        write("topics.properties", "events/retention.msec=1\n"),
        "error",
        "own-file",
        "topics.properties",
    ),
    "properties of a topic that is not there": (
        write("topics.properties", "evnets/retention.ms=1\n"),
        "warning",
        "config-topic",
        "topics.properties",
    ),
    "group's offset past the end": (
        write("seglog.offsets", json.dumps({"version": 1, "groups": {"g": COMMITS}})),
        "warning",
        "group-offset",
        "seglog.offsets",
    ),
    "garbled log id": (write(f"{LOG}/seglog-identity", "version: 9"), "warning", "own-file", "seglog-identity"),
    "log id of another folder": (
        both(*(write(f"{name}/seglog-identity", f"version: 0\nlog_id: {OTHER_ID}\n") for name in (LOG, SECOND))),
        "warning",
        "log-id",
        "seglog-identity",
    ),
}


def new_id(folder: Path) -> None:
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_ID}")


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def _longer(data: bytes) -> bytes:
    return data + b"\xff[" * 5000


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.jobs.across.faults._PAUSE_S", 0.0)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """Copy the directory of a KRaft broker with its metadata log."""
    return shutil.copytree(golden_set("v2-internal").log_dir, tmp_path / "disk")


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_across_files_is_found(disk: Path, tmp_path: Path, name: str) -> None:
    damage, severity, code, file = DAMAGES[name]
    assert problems_across(disk) == []
    damage(disk, tmp_path / "other")
    directories = [each for each in (disk, tmp_path / "other") if each.is_dir()]
    assert (severity, code, file) in problems_across(*directories)


@pytest.mark.parametrize("golden", golden_sets(), ids=lambda golden: golden.name)
def test_what_a_broker_wrote_has_no_fault_across_files(golden: GoldenSet) -> None:
    assert problems_across(golden.log_dir) == []


def test_example_directory_has_no_fault_across_files() -> None:
    assert problems_across(EXAMPLES) == []


def test_disks_of_two_nodes_may_have_the_same_partitions(disk: Path, tmp_path: Path) -> None:
    """The second node's disk has no metadata log, and is compared with the first one's, which does not know it."""
    other = shutil.copytree(disk, tmp_path / "other")
    shutil.rmtree(other / "__cluster_metadata-0")
    edit(META, NODE, "node.id=2")(other, other)
    edit(META, *OTHER_DIRECTORY)(other, other)
    found = problems_across(disk, other)
    assert {code for _, code, _ in found} == {"partition-unassigned"}


def test_new_partition_that_a_killed_broker_has_not_made_is_a_note(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (disk / MARKER).unlink()
    for name in (RECOVERY, WATERMARKS):
        (disk / name).unlink()
    shutil.rmtree(disk / LOG)
    apply = ClusterState.apply

    def applied(state: ClusterState, record: object) -> None:
        if getattr(record, "name", "") != "PartitionChangeRecord":
            apply(state, record)  # type: ignore[arg-type]

    assert ("warning", "partition-missing", LOG) in problems_across(disk)
    monkeypatch.setattr(ClusterState, "apply", applied)
    assert "partition-missing" not in {code for _, code, _ in problems_across(disk)}


def test_folder_of_a_topic_that_was_just_deleted_is_a_note(tmp_path: Path) -> None:
    gone = "ELp_WcwCTsycrietGK4V7Q"
    write_log(tmp_path, topic("gone", gone), framed("RemoveTopicRecord", topicId=gone), topic("kept", OTHER_ID))
    for name in ("gone-0", "never-0"):
        shutil.copytree(golden_set("v2-internal").log_dir / LOG, tmp_path / name)
    (tmp_path / "gone-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {gone}")
    found = problems_across(tmp_path)
    assert ("warning", "partition-unknown", "gone-0") not in found
    assert ("warning", "topic-id", "partition.metadata") not in found
    assert ("warning", "partition-unknown", "never-0") in found


def test_leftovers_are_notes_with_their_age(disk: Path) -> None:
    stray = disk / f"gone-0.{'5' * 32}-delete"
    stray.mkdir()
    os.utime(stray, (1_700_000_000, 1_700_000_000))
    (disk / "seglog-018bcfe5680000112233445566-0-1.log.staged").write_bytes(b"12345")
    notes = [each for each in sparklog.verify(disk, deep=True) if each.code == "leftover"]
    assert {each.severity.value for each in notes} == {"note"}
    assert sorted(" days" in each.message for each in notes) == [True, True]
    assert any("5 bytes" in each.message for each in notes)


def test_metadata_of_records_that_are_missing_are_found(tmp_path: Path) -> None:
    write_log(tmp_path, change(0, leader=1))
    assert ("warning", "cluster-metadata", "__cluster_metadata-0") in problems_across(tmp_path)


@pytest.mark.parametrize("damage", [lambda _: b"", lambda data: bytes(len(data)), lambda data: data[::-1], _longer])
def test_no_damage_of_a_small_file_ends_the_comparison(disk: Path, damage: Callable[[bytes], bytes]) -> None:
    for name in ("seglog.journal", "seglog.offsets", "seglog.ledger", "seglog.transactions", "topics.properties"):
        (disk / name).write_bytes(b'{"version": 1}')
    paths = [path for path in disk.rglob("*") if path.is_file() and path.stat().st_size < 5000]
    assert len(paths) > 40
    for path in paths:
        data = path.read_bytes()
        path.write_bytes(damage(data))
        problems_across(disk)
        path.write_bytes(data)


def test_work_does_not_grow_with_other_partitions(tmp_path: Path) -> None:
    calls = []
    for count in SIZES:
        directory = tmp_path / str(count)
        make_partitions(directory, count)
        with counted_work() as work:
            problems_across(directory)
        calls.append(work.calls / count)
    assert calls[-1] <= calls[0] * 1.05


def test_paths_of_some_logs_are_refused(disk: Path) -> None:
    with pytest.raises(InvalidOptionError, match="name the log directory"):
        list(sparklog.verify(disk / LOG, deep=True))


def test_without_deep_files_are_not_compared(disk: Path) -> None:
    edit(META, *OTHER_DIRECTORY)(disk, disk)
    assert [each for each in sparklog.verify(disk) if each.severity != "note"] == []
    found = [each for each in sparklog.verify(disk, deep=True) if each.severity != "note"]
    assert {each.code for each in found} == {"directory-unknown", "partition-directory"}
    assert all(each.fault and each.command for each in found)
    assert [each for each in sparklog.verify(disk, deep=True, processes=2) if each.severity != "note"] == found
