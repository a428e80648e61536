"""A broker serves what a copy has restored: every record of it, in both isolation levels, and goes on behind it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition
from sparklog.log.layout import read_layout
from sparklog.log.reader import IsolationLevel
from tests.jobs.copies import copy, records, refuse_wrong_state, source
from tests.kafka.broker import Broker, Producer, Record
from tests.kafka.content import segment_bytes
from tests.kafka.dump import dump_log
from tests.places import folder_at
from tests.topic.staged import findings

pytestmark = pytest.mark.kafka

TOPIC = "copied"
FIELDS = ("timestamp", "timestampType", "key", "value", "headers")
CONFIG = LogConfig(segment_bytes=1500)
DELETED, BEHIND_DELETED = 7, 8
LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[IsolationLevel, list[Any]]]]:
    """Make a log directory of a broker with transactions of all kinds, and what its consumers read there."""
    with Broker.start(tmp_path_factory.mktemp("original")) as broker:
        broker.create_topic(TOPIC, config=segment_bytes(broker, 4096))
        write_everything(broker)
        broker.delete_records(TOPIC, 0, DELETED)
        told = {level: broker.consume(TOPIC, isolation=level) for level in LEVELS}
        broker.stop()
        yield broker.log_dir, told


def write_everything(broker: Broker) -> None:
    plain, idempotent = broker.producer(enable_idempotence=False), broker.producer()
    around, within = (broker.producer(transactional_id=name) for name in ("around", "within"))
    for turn in range(8):
        send(plain, 3, turn)
        send(idempotent, 3, turn)
        around.begin()
        send(around, 2, turn)
        within.begin()
        send(within, 2, turn)
        send(around, 1, turn)
        within.abort()
        if turn % 2:
            around.abort()
        else:
            around.commit()
    left_open = broker.producer(transactional_id="left-open", transaction_timeout_ms=900_000)
    send(idempotent, 2, 8)
    left_open.begin()
    send(left_open, 2, 8)
    send(idempotent, 1, 9)


def send(producer: Producer, count: int, turn: int) -> None:
    producer.send([Record(TOPIC, b"k%d" % n, b"%s %d %d" % (producer.name.encode(), turn, n)) for n in range(count)])


@pytest.mark.parametrize("is_trusted", [True, False], ids=["trusted", "recovered"])
@pytest.mark.parametrize(("keeps_offsets", "codec"), [(True, None), (False, None), (True, "zstd")])
def test_broker_serves_what_a_copy_restored(
    tmp_path: Path,
    original: tuple[Path, dict[IsolationLevel, list[Any]]],
    keeps_offsets: bool,
    codec: str | None,
    is_trusted: bool,
) -> None:
    log_dir, told = original
    with Broker.start(tmp_path / "broker") as broker:
        broker.create_topic(TOPIC, config=segment_bytes(broker, 4096))
        if not keeps_offsets:
            broker.produce([Record(TOPIC, b"k", b"before")] * 5)
        broker.stop()
        # The first batch has deleted records, which only an empty log can hide.
        start = None if keeps_offsets else {TopicPartition(TOPIC, 0): BEHIND_DELETED}
        copied = source(log_dir, topics=(TOPIC,), start_offsets=start)
        copy(broker.log_dir, copied, keeps_offsets=keeps_offsets, codec=codec, config=CONFIG)
        folder = broker.log_dir / f"{TOPIC}-0"
        layout = read_layout(folder_at(folder))
        assert len(layout.segments) > 3
        assert findings(broker.log_dir) == []
        refuse_wrong_state(folder)
        dumped = dump_log(sorted(folder.glob("*.log")), root=broker.log_dir)
        assert "isvalid: false" not in dumped
        indexes = sorted(folder.glob("*.*index"))
        assert "mismatch" not in dump_log(indexes, root=broker.log_dir, deep=False, verify_index_only=True).lower()
        if not is_trusted:
            (broker.log_dir / ".kafka_cleanshutdown").unlink()
        before, logged = files_of(folder), len(broker.log_text())
        broker.restart()
        complaints = [line for line in broker.log_text()[logged:].splitlines() if " WARN " in line or " ERROR " in line]
        # It says so of its own logs as well, where one begins in the midst of a batch.
        complaints = [line for line in complaints if "Non-monotonic update of high watermark" not in line]
        assert [line for line in complaints if TOPIC in line] == []
        check_served(broker, layout.end_offset, told, keeps_offsets=keeps_offsets)
        broker.stop()
        # What it has loaded, and made again from the batches where it trusts nothing, is what the copy has left.
        after = files_of(folder)
        assert {name: after[name] for name in before if name in after} == {
            name: content for name, content in before.items() if name in after
        }
        # It needs none of the log start offset.
        assert set(before) - set(after) <= {f"{layout.segments[0].base_offset:020d}.snapshot"}


def check_served(
    broker: Broker, end_offset: int, told: dict[IsolationLevel, list[Any]], *, keeps_offsets: bool
) -> None:
    (offsets,) = broker.offsets(TOPIC)
    own = 0 if keeps_offsets else 5
    for level in LEVELS:
        found = broker.consume(TOPIC, isolation=level)[own:]
        wanted = [row for row in told[level] if keeps_offsets or row["offset"] >= BEHIND_DELETED]
        assert [fields(row, keeps_offsets) for row in found] == [fields(row, keeps_offsets) for row in wanted], level
    assert offsets["end"] == end_offset
    assert offsets["last_stable"] == end_offset - 3
    assert offsets["beginning"] == (DELETED if keeps_offsets else 0)


def fields(row: Any, has_offset: bool) -> list[Any]:
    return [row[name] for name in (("offset", *FIELDS) if has_offset else FIELDS)]


def test_new_producers_of_another_cluster_lose_nothing_behind_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both clusters give out producer ids from 0 on, and both kinds of producers number their records from 0 on."""
    with Broker.start(tmp_path / "theirs") as broker:
        broker.create_topic(TOPIC)
        theirs = send_of_both_kinds(broker, "theirs")
        broker.stop()
    monkeypatch.setattr("tests.kafka.broker.CLUSTER_ID", "c2VjbG9nIG90aGVyIGlkQQ")
    with Broker.start(tmp_path / "ours") as ours:
        ours.create_topic(TOPIC)
        ours.stop()
        copy(ours.log_dir, source(broker.log_dir, "read_committed", topics=(TOPIC,)))
        ours.restart()
        own = send_of_both_kinds(ours, "ours")
        for level in LEVELS:
            found = [row["value"] for row in ours.consume(TOPIC, isolation=level)]
            assert found == theirs[level] + own[level], level
        ours.stop()
        refuse_wrong_state(ours.log_dir / f"{TOPIC}-0")
        assert findings(ours.log_dir) == []


