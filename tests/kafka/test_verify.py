"""``verify`` finds nothing wrong with what real brokers write, while they write it and however they end."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from sparklog.inspect.verify_segment import Severity
from tests.jobs.verifying import findings_in
from tests.kafka.broker import Broker, Producer
from tests.kafka.content import CLEAN_TIMEOUT_S, groups, plain, records, segment_bytes
from tests.kafka.jars import NEWEST, OLD, HarnessError
from tests.kafka.sets_old import FORMATS
from tests.topic.test_recover import write_long

pytestmark = pytest.mark.kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
OLD_CODECS = CODECS[:4]
EAGER = {
    "log.retention.check.interval.ms": 100,
    "log.initial.task.delay.ms": 100,
    "log.cleaner.backoff.ms": 50,
}
LAZY = {"log.initial.task.delay.ms": 900_000, "log.retention.check.interval.ms": 900_000}
LIVE_ROUNDS = 8

Problem = tuple[str, str, str, str]


def problems(log_dir: Path) -> list[Problem]:
    """Return what `verify` finds in a log directory, notes left out."""
    return [
        (event.severity.value, event.code, str(Path(event.path).relative_to(log_dir)), event.message)
        for event in findings_in(log_dir)
        if event.severity is not Severity.NOTE
    ]


class Watch:
    """Verifies a log directory over and over, in a thread, while a broker writes to it."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: BaseException | None = None
        self.rounds = 0
        self.found: list[Problem] = []

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._is_over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self.found += problems(self._log_dir)
                self.rounds += 1
        except BaseException as error:
            self._failure = error


@contextlib.contextmanager
def writing(broker: Broker, *topics: str, **config: object) -> Iterator[None]:
    """Produce to topics in a thread, in many small batches, until the tool is killed at the end of ``with``."""
    is_over = threading.Event()
    failures: list[HarnessError] = []

    def write() -> None:
        try:
            for seed in range(10_000):
                made = [record for topic in topics for record in plain(records(topic, 100, seed=seed, keys=12))]
                broker.produce(*groups(made, 7), **config)
        except HarnessError as error:
            if not is_over.is_set():
                failures.append(error)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        broker.tool.kill()
        thread.join(60)
    assert not thread.is_alive()
    assert failures == []


def small(broker: Broker, size: int = 4096, **config: object) -> Mapping[str, object]:
    """Return the config of a topic whose segments and index intervals are small."""
    named = {name.replace("_", "."): value for name, value in config.items()}
    return {**segment_bytes(broker, size), "index.interval.bytes": 256, "file.delete.delay.ms": 300, **named}


def check_ends(broker: Broker) -> None:
    """Verify the directory as it is, after kill -9, once it was recovered, and after a clean stop."""
    assert problems(broker.log_dir) == []
    for step in (broker.kill, broker.restart, broker.stop):
        step()
        assert problems(broker.log_dir) == []


@pytest.mark.parametrize("version", [NEWEST, OLD])
def test_live_directory_that_rolls_cleans_and_deletes(tmp_path: Path, version: str) -> None:
    # In one directory with the metadata log, as a broker has it that does not set this.
    properties = {**EAGER, **({"metadata.log.dir": None} if version == NEWEST else {})}
    with Broker.start(tmp_path / "broker", version=version, properties=properties) as broker:
        cleaned = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.001, "delete.retention.ms": 0}
        topics = {
            "kept": small(broker),
            "trimmed": small(broker, retention_bytes=12_000),
            "expired": small(broker, retention_ms=1000),
            "compacted": {**small(broker), **cleaned},
            "compacted-and-deleted": {
                **small(broker, retention_bytes=30_000),
                **cleaned,
                "cleanup.policy": "compact,delete",
            },
            "rolled-by-index": {**small(broker, 1 << 20, segment_index_bytes=64), "index.interval.bytes": 0},
            "cut": small(broker, 1 << 14),
        }
        for topic, config in topics.items():
            broker.create_topic(topic, config=config)
        writers = [broker.producer(transactional_id=f"writer-{n}", compression_type=CODECS[n]) for n in range(3)]
        an_hour_ago_ms = time.time_ns() // 1_000_000 - 3_600_000
        with Watch(broker.log_dir) as watch:
            turn, deadline = 0, time.monotonic() + CLEAN_TIMEOUT_S
            while turn < LIVE_ROUNDS or not all(first_offset(broker, topic) for topic in ("trimmed", "expired", "cut")):
                assert time.monotonic() < deadline
                live_round(broker, topics, writers, turn, an_hour_ago_ms)
                turn += 1
        assert watch.rounds >= 2
        assert watch.found == []
        assert first_offset(broker, "kept") == 0
        check_ends(broker)


