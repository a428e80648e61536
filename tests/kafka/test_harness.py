"""The harness itself: a real broker starts, serves, dies and comes back, and nothing of it is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.broker import Broker, HarnessError, Record
from tests.kafka.dump import dump_log
from tests.kafka.jars import NEWEST_TOOLS, OLD

pytestmark = pytest.mark.kafka

TOPIC = "shop.orders-eu"
RECORDS = [
    Record(TOPIC, b"k", b"v", timestamp=1_700_000_000_000, headers=[("trace", b"1"), ("trace", None), ("", b"")]),
    Record(TOPIC, None, b"", timestamp=1_700_000_000_001),
    Record(TOPIC, b"", None, timestamp=1_700_000_000_002, partition=1),
]

OUTLIVED = """
import os, signal, sys
from pathlib import Path
from tests.kafka.broker import Broker
with Broker.start(Path(sys.argv[1])) as broker:
    broker.create_topic("t")
    print(broker._jvm.process.pid, broker.tool._jvm.process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker.start(tmp_path_factory.mktemp("broker")) as broker:
        broker.create_topic(TOPIC, partitions=2)
        broker.produce(RECORDS, compression_type="zstd")
        yield broker


def test_what_is_produced_is_consumed(broker: Broker) -> None:
    consumed = broker.consume(TOPIC)
    assert [(r["partition"], r["offset"], r["timestamp"], r["key"], r["value"]) for r in consumed] == [
        (0, 0, 1_700_000_000_000, "aw==", "dg=="),
        (0, 1, 1_700_000_000_001, None, ""),
        (1, 0, 1_700_000_000_002, "", None),
    ]
    assert consumed[0]["headers"] == [["trace", "MQ=="], ["trace", None], ["", ""]]
    assert {r["timestampType"] for r in consumed} == {"CreateTime"}


def test_offsets_and_times_are_answered(broker: Broker) -> None:
    assert [(o["partition"], o["beginning"], o["end"], o["last_stable"]) for o in broker.offsets(TOPIC)] == [
        (0, 0, 2, 2),
        (1, 0, 1, 1),
    ]
    found = broker.offsets_for_times([(TOPIC, 0, 1_700_000_000_001), (TOPIC, 0, 1_700_000_000_002)])
    assert [o["offset"] for o in found] == [1, None]


def test_an_open_transaction_holds_the_last_stable_offset(broker: Broker) -> None:
    broker.create_topic("open")
    producer = broker.producer(transactional_id="left-open", transaction_timeout_ms=900_000)
    producer.begin()
    producer.send([Record("open", b"k", b"v")])
    (offsets,) = broker.offsets("open")
    assert (offsets["end"], offsets["last_stable"]) == (1, 0)
    assert broker.consume("open", isolation="read_committed") == []
    assert len(broker.consume("open")) == 1
    producer.close()


def test_groups_commit(broker: Broker) -> None:
    broker.group_consume("readers", TOPIC)
    broker.commit_group_offsets("bookkeepers", [(TOPIC, 1, 1, "by hand")])
    committed = {
        (o["group"], o["partition"]): (o["offset"], o["metadata"]) for o in broker.group_offsets("bookkeepers")
    }
    assert committed == {("bookkeepers", 1): (1, "by hand")}
    assert {o["partition"]: o["offset"] for o in broker.group_offsets("readers")} == {0: 2, 1: 1}


def test_records_before_an_offset_are_deleted(broker: Broker) -> None:
    broker.create_topic("deleted")
    broker.produce([Record("deleted", b"k", b"v")] * 3)
    assert broker.delete_records("deleted", 0, 2) == 2
    assert [r["offset"] for r in broker.consume("deleted")] == [2]


def test_an_error_carries_the_brokers_log(broker: Broker) -> None:
    with pytest.raises(HarnessError, match=r"(?s)TopicExistsException.*The broker's log:\n.*INFO"):
        broker.create_topic(TOPIC)


def test_a_kill_keeps_the_records_and_a_stop_is_clean(tmp_path: Path) -> None:
    with Broker.start(tmp_path / "broker") as broker:
        broker.create_topic(TOPIC, partitions=2, config={"index.interval.bytes": 0})
        broker.produce(*([record] for record in RECORDS))
        before = broker.consume(TOPIC)
        broker.kill()
        partition = broker.log_dir / f"{TOPIC}-0"
        assert not (broker.log_dir / ".kafka_cleanshutdown").exists()
        assert (partition / "00000000000000000000.index").stat().st_size == 10 << 20
        broker.restart()
        assert broker.consume(TOPIC) == before
        broker.stop()
        assert (broker.log_dir / ".kafka_cleanshutdown").exists()
        assert (partition / "00000000000000000000.index").stat().st_size == 8
        files = sorted(partition.glob("*.*index")) + sorted(partition.glob("*.log"))
        text = dump_log(files, root=broker.log_dir)
        assert f"Dumping {TOPIC}-0/00000000000000000000.log" in text
        assert "offset: 1 CreateTime: 1700000000001 keySize: -1 valueSize: 0" in text
        assert "isvalid: false" not in text
        assert "mismatch" not in dump_log(files, root=broker.log_dir, deep=False, verify_index_only=True).lower()
        assert "passed sanity check" in dump_log(files[:1], root=broker.log_dir, index_sanity_check=True)


@pytest.mark.parametrize(("message_format", "magic"), [("0.9.0", 0), ("0.10.2", 1), ("2.8", 2)])
def test_the_old_broker_writes_old_magics(tmp_path: Path, message_format: str, magic: int) -> None:
    with Broker.start(tmp_path / "broker", version=OLD) as broker:
        broker.create_topic("old", config={"message.format.version": message_format})
        broker.produce([Record("old", b"k", b"v")], compression_type="gzip")
        assert [r["value"] for r in broker.consume("old")] == ["dg=="]
        broker.stop()
        for version in (OLD, NEWEST_TOOLS):
            text = dump_log(sorted(broker.log_dir.glob("old-0/*.log")), root=broker.log_dir, version=version)
            assert f"magic: {magic} compresscodec: gzip" in text.replace("GZIP", "gzip")


def test_nothing_of_a_broker_outlives_a_killed_python(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OUTLIVED, str(tmp_path / "broker")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    deadline = time.monotonic() + 10
    while any(_runs(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].startswith(" Z")