def test_a_topic_that_is_restored_is_the_same_to_its_cluster(tmp_path: Path) -> None:
    """It has its topic's id, without which the broker would set it aside, and its producers."""
    with Broker.start(tmp_path / "broker") as broker:
        broker.create_topic(TOPIC)
        told = send_of_both_kinds(broker, "own")
        broker.stop()
        lost, kept = broker.log_dir / f"{TOPIC}-0", tmp_path / "kept" / f"{TOPIC}-0"
        kept.parent.mkdir()
        shutil.copy(broker.log_dir / "meta.properties", kept.parent)
        shutil.move(lost, kept)
        copy(broker.log_dir, source(kept.parent, "read_committed", topics=(TOPIC,)), keeps_offsets=True)
        columns = ["offset", "value", "producer_id", "producer_epoch", "sequence"]
        assert records(lost, columns=columns) == records(kept, columns=columns)
        broker.restart()
        for level in LEVELS:
            assert [row["value"] for row in broker.consume(TOPIC, isolation=level)] == told[level], level
        own = send_of_both_kinds(broker, "later")
        found = [row["value"] for row in broker.consume(TOPIC, isolation="read_committed")]
        assert found == told["read_committed"] + own["read_committed"]
        broker.stop()
        assert not list(broker.log_dir.glob("*-stray"))
        assert findings(broker.log_dir) == []


def send_of_both_kinds(broker: Broker, name: str) -> dict[IsolationLevel, list[str]]:
    """Write with new producers, and return what readers are to be given of that, as the tool writes it."""
    for turn in range(2):
        send(broker.producer(), 5, turn)
        transactional = broker.producer(transactional_id=f"{name}-{turn}")
        for ends in (transactional.abort, transactional.commit):
            transactional.begin()
            send(transactional, 5, turn)
            ends()
    found = {level: [row["value"] for row in broker.consume(TOPIC, isolation=level)] for level in LEVELS}
    return {level: values[-(30 if level == "read_uncommitted" else 20) :] for level, values in found.items()}


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the sealed files of a log, and all snapshots; those of the active segment get room by a broker."""
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in suffixes}
