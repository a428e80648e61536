"""A restore to a time: every log is cut exactly, transactions are ended, and groups' offsets are within the logs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.errors import CorruptLogError, InvalidOptionError, PathNotFoundError
from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import NO_OFFSET, OffsetCommit
from sparklog.log.layout import read_layout
from sparklog.log.producer_snapshots import producers_at_end
from sparklog.log.reader import open_log
from sparklog.topic.internal.groups import committed
from sparklog.write.group_offsets import commit_group_offsets, read_group_offsets
from tests.build import Record, control_batch, legacy_wrapper, message_set, v2_batch, write_partition
from tests.jobs.copies import records, refuse_wrong_state
from tests.log.logs import batch
from tests.places import directory_at, folder_at
from tests.storage.crash import tree_of
from tests.system.logs import Put, put, write_log
from tests.topic.groups import classic, commits, write_groups
from tests.topic.staged import findings

TIMES = [1000, 1001, 1007, 1005, 1003, 1009, 1002, 1020, 1011, 1012, 1013, 1014]
"""The times of a log's records, which are not in order."""
EVERY_TIME = [0, *sorted(TIMES), 1015, 1021]
PRODUCER: dict[str, Any] = {"producer_id": 7, "producer_epoch": 3, "transactional": True}


def restored(source: Path, target: Path, to: int | None, **options: Any) -> Path:
    sparklog.restore(source, target, to=to, processes=1, **options)
    assert findings(target) == []
    for folder in sorted(target.glob("*-[0-9]*")):
        refuse_wrong_state(folder)
    return target


def timed(first: int, count: int) -> list[Record]:
    return [Record(n, TIMES[first + n], b"k", b"value of %d" % (first + n)) for n in range(count)]


def of_codec(codec: str, magic: int) -> list[bytes]:
    if magic == 2:
        return [v2_batch(timed(n, 4), base_offset=n, codec=codec) for n in (0, 4, 8)]
    if codec == "none":
        return [message_set(timed(n, 1), base_offset=n, magic=magic) for n in range(12)]
    return [legacy_wrapper(timed(n, 4), base_offset=n, codec=codec, magic=magic) for n in (0, 4, 8)]


