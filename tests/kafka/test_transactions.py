"""Transactions that were written to files: what a broker would have written, and what it serves of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.log.config import LogConfig
from sparklog.log.files import SNAPSHOT, TRANSACTION_INDEX, TRANSACTIONAL_IDS
from sparklog.log.layout import read_layout
from sparklog.log.producer_state import parse_snapshot, snapshots_of
from sparklog.log.segment import Window
from sparklog.log.transactions import last_stable_offset
from sparklog.record import v2
from sparklog.topic.open_logs import OpenLogs
from sparklog.topic.transactions import TransactionalWriter
from tests.kafka.adopt import adoption
from tests.kafka.broker import Broker, Record
from tests.places import directory_at, folder_at

pytestmark = pytest.mark.kafka

TOPIC = "paid"
PARTITIONS = 3
IDS = ("around", "within", "left-open", "started-again")


class Writers:
    """Transactional ids of a broker, by the same names as those of `TransactionalWriter`."""

    def __init__(self, open_writer: Callable[[str], Any], send: Callable[[Any, int, list[str]], None]) -> None:
        self._open, self._send = open_writer, send
        self._writers: dict[str, Any] = {}

    def start(self, name: str) -> None:
        self._writers[name] = self._open(name)

    def __getitem__(self, name: str) -> Any:
        return self._writers[name]

    def send(self, name: str, partition: int, values: list[str]) -> None:
        self._send(self._writers[name], partition, values)


def write_everything(writers: Writers) -> None:
    """Interleave transactions, commit and abort some, fence one, and leave one open."""
    for name in IDS:
        writers.start(name)
    for turn in range(3):
        writers["around"].begin()
        writers.send("around", 0, [f"around {turn}", "b"])
        writers.send("around", 1, [f"around {turn}"])
        writers["within"].begin()
        writers.send("within", 0, [f"within {turn}"])
        writers.send("around", 0, [f"around {turn}", "c"])
        if turn % 2:
            writers["within"].commit()
            writers["around"].abort()
        else:
            writers["within"].abort()
            writers["around"].commit()
    writers["started-again"].begin()
    writers.send("started-again", 2, ["never seen"])
    writers.start("started-again")
    writers["started-again"].begin()
    writers.send("started-again", 2, ["seen"])
    writers["started-again"].commit()
    writers["left-open"].begin()
    writers.send("left-open", 1, ["not decided", "nor this"])
    writers["around"].begin()
    writers.send("around", 1, ["behind it"])
    writers["around"].commit()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker.start(tmp_path_factory.mktemp("transactions") / "broker") as broker:
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        yield broker


def write_to_files(directory: Path, write: Callable[[Writers], None]) -> None:
    config = LogConfig.from_properties({"compression.type": "uncompressed"})
    with ExitStack() as stack:
        logs = stack.enter_context(OpenLogs(directory_at(directory), config))

        def opened(name: str) -> TransactionalWriter:
            return TransactionalWriter.open(directory, name, config, logs=logs)

        def send(writer: TransactionalWriter, partition: int, values: list[str]) -> None:
            writer.append(TOPIC, partition, {"value": [each.encode() for each in values]})

        write(Writers(opened, send))


def write_to_broker(broker: Broker, write: Callable[[Writers], None]) -> None:
    def opened(name: str) -> Any:
        return broker.producer(transactional_id=name, transaction_timeout_ms=900_000)

    def send(producer: Any, partition: int, values: list[str]) -> None:
        producer.send([Record(TOPIC, None, each.encode(), partition=partition) for each in values])

    write(Writers(opened, send))


def described(folder: Path) -> dict[str, Any]:
    """Describe a log: batches, transaction index, producers at its end and last stable offset, without ids and times."""
    layout = read_layout(folder_at(folder))
    numbers: dict[int, int] = {}

    def number(producer_id: int) -> int:
        return numbers.setdefault(producer_id, len(numbers))

    batches = []
    for segment in layout.segments:
        with segment.open() as log:
            for window in log.windows(log.start):
                batches += [_batch(window, row, number) for row in range(len(window.headers))]
    index = b"".join(path.read_bytes() for path in sorted(folder.glob(f"*{TRANSACTION_INDEX}")))
    aborted = [
        (number(int.from_bytes(index[at + 2 : at + 10], "big")), index[at + 10 : at + 34].hex())
        for at in range(0, len(index), 34)
    ]
    newest = snapshots_of(folder_at(folder))[0][1]
    assert newest.endswith(f"{layout.end_offset:020d}{SNAPSHOT}")
    entries = parse_snapshot(Path(newest).read_bytes(), newest).tolist()
    producers = sorted((number(entry[0]), *entry[1:5], *entry[6:]) for entry in entries)
    return {"batches": batches, "aborted": aborted, "producers": producers, "stable": last_stable_offset(layout)}


def _batch(window: Window, row: int, number: Callable[[int], int]) -> dict[str, Any]:
    table = window.headers.table[row]
    names = ("base_offset", "last_offset", "attributes", "producer_epoch", "base_sequence", "leader_epoch")
    marker = v2.end_marker(window.batch(row)) if table["attributes"] & v2.CONTROL else None
    producer = number(int(table["producer_id"]))
    return {"producer": producer, "marker": marker, **{name: int(table[name]) for name in names}}


def test_transactions_in_files_are_those_that_a_broker_writes(broker: Broker, tmp_path: Path) -> None:
    write_to_broker(broker, write_everything)
    told = {each["partition"]: each["last_stable"] for each in broker.offsets(TOPIC)}
    broker.stop()
    write_to_files(tmp_path, write_everything)
    for partition in range(PARTITIONS):
        ours, theirs = (described(path / f"{TOPIC}-{partition}") for path in (tmp_path, broker.log_dir))
        assert ours == theirs
        assert ours["stable"] == told[partition]
    assert _states(tmp_path) == {
        row["transactional_id"]: (row["state"], row["producer_epoch"], _partitions(row["partitions"]))
        for row in sparklog.views.read(broker.log_dir, "transactions").to_pylist()
    }
    broker.restart()


def _states(directory: Path) -> dict[str, Any]:
    found: Mapping[str, Any] = json.loads((directory / TRANSACTIONAL_IDS).read_bytes())["transactional_ids"]
    return {name: (each["state"], each["producer_epoch"], each["partitions"]) for name, each in found.items()}


def _partitions(listed: list[Mapping[str, Any]]) -> list[str]:
    return [f"{each['topic']}-{partition}" for each in listed for partition in each["partitions"]]