def first_offset(broker: Broker, topic: str) -> int:
    return min(int(path.stem) for path in broker.log_dir.glob(f"{topic}-0/*.log"))


def live_round(broker: Broker, topics: Iterable[str], writers: list[Producer], turn: int, start_ms: int) -> None:
    """Append to all topics, some of it in transactions; delete records; make a topic and delete another."""
    for n, topic in enumerate(topics):
        made = records(topic, 60, seed=turn, keys=12, start_ms=start_ms)
        broker.produce(*groups(made, 5), compression_type=CODECS[(turn + n) % len(CODECS)])
    for n, writer in enumerate(writers):
        writer.begin()
        for topic in ("kept", "compacted", "trimmed"):
            writer.send(*groups(records(topic, 12, seed=100 + turn, keys=12, start_ms=start_ms), 4))
        writer.abort() if (turn + n) % 2 else writer.commit()
    (end,) = broker.offsets("cut")
    broker.delete_records("cut", 0, end["end"] - 33)
    passing = f"passing-{turn}"
    broker.create_topic(passing, partitions=2, config=small(broker))
    broker.produce(*groups(records(passing, 50), 9))
    if turn:
        broker.delete_topic(f"passing-{turn - 1}")


@pytest.mark.parametrize("version", [NEWEST, OLD])
def test_directory_after_records_were_deleted(tmp_path: Path, version: str) -> None:
    """The leader epochs are cut at once, and the log start offset is written down much later."""
    with Broker.start(tmp_path / "broker", version=version, properties=LAZY) as broker:
        for topic, size in (("in-a-batch", 1 << 20), ("segments", 2048), ("all", 2048)):
            broker.create_topic(topic, config=small(broker, size))
        for epoch in range(2):
            for topic in ("in-a-batch", "segments", "all"):
                broker.produce(*groups(records(topic, 100, seed=epoch), 10), compression_type="lz4")
            if not epoch:
                broker.restart()
        for topic, offset in (("in-a-batch", 137), ("segments", 137), ("all", -1)):
            broker.delete_records(topic, 0, offset)
        check_ends(broker)


def test_append_time_of_every_magic(tmp_path: Path) -> None:
    """Messages of magic 0 carry no time, and are indexed by that of their append."""
    with Broker.start(tmp_path / "broker", version=OLD) as broker:
        topics = {}
        for magic, message_format in FORMATS.items():
            for codec in CODECS if magic == 2 else OLD_CODECS:
                config = {"message.format.version": message_format, "message.timestamp.type": "LogAppendTime"}
                broker.create_topic(f"append-{magic}-{codec}", config={**small(broker), **config})
                topics[f"append-{magic}-{codec}"] = codec
        with Watch(broker.log_dir) as watch:
            for topic, codec in topics.items():
                made = plain(records(topic, 120))
                broker.produce(*groups(made[:100], 7), *groups(made[100:], 1), compression_type=codec)
        assert watch.found == []
        assert any(path.stat().st_size for path in broker.log_dir.glob("append-0-none-0/*.timeindex"))
        check_ends(broker)


