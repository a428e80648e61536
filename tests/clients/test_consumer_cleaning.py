"""A consumer that polls while its log is cleaned: what it gets, and that it gets it once."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Literal

import pytest

import sparklog
from sparklog.clients.consumer import Consumer
from sparklog.log.config import LogConfig
from sparklog.topic.log_manager import LogManager
from sparklog.write.partition import LogWriter

SECONDS = 120
ROUNDS = 25

# The values count up, the keys repeat; the last record of all has a key of its own.
_WRITE_AND_COMPACT = """
import sys, sparklog

path, rounds = sys.argv[1], int(sys.argv[2])
removed = 0
for n in range(rounds):
    with sparklog.PartitionLog.open(path + "/events-0", sparklog.LogConfig(segment_bytes=600)) as log:
        for k in range(10):
            number = 10 * n + k
            log.append({"key": [b"%d" % (number % 7)], "value": [b"%d" % number]})
    done = sparklog.clean(path, cleanup_policy="compact", config={"min.cleanable.dirty.ratio": "0"}, processes=1)
    removed += len(done.changed)
with sparklog.PartitionLog.open(path + "/events-0") as log:
    log.append({"key": [b"end"], "value": [b"end"]})
print(removed)
"""


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_consumer_beside_compaction_gets_each_last_value_and_nothing_twice(
    tmp_path: Path, isolation_level: Literal["read_uncommitted", "read_committed"]
) -> None:
    LogManager(tmp_path).create_topic("events", 1)
    run = [sys.executable, "-c", _WRITE_AND_COMPACT, str(tmp_path), str(ROUNDS)]
    found: list[Any] = []
    with (
        subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as process,
        Consumer(
            tmp_path,
            "events",
            auto_offset_reset="earliest",
            isolation_level=isolation_level,
            consumer_timeout_ms=SECONDS * 1000,
            max_poll_records=3,
        ) as consumer,
    ):
        for record in consumer:
            if record.value == b"end":
                break
            found.append(record)
        out, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert int(out) > 1
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets))
    assert all(record.value == b"%d" % record.offset for record in found)
    last = {record.key: record.value for record in found}
    assert last == {b"%d" % (n % 7): b"%d" % n for n in range(10 * ROUNDS - 7, 10 * ROUNDS)}


def test_consumer_beside_retention_gets_each_record_once(tmp_path: Path) -> None:
    """What is not read yet is within what retention keeps."""
    LogManager(tmp_path).create_topic("events", 1)
    found: list[Any] = []
    removed: list[Any] = []

    def write_and_clean() -> None:
        for n in range(ROUNDS):
            with LogWriter.open(tmp_path / "events-0", LogConfig(segment_bytes=600)) as log:
                for k in range(10):
                    log.append({"value": [b"%d" % (10 * n + k)]})
            deadline = time.monotonic() + SECONDS
            while len(found) < 10 * (n - 1) and time.monotonic() < deadline:
                time.sleep(0.001)
            done = sparklog.clean(
                tmp_path,
                cleanup_policy="delete",
                retention_bytes=3000,
                config={"file.delete.delay.ms": "0"},
                processes=1,
            )
            removed.extend(done.changed)

    thread = threading.Thread(target=write_and_clean)
    with Consumer(tmp_path, "events", auto_offset_reset="earliest", max_poll_records=3) as consumer:
        thread.start()
        deadline = time.monotonic() + SECONDS
        while len(found) < 10 * ROUNDS and time.monotonic() < deadline:
            found += [record for records in consumer.poll(100).values() for record in records]
        thread.join()
    assert len(removed) > ROUNDS // 2
    assert [record.offset for record in found] == list(range(10 * ROUNDS))
    assert [record.value for record in found] == [b"%d" % n for n in range(10 * ROUNDS)]
