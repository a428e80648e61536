"""Consumers, producers and transactions in large directories, for `tests.bench.large`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final

import sparklog
from tests.bench.large_logs import RECORDS, new_logs, partitions_of, shared_logs, topics_of
from tests.bench.large_meter import USUAL_FILES, Meter, check, file_limit

_MANY: Final = 200
_POLLS: Final = 9
_DUE_SECONDS: Final = 1.2
"""After this time a poll looks for new partitions."""
_SENDS: Final = 20
_IN_TRANSACTION: Final = (50, 100)
_COMMITS: Final = 20
_OF_GROUP: Final = 100
_NOW_MS: Final = 1_700_000_000_000
_VALUE: Final = b"x" * 100


def subscribe(meter: Meter, place: Path, size: int) -> None:
    """Subscribe to all topics, and poll."""
    logs = shared_logs(place, size)
    with sparklog.Consumer(logs, auto_offset_reset="latest") as consumer:
        with meter("subscribe to all", size, "partition"):
            consumer.subscribe(topics_of(size))
        with meter("the first poll", size, "partition"):
            consumer.poll()
        for _ in range(2):
            time.sleep(_DUE_SECONDS)
            with meter("a poll, due to find partitions", size, "partition"):
                consumer.poll()
        check(len(consumer.assignment()), size)


def poll_rows(meter: Meter, place: Path, size: int) -> None:
    """Poll all topics from their beginning, 500 rows at a time."""
    with sparklog.Consumer(shared_logs(place, size), *topics_of(size), auto_offset_reset="earliest") as consumer:
        rows = sum(map(len, consumer.poll().values()))
        with meter("polls of 500 rows", _POLLS, "poll"):
            for _ in range(_POLLS):
                rows += sum(map(len, consumer.poll().values()))
    check(rows, min(RECORDS * size, 500 * (_POLLS + 1)))


def assign(meter: Meter, place: Path, size: int) -> None:
    """Assign some partitions, and ask for their ends."""
    some = partitions_of(size)[:: max(1, size // _MANY)][:_MANY]
    with sparklog.Consumer(shared_logs(place, size)) as consumer:
        with meter("the first assign, which lists the directory", size, "partition"):
            consumer.assign(some[:1])
            consumer.end_offsets(some[:1])
        with meter(f"assign of {_MANY}", len(some), "partition"):
            consumer.assign(some)
        with meter(f"end_offsets of {_MANY}", len(some), "partition"):
            ends = consumer.end_offsets(some)
        check(sum(ends.values()), RECORDS * len(some))


def produce(meter: Meter, place: Path, size: int) -> None:
    """Send records to all partitions, in turn."""
    _produce(meter, place, size, "producer")


def produce_with_few_files(meter: Meter, place: Path, size: int) -> None:
    with file_limit(USUAL_FILES):
        _produce(meter, place, size, f"producer, ulimit -n {USUAL_FILES}")


def _produce(meter: Meter, place: Path, size: int, name: str) -> None:
    with (
        new_logs(place, size) as logs,
        meter(f"{name}, {_SENDS} sends to each", size, "partition") as step,
        sparklog.Producer(logs) as producer,
    ):
        sent = [
            producer.send(topic, b"x" * 100, partition=n) for _ in range(_SENDS) for topic, n in partitions_of(size)
        ]
        producer.flush()
        failed = sum(each.failed() for each in sent)
        step.note = f"{failed:,} fail" if failed else ""


def transact(meter: Meter, place: Path, size: int) -> None:
    """Append a record to each partition in one transaction."""
    with new_logs(place, size) as logs:
        _transact(meter, logs, size, "transaction", "partition")


def transact_with_few_files(meter: Meter, place: Path, size: int) -> None:
    with file_limit(USUAL_FILES), new_logs(place, size) as logs:
        _transact(meter, logs, size, f"transaction, ulimit -n {USUAL_FILES}", "partition")


def transact_beside_properties(meter: Meter, place: Path, size: int) -> None:
    """Append to some partitions in a transaction, beside lines of properties of other topics."""
    for partitions in _IN_TRANSACTION:
        with new_logs(place, partitions) as logs:
            lines = "".join(f"other-{number:05d}/retention.ms=86400000\n" for number in range(size))
            (logs / "topics.properties").write_text(lines)
            _transact(meter, logs, partitions, f"transaction over {partitions}", "partition")


def _transact(meter: Meter, logs: Path, partitions: int, name: str, of: str) -> None:
    with sparklog.TransactionalWriter.open(logs, "bench") as writer:
        writer.begin()
        with meter(f"{name}: appends", partitions, of):
            for topic, partition in partitions_of(partitions):
                writer.append(topic, partition, {"value": [_VALUE]})
        with meter(f"{name}: commit", partitions, of):
            writer.commit()


def commit_offsets(meter: Meter, place: Path, size: int) -> None:
    """Commit and read an offset of one of many groups."""
    with new_logs(place, _OF_GROUP) as logs:
        _write_groups(logs, size)
        (at, *_) = partitions_of(_OF_GROUP)
        with sparklog.Consumer(logs, group_id="group-0", enable_auto_commit=False) as consumer:
            consumer.assign([at])
            with meter("the first commit, which reads all groups", size, "group"):
                consumer.commit({at: 0})
            with meter(f"{_COMMITS} commits of one partition", _COMMITS, "commit"):
                for offset in range(_COMMITS):
                    consumer.commit({at: offset})
            for _ in range(3):
                with meter("committed()"):
                    found = consumer.committed(at)
            check(found, _COMMITS - 1)


def _write_groups(logs: Path, groups: int) -> None:
    """Write the offsets of groups that all have committed in all partitions; see `sparklog.log.group_offsets`."""
    topics: dict[str, dict[str, list[object]]] = {}
    for topic, partition in partitions_of(_OF_GROUP):
        topics.setdefault(topic, {})[str(partition)] = [0, "", _NOW_MS]
    named = {f"group-{number}": topics for number in range(groups)}
    (logs / "seglog.offsets").write_text(json.dumps({"version": 1, "groups": named}))
