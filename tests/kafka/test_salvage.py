"""A broker starts on what a salvage has made, serves every record that was not damaged, and goes on after the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparklog.jobs.salvage.arguments import SalvageSummary, salvage
from sparklog.log.reader import IsolationLevel
from sparklog.record.batches.framing import scan_headers
from tests.kafka.broker import Broker, Record
from tests.kafka.content import segment_bytes
from tests.kafka.dump import dump_log
from tests.kafka.test_copy import send
from tests.topic.staged import findings

pytestmark = pytest.mark.kafka

MIXED, PLAIN = "mixed", "plain"
LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")


def write_everything(broker: Broker) -> None:
    """Write a topic with transactions, a topic of one producer, and a group's offsets."""
    plain, idempotent = broker.producer(enable_idempotence=False), broker.producer()
    within = broker.producer(transactional_id="within")
    for turn in range(8):
        plain.send([Record(MIXED, b"k%d" % n, b"plain %d %d" % (turn, n)) for n in range(3)])
        idempotent.send([Record(PLAIN, b"k%d" % n, b"%d %d" % (turn, n) + bytes(300)) for n in range(4)])
        within.begin()
        within.send([Record(MIXED, b"k%d" % n, b"within %d %d" % (turn, n)) for n in range(3)])
        within.abort() if turn % 2 else within.commit()
    broker.commit_group_offsets("readers", [(PLAIN, 0, 9, "nine")])


def break_batches(log: Path, chosen: list[int]) -> None:
    """Flip a bit in some batches of a segment."""
    data = bytearray(log.read_bytes())
    headers = scan_headers(memoryview(bytes(data)))
    for row in chosen:
        data[int(headers.column("position")[row]) + 65] ^= 1
    log.write_bytes(data)


def break_disk(log_dir: Path) -> None:
    mixed, plain = (sorted((log_dir / f"{topic}-0").glob("*.log")) for topic in (MIXED, PLAIN))
    assert len(plain) > 4
    without_producer = scan_headers(memoryview(mixed[0].read_bytes())).column("producer_id") < 0
    break_batches(mixed[0], without_producer.nonzero()[0][[0, 2]].tolist())
    first = bytearray(plain[0].read_bytes())
    first[:40] = b"x" * 40
    plain[0].write_bytes(first)
    plain[2].unlink()
    break_batches(plain[-2], [0])
    torn = plain[-1].read_bytes()
    plain[-1].write_bytes(torn[: len(torn) - 100])
    for index in (log_dir / f"{MIXED}-0").glob("*.*index"):
        index.write_bytes(b"\x07" * 40)


@pytest.fixture(scope="module")
def broken(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Broker, dict[tuple[str, IsolationLevel], list[Any]], SalvageSummary]]:
    """A stopped broker on the salvaged directory, what its consumers read before the damage, and the losses."""
    with Broker.start(tmp_path_factory.mktemp("broken")) as broker:
        broker.create_topic(MIXED)
        broker.create_topic(PLAIN, config=segment_bytes(broker, 2000))
        write_everything(broker)
        told = {(topic, level): broker.consume(topic, isolation=level) for topic in (MIXED, PLAIN) for level in LEVELS}
        broker.stop()
        damaged = broker.log_dir.with_name("damaged")
        broker.log_dir.rename(damaged)
        break_disk(damaged)
        before = {path: path.read_bytes() for path in damaged.rglob("*") if path.is_file()}
        done = salvage(damaged, broker.log_dir)
        assert {path: path.read_bytes() for path in damaged.rglob("*") if path.is_file()} == before
        yield broker, told, done


def test_kafka_finds_nothing_wrong_with_the_files(
    broken: tuple[Broker, dict[tuple[str, IsolationLevel], list[Any]], SalvageSummary],
) -> None:
    broker, _, _ = broken
    for topic in (MIXED, PLAIN):
        folder = broker.log_dir / f"{topic}-0"
        dumped = dump_log(sorted(folder.glob("*.log")), root=broker.log_dir)
        assert "isvalid: false" not in dumped
        assert dumped.count("isvalid: true") > 3
        assert "producerId" in dump_log(sorted(folder.glob("*.snapshot")), root=broker.log_dir, deep=False)
        indexes = sorted(folder.glob("*.*index"))
        assert "mismatch" not in dump_log(indexes, root=broker.log_dir, deep=False, verify_index_only=True).lower()
    assert findings(broker.log_dir) == []


def test_broker_serves_every_record_that_was_not_damaged_and_goes_on_after_the_lost_ones(
    broken: tuple[Broker, dict[tuple[str, IsolationLevel], list[Any]], SalvageSummary],
) -> None:
    broker, told, done = broken
    damage = done.damage.to_pylist()
    assert {row["topic"] for row in damage} == {MIXED, PLAIN}
    broker.restart()
    assert not list(broker.log_dir.glob("*-stray"))
    for (topic, level), rows in told.items():
        lost = {
            offset
            for row in damage
            if row["topic"] == topic
            for offset in range(row["first_offset"], row["end_offset"])
        }
        wanted = [row for row in rows if row["offset"] not in lost]
        assert broker.consume(topic, isolation=level) == wanted, (topic, level)
        assert len(rows) - len(wanted) == len(lost) > 2
    ends = {row["topic"]: row["end"] for row in broker.offsets(MIXED, PLAIN)}
    for log in done.logs:
        assert ends.get(log.topic, log.end_offset) == log.end_offset
    assert ends[PLAIN] == 32, "the offsets of the torn batch are not used again"
    assert [row["offset"] for row in broker.group_offsets("readers")] == [9]
    later = broker.producer(transactional_id="within")
    later.begin()
    send_offsets = later.send([Record(topic, b"k", b"later") for topic in (MIXED, PLAIN)])
    later.commit()
    assert send_offsets
    send(broker.producer(), 0, 0)
    for topic in (MIXED, PLAIN):
        assert broker.consume(topic, isolation="read_committed")[-1]["offset"] == ends[topic]
    broker.stop()
    assert findings(broker.log_dir) == []
