"""The consumer of a log directory: what it gets, where it goes on, and what it commits."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.clients.consumer import Consumer
from sparklog.clients.producer import Producer
from sparklog.errors import (
    CorruptCheckpointError,
    IllegalStateError,
    InvalidOptionError,
    KafkaConfigurationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import files
from sparklog.log.checkpoints import encode_offset_checkpoint
from sparklog.log.clock import wall_clock_ms
from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import GroupOffsets
from sparklog.log.places import LogDirectory
from sparklog.topic.internal.given_offsets import OffsetAndMetadata
from sparklog.topic.log_manager import LogManager
from sparklog.write.group_offsets import read_group_offsets
from sparklog.write.partition import LogWriter
from tests.build import Record, v2_batch, write_partition
from tests.golden import golden_set
from tests.places import directory_at
from tests.system.logs import put, write_log

SECONDS = 60
EVENTS = TopicPartition("events", 0)


def send(path: Path, *values: bytes, topic: str = "events", **options: Any) -> None:
    with Producer(path) as producer:
        for value in values:
            producer.send(topic, value, **options)


def polled(consumer: Consumer, count: int, **options: Any) -> list[Any]:
    """Poll until so many values have come, or nothing more does."""
    found: list[Any] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < deadline:
        found += [each.value for records in consumer.poll(100, **options).values() for each in records]
    return found


def from_start(path: Path, *topics: str, **config: Any) -> Consumer:
    return Consumer(path, *topics, auto_offset_reset="earliest", **config)


def test_record_has_all_that_was_sent(tmp_path: Path) -> None:
    send(tmp_path, b"value", key=b"key", headers=[("a", b"xy")], timestamp_ms=77)
    with from_start(tmp_path, "events") as consumer:
        ((at, (record,)),) = consumer.poll(1000).items()
    assert at == EVENTS
    assert record == ("events", 0, 0, 0, 77, 0, b"key", b"value", [("a", b"xy")], None, 3, 5, 3)


def test_poll_gets_each_record_once_in_order(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("events", 3)
    with from_start(tmp_path, "events", max_poll_records=7) as consumer:
        assert consumer.poll(0) == {}
        for part in range(3):
            send(tmp_path, *(b"%d" % (part * 20 + n) for n in range(20)), partition=part)
        found: dict[TopicPartition, list[int]] = {}
        while sum(map(len, found.values())) < 60:
            batch = consumer.poll(1000)
            assert sum(map(len, batch.values())) <= 7
            for at, records in batch.items():
                found.setdefault(at, []).extend(int(each.value) for each in records)
                assert consumer.position(at) == records[-1].offset + 1
        assert found == {TopicPartition("events", n): list(range(n * 20, n * 20 + 20)) for n in range(3)}
        assert consumer.poll(0) == {}


def test_poll_ends_before_it_has_more_bytes_but_gives_one_large_message(tmp_path: Path) -> None:
    send(tmp_path, b"a" * 40, b"b" * 40, b"c" * 500, b"d" * 90, b"e")
    with from_start(tmp_path, "events", fetch_max_bytes=100) as consumer:
        sizes = []
        while found := consumer.poll(0):
            sizes.append([len(record.value) for record in found[EVENTS]])
        assert sizes == [[40, 40], [500], [90, 1]]
        consumer.seek(EVENTS, 0)
        assert [record.offset for record in consumer.poll(0, max_bytes=620)[EVENTS]] == [0, 1, 2]
        for wrong in (0, True, 1.5):
            with pytest.raises(InvalidOptionError, match="max_bytes"):
                consumer.poll(0, max_bytes=wrong)  # type: ignore[arg-type]


def test_group_goes_on_where_it_has_committed(tmp_path: Path) -> None:
    send(tmp_path, b"a", b"b", b"c")
    with from_start(tmp_path, "events", group_id="g", enable_auto_commit=False) as consumer:
        assert consumer.committed(EVENTS) is None
        assert polled(consumer, 2, max_records=2) == [b"a", b"b"]
        consumer.commit()
        consumer.poll(1000)
        assert consumer.committed(EVENTS) == 2
        consumer.commit({EVENTS: OffsetAndMetadata(1, "note")})
        assert consumer.committed(EVENTS, metadata=True) == (1, "note", -1)
        seen: list[Any] = []
        consumer.commit_async({EVENTS: 2}, lambda *found: seen.append(found))
        assert seen == [({EVENTS: 2}, None)]
    with from_start(tmp_path, "events", group_id="g") as consumer:
        assert polled(consumer, 1) == [b"c"]
    with from_start(tmp_path, "events", group_id="other") as consumer:
        assert polled(consumer, 3) == [b"a", b"b", b"c"]


def test_committed_offsets_of_many_partitions_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = [TopicPartition("events", number) for number in range(20)]
    LogManager(tmp_path).create_topic("events", 20)
    for at in partitions:
        send(tmp_path, b"old", b"new %d" % at.partition, partition=at.partition)
    with Consumer(tmp_path, "events", group_id="g") as consumer:
        consumer.commit(dict.fromkeys(partitions[5:], 1))
    reads = 0

    def counted(directory: LogDirectory, group: str | None, *, with_decided: bool = False) -> GroupOffsets:
        nonlocal reads
        reads += 1
        return read_group_offsets(directory, group, with_decided=with_decided)

    monkeypatch.setattr("sparklog.topic.internal.group_tables.read_group_offsets", counted)
    with from_start(tmp_path, "events", group_id="g", enable_auto_commit=False) as consumer:
        wanted = [b"old"] * 5 + [b"new %d" % number for number in range(20)]
        assert sorted(polled(consumer, 25)) == sorted(wanted)
        assert reads == 1
        consumer.seek_to_beginning()
        assert sorted(polled(consumer, 40)) == sorted([*wanted, *[b"old"] * 15])


def test_positions_are_committed_at_the_end_and_now_and_then(tmp_path: Path) -> None:
    send(tmp_path, b"a", b"b")
    with from_start(tmp_path, "events", group_id="g", auto_commit_interval_ms=0) as consumer:
        polled(consumer, 2)
        consumer.poll(0)
        assert consumer.committed(EVENTS) == 2
        consumer.seek(EVENTS, 1)
    with from_start(tmp_path, "events", group_id="g") as consumer:
        assert consumer.position(EVENTS) == 1
        polled(consumer, 1)
        consumer.close(autocommit=False)
    with from_start(tmp_path, "events", group_id="g") as consumer:
        assert consumer.position(EVENTS) == 1


def test_partitions_of_which_nothing_was_fetched_yet_are_committed(tmp_path: Path) -> None:
    partitions = [TopicPartition("events", number) for number in range(4)]
    LogManager(tmp_path).create_topic("events", 4)
    for at in partitions:
        send(tmp_path, b"old", partition=at.partition)
    with Consumer(tmp_path, "events", group_id="g", enable_auto_commit=False) as consumer:
        consumer.commit(dict.fromkeys(partitions[1:2], 0))
        consumer.pause(partitions[3])
        # The poll is over with this record, and the other partitions begin at their ends nevertheless.
        assert polled(consumer, 1, max_records=1) == [b"old"]
        for at in partitions:
            send(tmp_path, b"new %d" % at.partition, partition=at.partition)
        consumer.commit()
        assert [consumer.committed(at) for at in partitions] == [1, 1, 1, 1]
    with Consumer(tmp_path, "events", group_id="g") as consumer:
        assert sorted(polled(consumer, 4)) == [b"new 0", b"new 1", b"new 2", b"new 3"]


def test_positions_are_committed_also_behind_a_commit_of_other_offsets(tmp_path: Path) -> None:
    send(tmp_path, b"a", b"b")
    with from_start(tmp_path, "events", group_id="g", auto_commit_interval_ms=0) as consumer:
        polled(consumer, 2)
        consumer.poll(0)
        consumer.commit({EVENTS: 1})
    with from_start(tmp_path, "events", group_id="g") as consumer:
        assert consumer.committed(EVENTS) == 2


def test_nothing_is_committed_when_an_error_leaves_the_block(tmp_path: Path) -> None:
    send(tmp_path, b"a")
    consumer = from_start(tmp_path, "events", group_id="g")
    polled(consumer, 1)
    with pytest.raises(ZeroDivisionError), consumer:
        raise ZeroDivisionError
    with from_start(tmp_path, "events", group_id="g") as consumer:
        assert consumer.committed(EVENTS) is None


def test_group_goes_on_where_the_cluster_left_it(tmp_path: Path) -> None:
    send(tmp_path, b"a", b"b", b"c")
    key = {"group": "g", "topic": "events", "partition": 0}
    write_log(tmp_path / "__consumer_offsets-0", [put("OffsetCommit", key, {"offset": 2}, 4)])
    with from_start(tmp_path, "events", group_id="g") as consumer:
        assert consumer.committed(EVENTS) == 2
        assert polled(consumer, 1) == [b"c"]


def test_later_commit_of_a_broker_counts_also_while_the_consumer_lives(tmp_path: Path) -> None:
    send(tmp_path, b"a", b"b", b"c", b"d")
    now_ms, key = wall_clock_ms(), {"group": "g", "topic": "events", "partition": 0}

    def commit_in_cluster(offset: int, time_ms: int) -> None:
        value = {"offset": offset, "metadata": "theirs", "commitTimestamp": time_ms}
        write_log(tmp_path / "__consumer_offsets-0", [put("OffsetCommit", key, value, 4)])

    with from_start(tmp_path, "events", group_id="g", enable_auto_commit=False) as consumer:
        consumer.commit({EVENTS: 1})
        assert consumer.committed(EVENTS) == 1
        commit_in_cluster(3, now_ms + 3_600_000)
        assert consumer.committed(EVENTS, metadata=True) == (3, "theirs", -1)
        consumer.commit({EVENTS: 4})
        assert consumer.committed(EVENTS) == 4
        commit_in_cluster(2, now_ms - 3_600_000)
        assert consumer.committed(EVENTS) == 4
        commit_in_cluster(2, now_ms + 7_200_000)
    with from_start(tmp_path, "events", group_id="g") as consumer:
        assert polled(consumer, 2) == [b"c", b"d"]


def test_group_that_is_in_two_places_is_refused_and_not_begun_anew(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("one", "two")]
    send(paths[0], b"a")
    for path in paths:
        key = {"group": "g", "topic": "events", "partition": 0}
        write_log(path / "__consumer_offsets-0", [put("OffsetCommit", key, {"offset": 1}, 4)])
    with pytest.raises(InvalidOptionError, match="in two"), Consumer(paths, "events", group_id="g") as consumer:
        consumer.poll(0)


def test_commit_of_nothing_is_none(tmp_path: Path) -> None:
    send(tmp_path, b"a")
    with from_start(tmp_path, "events", group_id="g") as consumer:
        consumer.commit({})
        consumer.commit()
        assert consumer.committed(EVENTS) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {("events", None): 1},
        {("events", 1.5): 1},
        {("events", True): 1},
        {("events", "a/b"): 1},
        {("../events", 0): 1},
        {EVENTS: 1 << 70},
        {EVENTS: None},
        {EVENTS: OffsetAndMetadata(1, 7)},  # type: ignore[arg-type]
    ],
)
def test_wrong_commit_is_refused_and_hides_no_other(tmp_path: Path, wrong: Any) -> None:
    send(tmp_path, b"a")
    with from_start(tmp_path, "events", group_id="g", enable_auto_commit=False) as consumer:
        consumer.commit({EVENTS: OffsetAndMetadata(1, None)})  # type: ignore[arg-type]
        before = (tmp_path / "seglog.offsets").read_bytes()
        with pytest.raises(InvalidOptionError):
            consumer.commit(wrong)
        assert (tmp_path / "seglog.offsets").read_bytes() == before
        assert consumer.committed(EVENTS, metadata=True) == (1, "", -1)


NO_OFFSETS = [
    b'{"version": 1, "groups": {"g": {"events": {"0": [%s, "", 1]}}}}' % offset
    for offset in (b"1e30", b"1e400", b"1" + b"0" * 30, b"1.5", b"true", b"-5", b"NaN", b'"5"')
]


def test_offsets_that_cannot_be_read_are_not_replaced(tmp_path: Path) -> None:
    send(tmp_path, b"a")
    file = tmp_path / "seglog.offsets"
    for damaged in (
        b"{",
        b'{"version": 2}',
        b'{"version": 1, "groups": {"g": {"t": {"0": []}}}}',
        b'{"version": 1}',
        *NO_OFFSETS,
    ):
        file.write_bytes(damaged)
        with from_start(tmp_path, "events", group_id="g", enable_auto_commit=False) as consumer:
            with pytest.raises(CorruptCheckpointError, match=r"seglog\.offsets"):
                consumer.commit({EVENTS: 1})
            with pytest.raises(CorruptCheckpointError, match=r"seglog\.offsets"):
                consumer.poll(0)
        assert file.read_bytes() == damaged


def test_reset_says_where_a_group_begins(tmp_path: Path) -> None:
    send(tmp_path, b"a", b"b")
    with Consumer(tmp_path, "events") as consumer:
        assert consumer.position(EVENTS) == 2
        send(tmp_path, b"c")
        assert polled(consumer, 1) == [b"c"]
    with Consumer(tmp_path, "events", auto_offset_reset="none") as consumer:
        with pytest.raises(NoOffsetForPartitionError, match="seek"):
            consumer.poll(0)
        consumer.seek(EVENTS, 1)
        assert polled(consumer, 2) == [b"b", b"c"]


def test_position_that_the_log_has_not_is_reset_or_refused(tmp_path: Path) -> None:
    send(tmp_path, b"a", b"b", b"c")
    (tmp_path / "log-start-offset-checkpoint").write_bytes(encode_offset_checkpoint({EVENTS: 1}))
    for wrong in (0, 9):
        with from_start(tmp_path, "events") as consumer:
            consumer.seek(EVENTS, wrong)
            assert polled(consumer, 2) == [b"b", b"c"]
        with Consumer(tmp_path, "events", auto_offset_reset="none") as consumer:
            consumer.seek(EVENTS, wrong)
            with pytest.raises(OffsetOutOfRangeError, match=r"which has \[1, 3\)"):
                consumer.poll(0)


def test_seeks_and_offsets(tmp_path: Path) -> None:
    for n in range(4):
        send(tmp_path, b"%d" % n, timestamp_ms=1000 * n)
    with from_start(tmp_path, "events") as consumer:
        assert consumer.highwater(EVENTS) is None
        consumer.seek_to_end()
        assert consumer.position(EVENTS) == consumer.highwater(EVENTS) == 4
        consumer.seek_to_beginning(EVENTS)
        assert consumer.position(EVENTS) == 0
        polled(consumer, 3, max_records=1)
        consumer.seek(EVENTS, 2)
        assert polled(consumer, 2) == [b"2", b"3"]
        assert consumer.beginning_offsets([EVENTS]) == {EVENTS: 0}
        assert consumer.end_offsets([("events", 0)]) == {EVENTS: 4}
        assert consumer.offsets_for_times({EVENTS: 1500}) == {EVENTS: (2, 2000, 0)}
        assert consumer.offsets_for_times({EVENTS: 3001}) == {EVENTS: None}
        for wrong in (-1, "1", True):
            with pytest.raises(InvalidOptionError, match="an offset is a whole number"):
                consumer.seek(EVENTS, wrong)  # type: ignore[arg-type]
        for none in (-1, None, "x", 1.5):
            with pytest.raises(InvalidOptionError, match="ms since 1970"):
                consumer.offsets_for_times({EVENTS: none})  # type: ignore[dict-item]


def test_record_of_a_year_that_python_has_no_date_of_is_found_by_its_time(tmp_path: Path) -> None:
    times = [1000, 253_402_300_800_000, (1 << 63) - 1]
    write_partition(tmp_path / "events-0", [v2_batch([Record(at, time) for at, time in enumerate(times)])])
    with from_start(tmp_path, "events") as consumer:
        for asked, found in ((1001, 1), (times[1], 1), (times[1] + 1, 2), (times[2], 2)):
            assert consumer.offsets_for_times({EVENTS: asked}) == {EVENTS: (found, times[found], 0)}
        assert consumer.offsets_for_times({EVENTS: 1 << 70}) == {EVENTS: None}


def test_paused_partition_keeps_its_position(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("events", 2)
    send(tmp_path, b"0", partition=0)
    send(tmp_path, b"1", partition=1)
    with from_start(tmp_path, "events") as consumer:
        consumer.pause(EVENTS)
        assert consumer.paused() == {EVENTS}
        assert polled(consumer, 1) == [b"1"]
        assert consumer.poll(20) == {}
        consumer.resume(EVENTS)
        assert polled(consumer, 1) == [b"0"]


def test_subscription_finds_topics_that_come_later(tmp_path: Path) -> None:
    class Listener:
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            self.seen.append(("revoked", sorted(revoked)))

        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            self.seen.append(("assigned", sorted(assigned)))

    listener = Listener()
    with from_start(tmp_path) as consumer:
        consumer.subscribe(pattern="ev.*", listener=listener)
        assert consumer.assignment() == set()
        send(tmp_path, b"a")
        send(tmp_path, b"other", topic="other")
        assert polled(consumer, 1) == [b"a"]
        send(tmp_path, b"b", topic="evening")
        assert polled(consumer, 1) == [b"b"]
        assert consumer.subscription() == {"events", "evening"}
        assert consumer.topics() == {"events", "evening", "other"}
        assert consumer.partitions_for_topic("events") == {0}
        assert consumer.partitions_for_topic("nothing") is None
        LogManager(tmp_path).delete_topic("evening")
        assert polled(consumer, 0) == []
        consumer.unsubscribe()
        assert consumer.subscription() is None
        consumer.assign([("other", 0)])
        assert polled(consumer, 1) == [b"other"]
    both = sorted([EVENTS, TopicPartition("evening", 0)])
    assert listener.seen == [
        *[("revoked", []), ("assigned", [])],
        *[("revoked", []), ("assigned", [EVENTS])],
        *[("revoked", [EVENTS]), ("assigned", both)],
    ]


def make_anew(path: Path, *values: bytes, keeps_id: bool = False) -> None:
    """Delete the topic and make it again: with another id of its log, or like one of before that had none."""
    manager = LogManager(path)
    manager.delete_topic("events")
    manager.create_topic("events")
    if keeps_id:
        (path / "events-0" / files.LOG_IDENTITY).unlink()
    send(path, *values)


@pytest.mark.parametrize("is_subscribed", [True, False])
@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("keeps_id", [False, True])
def test_topic_that_is_made_anew_is_read_from_its_beginning(
    tmp_path: Path, is_subscribed: bool, reset: str, keeps_id: bool, caplog: pytest.LogCaptureFixture
) -> None:
    send(tmp_path, b"old 1", b"old 2", timestamp_ms=77)
    with Consumer(tmp_path, group_id="g", auto_offset_reset=reset) as consumer:
        if is_subscribed:
            consumer.subscribe("events")
        else:
            consumer.assign([EVENTS])
        consumer.seek(EVENTS, 0)
        assert polled(consumer, 2) == [b"old 1", b"old 2"]
        consumer.commit()
        if keeps_id:
            (tmp_path / "events-0" / files.LOG_IDENTITY).unlink()
            consumer.seek(EVENTS, 2)
        consumer.poll(20)
        make_anew(tmp_path, b"1", b"2", b"3", keeps_id=keeps_id)
        assert polled(consumer, 3) == [b"1", b"2", b"3"]
        assert "events-0 is another log than before" in caplog.text
        send(tmp_path, b"4")
        assert polled(consumer, 1) == [b"4"]
        assert consumer.position(EVENTS) == 4


def test_topic_that_is_gone_for_a_while_is_read_from_its_beginning_and_old_offsets_do_not_come_back(
    tmp_path: Path,
) -> None:
    send(tmp_path, b"old 1", b"old 2")
    send(tmp_path, b"other", topic="other")
    with from_start(tmp_path, "events", "other", group_id="g") as consumer:
        polled(consumer, 3)
        consumer.commit()
        LogManager(tmp_path).delete_topic("events")
        assert consumer.committed(EVENTS) is None
        deadline = time.monotonic() + SECONDS
        while EVENTS in consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(100)
        assert consumer.committed(EVENTS) is None
        assert consumer.committed(TopicPartition("other", 0)) == 1
        send(tmp_path, b"1", b"2", b"3")
        assert polled(consumer, 3) == [b"1", b"2", b"3"]


def test_topic_that_is_made_anew_is_refused_where_nothing_says_where_to_begin(tmp_path: Path) -> None:
    send(tmp_path, b"old")
    with Consumer(tmp_path, auto_offset_reset="none") as consumer:
        consumer.assign([EVENTS])
        consumer.seek(EVENTS, 0)
        assert polled(consumer, 1) == [b"old"]
        consumer.poll(0)
        make_anew(tmp_path, b"1", b"2")
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError, match="made anew or cut"):
                consumer.poll(2000)
        consumer.seek(EVENTS, 1)
        assert polled(consumer, 1) == [b"2"]


def test_log_that_is_cut_and_written_on_is_read_from_its_beginning(tmp_path: Path) -> None:
    for value in (b"a", b"b", b"c"):
        send(tmp_path, value)
    with from_start(tmp_path, "events") as consumer:
        assert polled(consumer, 3) == [b"a", b"b", b"c"]
        consumer.poll(0)
        sparklog.truncate_to(tmp_path / "events-0", 1)
        for value in (b"d", b"e", b"f"):
            send(tmp_path, value)
        assert polled(consumer, 4) == [b"a", b"d", b"e", b"f"]


def test_calls_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    send(tmp_path, b"a")
    with from_start(tmp_path, "events") as consumer:
        with pytest.raises(IllegalStateError, match="subscribed to"):
            consumer.assign([EVENTS])
        with pytest.raises(IllegalStateError, match="group_id"):
            consumer.commit()
        for call in (consumer.position, consumer.pause, consumer.highwater, consumer.seek_to_end):
            with pytest.raises(IllegalStateError, match="events-1 is not assigned"):
                call(TopicPartition("events", 1))
        for wrong in ({"timeout_ms": -1}, {"max_records": 0}, {"max_records": 1.5}):
            with pytest.raises(ValueError, match="must be"):
                consumer.poll(**wrong)
        with pytest.raises(InvalidOptionError, match="TopicPartition"):
            consumer.position("events")  # type: ignore[arg-type]
        consumer.unsubscribe()
        with pytest.raises(UnknownTopicOrPartitionError, match="no partition 5"):
            consumer.assign([("events", 5)])
        for topics in ((), ("a", "b")):
            with pytest.raises(InvalidOptionError, match="one of them"):
                consumer.subscribe(topics, pattern=None if not topics else "x")
        consumer.assign([EVENTS])
        with pytest.raises(IllegalStateError, match="assigned"):
            consumer.subscribe("events")
    with pytest.raises(IllegalStateError, match="closed"):
        consumer.poll(0)
    assert list(consumer) == []
    consumer.close()


@pytest.mark.parametrize(
    "config",
    [
        {"auto_offset_reset": "newest"},
        {"isolation_level": "x"},
        {"group_id": ""},
        {"max_poll_records": 0},
        {"fetch_max_bytes": 0},
        {"groupid": 1},
    ],
)
def test_wrong_configuration_is_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    with pytest.raises(KafkaConfigurationError):
        Consumer(tmp_path, **config)


def test_deserializer_that_fails_leaves_the_position_at_its_record(tmp_path: Path) -> None:
    send(tmp_path, b"1", b"x", b"3", key=b"k")
    with from_start(tmp_path, "events", value_deserializer=int, key_deserializer=bytes.decode) as consumer:
        ((record,),) = consumer.poll(1000).values()
        assert (record.key, record.value, record.serialized_value_size) == ("k", 1, 1)
        for _ in range(2):
            with pytest.raises(ValueError, match="invalid literal"):
                consumer.poll(0)
        assert consumer.position(EVENTS) == 1
        consumer.seek(EVENTS, 2)
        assert polled(consumer, 1) == [3]


def test_iteration_ends_when_nothing_comes(tmp_path: Path) -> None:
    send(tmp_path, *(b"%d" % n for n in range(5)))
    with from_start(tmp_path, "events", consumer_timeout_ms=50) as consumer:
        for record in consumer:
            assert consumer.position(EVENTS) == record.offset + 1
        assert record.value == b"4"
        send(tmp_path, b"5")
        assert [each.value for each in consumer] == [b"5"]


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_transactions_and_markers_of_a_broker(isolation_level: Any) -> None:
    logs = golden_set("v2-transactions").log_dir
    topics = sparklog.open_topic(logs)
    with from_start(logs, *topics.topics, isolation_level=isolation_level, max_poll_records=3) as consumer:
        wanted = topics.read(columns=["topic", "partition", "offset"], isolation_level=isolation_level).to_pylist()
        found: list[Any] = []
        while batch := consumer.poll(0):
            found += [record for records in batch.values() for record in records]
        assert sorted((each.topic, each.partition, each.offset) for each in found) == sorted(
            tuple(row.values()) for row in wanted
        )
        for at, end in consumer.end_offsets(consumer.assignment()).items():
            assert consumer.position(at) == end


def test_consumer_goes_on_through_rolls_and_removed_segments(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=500, batch_size=100, compression_type="uncompressed")
    with LogWriter.open(tmp_path / "events-0", config) as log, from_start(tmp_path, "events") as consumer:
        found: list[int] = []
        for n in range(0, 200, 5):
            log.append({"value": [b"%d" % (n + k) for k in range(5)]})
            if n % 20 == 0:
                found += map(int, polled(consumer, n + 5 - len(found)))
                old = sorted((tmp_path / "events-0").glob("*.log"))[:-2]
                for path in old:
                    for each in path.parent.glob(f"{path.stem}.*"):
                        each.unlink()
        found += map(int, polled(consumer, 200 - len(found)))
    assert found == list(range(200))


def test_consumer_in_another_process_gets_all_while_records_are_sent(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("events", 2, {"segment.bytes": "20000"})
    run = [sys.executable, "-c", _CONSUME, str(tmp_path), "3000"]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as process, Producer(tmp_path, acks=1) as producer:
        for n in range(3000):
            producer.send("events", b"%d" % n, key=b"%d" % (n % 7))
            if n % 500 == 0:
                producer.flush()
        producer.flush()
        out, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    values = [int(line) for line in out.split()]
    assert sorted(values) == list(range(3000))
    for key in range(7):
        assert [v for v in values if v % 7 == key] == list(range(key, 3000, 7))


_CONSUME = """
import sys, sparklog
found = []
with sparklog.Consumer(sys.argv[1], "events", auto_offset_reset="earliest", consumer_timeout_ms=30000) as consumer:
    for record in consumer:
        found.append(record.value.decode())
        if len(found) == int(sys.argv[2]):
            break
print(" ".join(found))
"""


def test_forked_process_is_refused(tmp_path: Path) -> None:
    send(tmp_path, b"a", b"b")
    with from_start(tmp_path, "events", group_id="g") as consumer:
        polled(consumer, 1, max_records=1)
        child = os.fork()
        if not child:
            status = 1
            try:
                consumer.poll(0)
            except IllegalStateError:
                consumer.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert consumer.committed(EVENTS) is None
        assert polled(consumer, 1) == [b"b"]


def test_nothing_but_the_offsets_is_written(tmp_path: Path) -> None:
    send(tmp_path, b"a")
    before = {path.name for path in directory_files(tmp_path)}
    with from_start(tmp_path, "events", group_id="g") as consumer:
        polled(consumer, 1)
    assert {path.name for path in directory_files(tmp_path)} - before == {"seglog.offsets", "seglog.offsets.lock"}
    assert directory_at(tmp_path).storage.read_small(str(tmp_path / "seglog.offsets"))


def directory_files(path: Path) -> list[Path]:
    return [each for each in path.rglob("*") if each.is_file()]
