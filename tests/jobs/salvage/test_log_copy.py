"""The copy of a damaged log: every untouched batch, byte by byte, none invented, none doubled; a log to go on with."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.jobs.salvage.arguments import salvage
from sparklog.log.layout import read_layout
from sparklog.log.producer_state import Producers
from tests.build import (
    ProducerEntry,
    control_batch,
    leader_epoch_checkpoint,
    offset_checkpoint,
    producer_snapshot,
    write_partition,
)
from tests.jobs.copies import records, refuse_wrong_state
from tests.jobs.salvage.damaged import batches_of, damage, random_batches
from tests.log.logs import batch, batches
from tests.places import folder_at
from tests.topic.staged import findings

FOLDER = "events-0"


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_every_untouched_batch_comes_back_and_none_is_invented_or_doubled(tmp_path: Path, magic: int) -> None:
    rng, missing, kept = random.Random(magic), 0, 0
    for turn in range(60):
        logs, target = tmp_path / f"{turn}", tmp_path / f"{turn}-salvaged"
        written = random_batches(rng, magic, 24)
        write_partition(logs / FOLDER, written, segment_bytes=rng.choice([None, 2000]), index_interval_bytes=300)
        wanted = list[bytes]()
        for path in sorted((logs / FOLDER).glob("*.log")):
            of_segment = batches_of_file(path, written)
            if rng.random() < 0.7:
                data, untouched = damage(rng, of_segment)
                path.write_bytes(data)
                of_segment = [of_segment[row] for row in untouched]
            wanted += of_segment
        done = salvage(logs, target, processes=1)
        found = batches_of(target / FOLDER)
        missing += len(set(wanted) - set(found))
        kept += len(found)
        assert [each for each in written if each in set(found)] == found, turn
        assert findings(target) == [], turn
        assert done.logs[0].batches == len(found), turn
        assert not (done.damage.num_rows == 0 and len(found) < len(written) and len(wanted) == len(written)), turn
    # A single wrapper of magic 1 between two damaged places may be a value that holds a log.
    assert missing <= (kept // 80 if magic == 1 else 0)
    assert kept > 500


def batches_of_file(path: Path, written: list[bytes]) -> list[bytes]:
    data, found = path.read_bytes(), list[bytes]()
    for each in written:
        if data[sum(map(len, found)) :].startswith(each):
            found.append(each)
    assert b"".join(found) == data
    return found


def test_segments_keep_their_names_and_the_copy_can_be_written_on(tmp_path: Path) -> None:
    logs, target = tmp_path / "logs", tmp_path / "salvaged"
    write_partition(logs / FOLDER, batches(12), segment_bytes=1000, index_interval_bytes=100)
    names = [path.name for path in sorted((logs / FOLDER).glob("*.log"))]
    flip(logs / FOLDER / names[1], 100)
    before = {path: path.read_bytes() for path in sorted(logs.rglob("*")) if path.is_file()}
    done = salvage(logs, target)
    assert {path: path.read_bytes() for path in sorted(logs.rglob("*")) if path.is_file()} == before
    assert [path.name for path in sorted((target / FOLDER).glob("*.log"))] == names
    (lost,) = done.damage.to_pylist()
    assert lost["file"] == str(logs / FOLDER / names[1])
    assert (lost["position"], lost["end_offset"] - lost["first_offset"]) == (0, 10)
    assert (done.logs[0].records, done.logs[0].lost_offsets) == (110, 10)
    with sparklog.PartitionLog.open(target / FOLDER) as log:
        assert log.append({"value": ["more"]}) == (120, 120)
    assert records(target / FOLDER, columns=["offset"])[-1] == (120,)


def test_vanished_segment_is_told_if_its_indexes_are_left(tmp_path: Path) -> None:
    logs, target = tmp_path / "logs", tmp_path / "salvaged"
    write_partition(logs / FOLDER, batches(12), segment_bytes=500, index_interval_bytes=100)
    paths = sorted((logs / FOLDER).glob("*.log"))
    bases = [int(path.stem) for path in paths]
    for gone in (paths[0], paths[2], paths[-1]):
        gone.unlink()
    done = salvage(logs, target)
    assert [(each["first_offset"], each["end_offset"]) for each in done.damage.to_pylist()] == [
        (bases[0], bases[1]),
        (bases[2], bases[3]),
        (bases[-1], bases[-1]),
    ]
    # The offsets of the last segment may have been used: at least its first is not used again.
    assert done.logs[0].end_offset == read_layout(folder_at(target / FOLDER)).end_offset == bases[-1]
    assert findings(target) == []


def test_log_ends_where_it_has_once_reached(tmp_path: Path) -> None:
    logs, target = tmp_path / "logs", tmp_path / "salvaged"
    write_partition(logs / FOLDER, batches(12))
    (logs / "replication-offset-checkpoint").write_text(offset_checkpoint({("events", 0): 117}))
    (logs / "recovery-point-offset-checkpoint").write_text(offset_checkpoint({("events", 0): 120}))
    path = logs / FOLDER / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[: len(b"".join(batches(3)))] + bytes(500))
    done = salvage(logs, target)
    assert (done.logs[0].end_offset, done.logs[0].high_watermark) == (120, 117)
    assert [(each["first_offset"], each["end_offset"]) for each in done.damage.to_pylist()] == [(30, 120)]
    with sparklog.PartitionLog.open(target / FOLDER) as log:
        assert log.append({"value": ["more"]}) == (120, 120)
    assert findings(target) == []


def test_log_whose_only_batch_is_damaged_is_empty_and_ends_after_it(tmp_path: Path) -> None:
    logs, target = tmp_path / "logs", tmp_path / "salvaged"
    write_partition(logs / FOLDER, [batch(0)])
    flip(logs / FOLDER / f"{0:020d}.log", 90)
    (log,) = salvage(logs, target).logs
    assert (log.batches, log.end_offset, log.lost_offsets) == (0, 10, 10)
    assert findings(target) == []


def test_epochs_ids_and_the_start_offset_come_along(tmp_path: Path) -> None:
    logs, target = tmp_path / "logs", tmp_path / "salvaged"
    for name in ("events-0", "events-1"):
        write_partition(logs / name, [*batches(3), *batches(3, 30, leader_epoch=4)])
    ids = "version: 0\ntopic_id: Q2TYVrXaSDWPZ5lUZtm3Jg"
    (logs / "events-0" / "partition.metadata").write_text(ids)
    (logs / "events-1" / "partition.metadata").write_bytes(b"\0" * 40)
    epochs = leader_epoch_checkpoint([(0, 0), (3, 30), (4, 30 + 1)])
    (logs / "events-0" / "leader-epoch-checkpoint").write_text(leader_epoch_checkpoint([(0, 0), (4, 30)]))
    (logs / "events-1" / "leader-epoch-checkpoint").write_text(epochs[:-5] + "x")
    (logs / "log-start-offset-checkpoint").write_text(offset_checkpoint({("events", 0): 15}))
    salvage(logs, target)
    for name in ("events-0", "events-1"):
        assert (target / name / "partition.metadata").read_text() == ids
        assert (target / name / "leader-epoch-checkpoint").read_text() == leader_epoch_checkpoint([(0, 0), (4, 30)])
    assert read_layout(folder_at(target / "events-0")).start_offset == 15
    assert findings(target) == []


def test_producers_and_aborted_transactions_are_those_of_the_batches(tmp_path: Path) -> None:
    logs, target = tmp_path / "logs", tmp_path / "salvaged"
    of_producer = {"producer_id": 7, "producer_epoch": 1, "transactional": True}
    write_partition(
        logs / FOLDER,
        [
            batch(0, 5, base_sequence=0, **of_producer),
            control_batch("abort", 5, 7, 1),
            batch(6, 5, base_sequence=5, **of_producer),
            control_batch("commit", 11, 7, 1),
            batch(12),
            batch(22),
        ],
        segment_bytes=700,
    )
    last = sorted((logs / FOLDER).glob("*.log"))[-1]
    flip(last, 100)
    salvage(logs, target)
    refuse_wrong_state(target / FOLDER)
    assert [offset for (offset,) in records(target / FOLDER, "read_committed", ["offset"])][:5] == list(range(6, 11))


def test_snapshot_of_the_source_counts_only_after_damage(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    made = [batch(base, 10, producer_id=7, producer_epoch=1, base_sequence=base) for base in range(0, 40, 10)]
    for is_damaged in (False, True):
        write_partition(logs / FOLDER, made, segment_bytes=len(made[0]))
        for base in (10, 20, 30):
            entry = ProducerEntry(99 if base == 30 else 7, 1, base - 1, base - 1, 9)
            (logs / FOLDER / f"{base:020d}.snapshot").write_bytes(producer_snapshot([entry]))
        if is_damaged:
            flip(logs / FOLDER / f"{20:020d}.log", 70)
        target = tmp_path / str(is_damaged)
        salvage(logs, target)
        snapshot = (target / FOLDER / f"{40:020d}.snapshot").read_bytes()
        assert set(Producers.parse(snapshot, "").entries) == ({7, 99} if is_damaged else {7})


def test_transaction_whose_end_was_lost_is_open_and_counted(tmp_path: Path) -> None:
    logs, target = tmp_path / "logs", tmp_path / "salvaged"
    of_producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 1, "transactional": True}
    ended = [batch(0, 5, base_sequence=0, **of_producer), control_batch("commit", 5, 7, 1), batch(6)]
    write_partition(logs / FOLDER, ended)
    flip(logs / FOLDER / f"{0:020d}.log", len(ended[0]) + 65)
    assert salvage(logs, target).logs[0].open_transactions == 1
    assert [offset for (offset,) in records(target / FOLDER, "read_uncommitted", ["offset"])] == [
        *range(5),
        *range(6, 16),
    ]
    # A snapshot of the source knows the end.
    write_partition(logs / FOLDER, ended, segment_bytes=len(ended[0] + ended[1]))
    flip(logs / FOLDER / f"{0:020d}.log", len(ended[0]) + 65)
    (logs / FOLDER / f"{6:020d}.snapshot").write_bytes(producer_snapshot([ProducerEntry(7, 1, 4, 4, 4)]))
    assert salvage(logs, tmp_path / "again").logs[0].open_transactions == 0