def test_formats_and_time_types_that_change(tmp_path: Path) -> None:
    """One log of magic 0, 1 and 2, with both kinds of timestamps, in segments that mix them."""
    with Broker.start(tmp_path / "broker", version=OLD) as broker:
        for codec in OLD_CODECS:
            topic = f"mixed-{codec}"
            broker.create_topic(topic, config={**small(broker, 6000), "message.format.version": FORMATS[0]})
            for magic, message_format in FORMATS.items():
                for kind in ("LogAppendTime", "CreateTime"):
                    broker.alter_topic(
                        topic, {"message.format.version": message_format, "message.timestamp.type": kind}
                    )
                    broker.produce(*groups(plain(records(topic, 40, seed=magic)), 6), compression_type=codec)
        check_ends(broker)


def test_append_time_of_the_newest_broker(tmp_path: Path) -> None:
    with Broker.start(tmp_path / "broker") as broker:
        for codec in CODECS:
            broker.create_topic(f"append-{codec}", config=small(broker, message_timestamp_type="LogAppendTime"))
            broker.produce(*groups(records(f"append-{codec}", 200), 7), compression_type=codec)
        check_ends(broker)


@pytest.mark.parametrize("version", [NEWEST, OLD])
def test_kill_in_the_midst_of_producing(tmp_path: Path, version: str) -> None:
    with Broker.start(tmp_path / "broker", version=version) as broker:
        topics = {"plain": False, "preallocated": True}
        for topic, preallocate in topics.items():
            broker.create_topic(topic, config=small(broker, 1 << 14, preallocate=preallocate))
        for seed in range(2):
            with writing(broker, *topics, compression_type=("none", "lz4")[seed]):
                wait_for_bytes(broker, "plain", 100_000 * (seed + 1))
                broker.kill()
            assert problems(broker.log_dir) == []
            broker.restart()
            assert problems(broker.log_dir) == []
        broker.stop()
        assert problems(broker.log_dir) == []


def wait_for_bytes(broker: Broker, topic: str, size_bytes: int) -> None:
    """Wait until the segments of a partition are so large in all."""
    deadline = time.monotonic() + CLEAN_TIMEOUT_S
    while sum(path.stat().st_size for path in broker.log_dir.glob(f"{topic}-0/*.log")) < size_bytes:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("version", [NEWEST, OLD])
def test_kill_while_the_log_is_cleaned(tmp_path: Path, version: str) -> None:
    with Broker.start(tmp_path / "broker", version=version, properties=EAGER) as broker:
        cleaned = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.001, "delete.retention.ms": 0}
        broker.create_topic("cleaned", config={**small(broker), **cleaned})
        for seed in range(3):
            with Watch(broker.log_dir) as watch, writing(broker, "cleaned", compression_type=CODECS[seed]):
                time.sleep(3)
                broker.kill()
            # A broker that was killed and started anew may make the time index again of a segment that it has removed,
            # and keep it until it loads the log: that it is an orphan is true.
            assert [found for found in watch.found if found[1] != "orphan"] == []
            assert problems(broker.log_dir) == []
            broker.restart()
        broker.stop()
        assert problems(broker.log_dir) == []


@pytest.mark.parametrize("version", [NEWEST, OLD])
def test_no_broker_starts_on_a_segment_that_verify_calls_too_long(tmp_path: Path, version: str) -> None:
    with Broker.start(tmp_path / "broker", version=version) as broker:
        broker.create_topic("events")
        broker.stop()
        folder = broker.log_dir / "events-0"
        shutil.rmtree(folder)
        write_long(folder, has_indexes=True)
        assert [(code, name) for _, code, name, _ in problems(broker.log_dir)] == [
            ("segment-size", f"events-0/{0:020d}.log")
        ]
        with pytest.raises(HarnessError, match="ended with status"):
            broker.restart()
        assert "is larger than the maximum allowed segment size of 2147483647" in broker.log_text()