@pytest.mark.parametrize(("codec", "magic"), [("none", 2), ("gzip", 2), ("zstd", 2), ("none", 1), ("gzip", 1)])
def test_every_log_ends_before_its_first_record_at_or_after_the_time(tmp_path: Path, codec: str, magic: int) -> None:
    source = tmp_path / "logs"
    write_partition(source / "events-0", of_codec(codec, magic))
    before = tree_of(source)
    for time_ms in EVERY_TIME:
        with open_log(source / "events-0") as log:
            cut_offset = log.offset_for_time(time_ms)
        target = restored(source, tmp_path / f"to-{time_ms}", time_ms)
        wanted = records(source / "events-0")[:cut_offset]
        assert records(target / "events-0") == wanted, time_ms
        # New records get offsets that no record had.
        end_offset = read_layout(folder_at(target / "events-0")).end_offset
        assert end_offset >= (12 if cut_offset is None else cut_offset)
        if magic == 2:
            assert end_offset == (12 if cut_offset is None else -(-cut_offset // 4) * 4)
    assert tree_of(source) == before


def test_whole_restore_keeps_everything_and_the_log_start(tmp_path: Path) -> None:
    source = tmp_path / "logs"
    write_partition(source / "events-0", [batch(20, 5), batch(30, 5, **PRODUCER, base_sequence=0)], base_offset=20)
    (source / "log-start-offset-checkpoint").write_text("0\n1\nevents 0 22\n")
    target = restored(source, tmp_path / "whole", None)
    assert records(target / "events-0") == records(source / "events-0")
    layout = read_layout(folder_at(target / "events-0"))
    assert (layout.start_offset, layout.end_offset) == (22, 35)
    assert producers_at_end(layout).open_transactions == {7: 30}
    emptied = read_layout(folder_at(restored(source, tmp_path / "emptied", 1) / "events-0"))
    assert (emptied.start_offset, emptied.end_offset) == (22, 22)


def state(name: str, **value: Any) -> Put:
    partitions = [{"topic": "events", "partitionIds": [0, 1]}]
    fields = {"producerEpoch": 3, "transactionTimeoutMs": 60_000, "transactionPartitions": partitions, **value}
    return put("TransactionLog", {"transactionalId": name}, fields, 1)


@pytest.mark.parametrize(
    ("status", "ended", "marker", "epochs"),
    [
        ("Ongoing", "CompleteAbort", "aborted", (4, 4)),
        ("PrepareAbort", "CompleteAbort", "aborted", (3, 3)),
        ("PrepareEpochFence", "CompleteAbort", "aborted", (3, 3)),
        ("PrepareCommit", "CompleteCommit", "committed", (3, 3)),
        (None, None, "aborted", (3, None)),
    ],
)
def test_transaction_across_the_time_is_ended_in_all_logs(
    tmp_path: Path, status: str | None, ended: str | None, marker: str, epochs: tuple[int, int | None]
) -> None:
    """A commit after the time does not count, also where no record is as late."""
    source = tmp_path / "logs"
    batches = [batch(0, 5), v2_batch([Record(0, 1005), Record(1, 1030)], base_offset=5, base_sequence=0, **PRODUCER)]
    write_partition(source / "events-0", [*batches, control_batch("commit", 7, 7, 3, 1100)])
    write_partition(
        source / "events-1", [batch(0, 5, base_sequence=0, **PRODUCER), control_batch("commit", 5, 7, 3, 1100)]
    )
    if status is not None:
        number = {"Ongoing": 1, "PrepareCommit": 2, "PrepareAbort": 3, "PrepareEpochFence": 7}[status]
        write_log(source / "__transaction_state-0", [state("id", producerId=7, transactionStatus=number)])
    target = restored(source, tmp_path / "cut", 1020)
    for name, count in (("events-0", 6), ("events-1", 5)):
        assert len(records(target / name)) == count
        producers = producers_at_end(read_layout(folder_at(target / name)))
        assert (producers.open_transactions, producers.entries[7].epoch) == ({}, epochs[0])
        committed = count if marker == "committed" else count - (1 if name == "events-0" else 5)
        assert len(records(target / name, "read_committed")) == committed
    if ended is not None:
        rows = sparklog.views.read(target, "transactions").to_pylist()
        assert [(row["state"], row["producer_epoch"], row["partitions"]) for row in rows] == [(ended, epochs[1], [])]


def test_coordinator_gives_the_next_producer_where_epochs_are_used_up(tmp_path: Path) -> None:
    source = tmp_path / "logs"
    write_log(
        source / "__transaction_state-0",
        [state("id", producerId=7, producerEpoch=32767, transactionStatus=3, nextProducerId=90)],
    )
    rows = sparklog.views.read(restored(source, tmp_path / "cut", 5000), "transactions").to_pylist()
    shown = [rows[0][name] for name in ("state", "producer_id", "producer_epoch", "previous_producer_id")]
    assert shown == ["CompleteAbort", 90, 0, 7]


def test_offsets_of_groups_are_those_before_the_time_and_within_the_logs(tmp_path: Path) -> None:
    source = tmp_path / "logs"
    write_partition(source / "events-0", [batch(0, 10), batch(10, 10)])
    write_partition(source / "events-1", [batch(0, 10)])
    beyond = commits("late", {("events", 0): 19, ("events", 1): 7, ("elsewhere", 0): 90})
    write_groups(
        source, {"late": [*beyond, classic("late", since_ms=5)], "early": commits("early", {("events", 0): 3})}
    )
    target = restored(source, tmp_path / "cut", 1010)
    rows = sparklog.views.read(target, "consumer_offsets").to_pylist()
    found = {(row["group"], row["topic"], row["partition"]): row["offset"] for row in rows}
    assert found == {
        ("late", "events", 0): 10,
        ("late", "events", 1): 7,
        ("late", "elsewhere", 0): 90,
        ("early", "events", 0): 3,
    }
    # A broker removes offsets that were committed a week ago, and those of groups that are empty for so long.
    assert {row["commit_timestamp"].year for row in rows} > {1970} or min(
        row["commit_timestamp"].year for row in rows
    ) > 2000


def test_commits_at_or_after_the_time_do_not_count(tmp_path: Path) -> None:
    source = tmp_path / "logs"
    write_partition(source / "events-0", [batch(0, 1), batch(1, 9)])
    write_log(source / "__consumer_offsets-0", [*commits("g", {("events", 0): 2}), *commits("g", {("events", 0): 9})])
    rows = sparklog.views.read(restored(source, tmp_path / "cut", 1001), "consumer_offsets").to_pylist()
    assert [row["offset"] for row in rows] == [1], "the second commit is of 1001, and the log ends at 1"


def test_offsets_of_sparklogs_groups_are_within_the_logs_and_count_where_they_did(tmp_path: Path) -> None:
    source, groups = tmp_path / "logs", ("own", "cluster")
    write_partition(source / "events-0", [batch(0, 10), batch(10, 10)])
    write_partition(source / "events-1", [batch(0, 10)])
    (source / "events-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAAAQ\n")
    write_groups(source, {name: commits(name, {("events", 0): 4, ("events", 1): 4}, time_ms=50) for name in groups})
    directory, first, second = directory_at(source), TopicPartition("events", 0), TopicPartition("events", 1)
    commit_group_offsets(directory, "own", {first: OffsetCommit(19, "note", 60), TopicPartition("gone", 3): at(90, 7)})
    commit_group_offsets(directory, "cluster", {first: at(9, 40), second: at(9, 40)})
    commit_group_offsets(directory, "own", {second: at(NO_OFFSET, 60)})
    commit_group_offsets(directory, "only", {second: at(7, 5)})
    assert (source / "seglog.offsets.journal").exists()
    sparklog.backup(source, tmp_path / "set", processes=1)
    before = tree_of(source)
    for place in (source, tmp_path / "set"):
        for time_ms, end in ((None, 19), (1010, 10)):
            target = directory_at(restored(place, tmp_path / f"{place.name} {time_ms}", time_ms))
            found = {name: committed(target, name) for name in ("own", "cluster", "only")}
            offsets = {name: {str(at): each.offset for at, each in of.items()} for name, of in found.items()}
            assert offsets == {
                "own": {"events-0": end, "gone-3": 90},
                "cluster": {"events-0": 4, "events-1": 4},
                "only": {"events-1": 7},
            }
            assert found["own"][first].metadata == "note"
            # The ids of topics come along: a topic that is made anew has no committed offsets.
            path = Path(target.path) / "events-0" / "partition.metadata"
            path.write_text("version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAAAg\n")
            assert "events-0" not in map(str, read_group_offsets(target, "own")["own"])
    assert tree_of(source) == before


def at(offset: int, time_ms: int) -> OffsetCommit:
    return OffsetCommit(offset, "", time_ms)


def test_finished_restore_is_not_made_again_and_no_other_is_made_over_it(tmp_path: Path) -> None:
    source, target = tmp_path / "logs", tmp_path / "target"
    write_partition(source / "events-0", [batch(0, 10)])
    restored(source, target, 1005)
    before = tree_of(target)
    assert sparklog.restore(source, target, to=1005, processes=1).moved == ()
    assert tree_of(target) == before
    for options in ({"to": 1006}, {"to": None}, {"to": 1005, "for_cluster": tmp_path / "metadata"}):
        with pytest.raises(InvalidOptionError, match="is not empty"):
            sparklog.restore(source, target, processes=1, **options)
    assert tree_of(target) == before
    assert not (tmp_path / "metadata").exists()


def test_damaged_log_is_named_and_nothing_is_restored(tmp_path: Path) -> None:
    source = tmp_path / "logs"
    for number in range(2):
        write_partition(source / f"events-{number}", [batch(0, 10), batch(10, 10), batch(20, 10)])
    damaged = source / "events-1" / "00000000000000000000.log"
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(CorruptLogError, match="events-1"):
        sparklog.restore(source, tmp_path / "target", processes=1)
    assert list((tmp_path / "target").glob("events-*")) == []


def test_arguments_that_cannot_be_meant_change_nothing(tmp_path: Path) -> None:
    source = tmp_path / "logs"
    write_partition(source / "events-0", [batch(0, 10)])
    before = tree_of(tmp_path)
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (PathNotFoundError, "nowhere", {"source": tmp_path / "nowhere"}),
        (PathNotFoundError, "restore a whole one", {"source": source / "events-0"}),
        (InvalidOptionError, "whole number", {"to": 1.5}),
        (InvalidOptionError, "is in", {"target": source / "inside"}),
        (InvalidOptionError, "is in", {"for_cluster": source / "inside"}),
        (PathNotFoundError, "no metadata of a cluster", {"metadata": source}),
    ]
    for error, message, given in wrong:
        arguments = {"source": source, "target": tmp_path / "target", "processes": 1, **given}
        with pytest.raises(error, match=message):
            sparklog.restore(**arguments)
        assert tree_of(tmp_path) == before, message
    assert sparklog.restore(source, tmp_path / "target", dry_run=True, processes=1).planned
    assert tree_of(tmp_path) == before
    for time_ms, count in ((-(2**70), 0), (2**70, 10)):
        sparklog.restore(source, tmp_path / "far", to=time_ms, processes=1)
        assert len(records(tmp_path / "far" / "events-0")) == count
        shutil.rmtree(tmp_path / "far")
