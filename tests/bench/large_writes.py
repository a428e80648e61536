"""Logs opened to write, new topics and first sends in large directories, for `tests.bench.large`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import sparklog
from tests.bench.large_logs import new_logs, partitions_of, topics_of
from tests.bench.large_meter import Meter

_TIMES: Final = 5
_TOPICS: Final = 20
_VALUE: Final = {"value": [b"x" * 100]}


def open_logs(meter: Meter, place: Path, size: int) -> None:
    """Open logs one after the other, append a record, and close them."""
    with new_logs(place, size) as logs:
        for topic, partition in partitions_of(size)[:_TIMES]:
            folder = logs / f"{topic}-{partition}"
            with meter("PartitionLog.open"):
                log = sparklog.PartitionLog.open(folder)
            with meter("append"):
                log.append(_VALUE)
            with meter("close"):
                log.close()
            with meter("open_log"):
                sparklog.open_log(folder).close()


def create_topics(meter: Meter, place: Path, size: int) -> None:
    """Create topics of two partitions with a property, one by one."""
    with new_logs(place, size) as logs:
        manager = sparklog.LogManager(logs)
        with meter("the first create_topic, which lists the directory", size, "partition"):
            manager.create_topic("new", 2, {"retention.ms": "86400000"})
        with meter(f"create_topic, {_TOPICS} one by one", _TOPICS, "topic"):
            for number in range(_TOPICS):
                manager.create_topic(f"new-{number}", 2, {"retention.ms": "86400000"})


def send_first(meter: Meter, place: Path, size: int) -> None:
    """Send a record to each of some topics, each of which the producer has not met."""
    some = topics_of(size)[:_TOPICS]
    with new_logs(place, size) as logs, sparklog.Producer(logs) as producer:
        with meter("the first send, which lists the directory", size, "partition"):
            producer.send("another", b"x" * 100).get()
        with meter(f"the first send to each of {_TOPICS} topics", len(some), "topic"):
            for topic in some:
                producer.send(topic, b"x" * 100).get()


def delete_topics(meter: Meter, place: Path, size: int) -> None:
    """Delete topics one by one."""
    some = topics_of(size)[:_TIMES]
    with new_logs(place, size) as logs:
        manager = sparklog.LogManager(logs)
        with meter(f"delete_topic, {_TIMES} one by one", len(some), "topic"):
            for topic in some:
                manager.delete_topic(topic)
