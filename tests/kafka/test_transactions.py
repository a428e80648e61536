"""Transactions that were written to files: what a broker would have written, and what it serves of them."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.errors import BrokerRunningError
from sparklog.log.config import LogConfig
from sparklog.log.files import JOURNAL, SNAPSHOT, TRANSACTION_INDEX, TRANSACTIONAL_IDS
from sparklog.log.layout import read_layout
from sparklog.log.producer_snapshots import snapshots_of
from sparklog.log.producer_state import parse_snapshot
from sparklog.log.transactions import last_stable_offset
from sparklog.log.windows import Window
from sparklog.record.format import v2
from sparklog.topic.recover import RecoverOptions, recover_directory
from sparklog.topic.transactions.commit import begin_transactional_id, commit_transaction
from sparklog.topic.transactions.hanging import AbortRequest, abort_transactions, open_transactions
from sparklog.topic.transactions.writer import TransactionalWriter
from sparklog.topic.write.open_logs import OpenLogs
from tests.kafka.admin import run_tool
from tests.kafka.adopt import adoption
from tests.kafka.broker import Broker, Record
from tests.places import directory_at, folder_at, moved
from tests.storage.crash import CrashingStorage, Stopped
from tests.topic.staged import NOW_MS, rows, stage

pytestmark = pytest.mark.kafka

TOPIC = "paid"
PARTITIONS = 3
MARKERS_TIMEOUT_S = 30
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
def only_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker.start(tmp_path_factory.mktemp("transactions") / "broker") as broker:
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        yield broker


@pytest.fixture
def broker(only_broker: Broker) -> Iterator[Broker]:
    """Give the broker, and start it again if the test failed while it was down: the next test needs it."""
    yield only_broker
    if not only_broker.is_running:
        only_broker.restart()


def write_to_files(directory: Path, write: Callable[[Writers], None], topic: str = TOPIC) -> None:
    config = LogConfig.from_properties({"compression.type": "uncompressed"})
    with ExitStack() as stack:
        logs = stack.enter_context(OpenLogs(directory_at(directory), config))

        def opened(name: str) -> TransactionalWriter:
            return TransactionalWriter.open(directory, name, config, logs=logs)

        def send(writer: TransactionalWriter, partition: int, values: list[str]) -> None:
            writer.append(topic, partition, {"value": [each.encode() for each in values]})

        write(Writers(opened, send))


class MarkedProducer:
    """A producer of a broker whose transactions end with their markers in the logs.

    A broker says that a transaction has ended once its coordinator has decided it, and writes the markers afterwards:
    those of two transactions may change places.
    """

    def __init__(self, broker: Broker, name: str) -> None:
        self._broker = broker
        self._producer = broker.producer(transactional_id=name, transaction_timeout_ms=900_000)
        self._partitions: set[int] = set()

    def begin(self) -> None:
        self._partitions.clear()
        self._producer.begin()

    def send(self, partition: int, values: list[str]) -> None:
        self._partitions.add(partition)
        self._producer.send([Record(TOPIC, None, each.encode(), partition=partition) for each in values])

    def commit(self) -> None:
        self._end(self._producer.commit)

    def abort(self) -> None:
        self._end(self._producer.abort)

    def _end(self, end: Callable[[], None]) -> None:
        marked = self._ends() + len(self._partitions)
        end()
        deadline = time.monotonic() + MARKERS_TIMEOUT_S
        while self._ends() < marked:
            assert time.monotonic() < deadline, "the markers of a transaction are not written"
            time.sleep(0.02)

    def _ends(self) -> int:
        return sum(each["end"] for each in self._broker.offsets(TOPIC))


def write_to_broker(broker: Broker, write: Callable[[Writers], None]) -> None:
    def opened(name: str) -> MarkedProducer:
        return MarkedProducer(broker, name)

    def send(producer: MarkedProducer, partition: int, values: list[str]) -> None:
        producer.send(partition, values)

    write(Writers(opened, send))


def described(folder: Path) -> dict[str, Any]:
    """Describe a log without ids and times: batches, transaction index, producers at its end, last stable offset."""
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


@pytest.mark.parametrize("trust_indexes", [True, False], ids=["indexes trusted", "indexes made again"])
def test_broker_serves_transactions_of_files_and_a_producer_goes_on(
    broker: Broker, tmp_path: Path, trust_indexes: bool
) -> None:
    topic = f"adopted-{trust_indexes}".lower()
    broker.create_topic(topic, partitions=PARTITIONS)
    broker.stop()
    write_to_files(tmp_path, write_everything, topic)
    write_by_tasks(tmp_path, topic)
    ours = {number: committed_values(tmp_path / f"{topic}-{number}") for number in range(PARTITIONS)}
    # One is open in partition 1: what the tasks have written there is behind it.
    assert [values[-1:] for values in ours.values()] == [[b"task 1"], [b"around 2"], [b"task 1"]]
    with adoption(broker, trust_indexes=trust_indexes) as adopt:
        for number in range(PARTITIONS):
            adopt(topic, number, tmp_path / f"{topic}-{number}")
    broker.restart()
    assert consumed(broker, topic) == ours
    for told in broker.offsets(topic):
        layout = read_layout(folder_at(tmp_path / f"{topic}-{told['partition']}"))
        assert (told["end"], told["last_stable"]) == (layout.end_offset, last_stable_offset(layout))
    with broker.producer(transactional_id="around") as producer:
        producer.begin()
        producer.send([Record(topic, None, b"aborted", partition=number) for number in (0, 2)])
        producer.abort()
        producer.begin()
        producer.send([Record(topic, None, b"from a broker", partition=number) for number in (0, 2)])
        producer.commit()
    after = {number: [*values, *([b"from a broker"] if number != 1 else [])] for number, values in ours.items()}
    assert consumed(broker, topic) == after
    assert broker.complaints() == []


def test_commit_that_stopped_is_served_whole_or_not_at_all_once_it_was_recovered(
    broker: Broker, tmp_path: Path
) -> None:
    counting = CrashingStorage(tmp_path)
    commit_by_tasks(tmp_path, "counted", counting)
    decided = counting.calls.index(f"rename {JOURNAL}.tmp") + 1
    # As the journal is put in place, and in the midst of what it says.
    stops = {"undecided": decided, "decided": decided + 8}
    for topic in stops:
        broker.create_topic(topic, partitions=PARTITIONS)
    broker.stop()
    for topic, stop_at in stops.items():
        directory = tmp_path / f"{topic}.logs"
        directory.mkdir()
        with suppress(Stopped):
            commit_by_tasks(directory, topic, CrashingStorage(directory, stop_at))
        assert (directory / JOURNAL).exists() == (topic == "decided")
        place = directory_at(directory)
        folders = [place.folder(f"{topic}-{number}") for number in range(PARTITIONS)]
        assert list(recover_directory(place, folders, RecoverOptions(LogConfig(), 0), NOW_MS))
        with adoption(broker) as adopt:
            for number in range(PARTITIONS):
                adopt(topic, number, directory / f"{topic}-{number}")
    broker.restart()
    once, twice = ([b"task 0", b"task 1"] * count for count in (1, 2))
    assert consumed(broker, "undecided") == dict.fromkeys(range(PARTITIONS), once)
    assert consumed(broker, "decided") == dict.fromkeys(range(PARTITIONS), twice)
    assert {each["last_stable"] - each["end"] for each in broker.offsets(*stops)} == {0}


def commit_by_tasks(directory: Path, topic: str, storage: CrashingStorage) -> None:
    """Write what `write_by_tasks` does, and once more in a storage that may stop."""
    write_by_tasks(directory, topic)
    tasks = [rows([f"task {task}"] * PARTITIONS, partition=list(range(PARTITIONS))) for task in range(2)]
    job, staged = stage(directory, tasks, topic=topic, partitions=PARTITIONS, is_transactional=True)
    producer = begin_transactional_id(job.directory, "tasks", NOW_MS)
    commit_transaction(moved(job, storage, directory), staged, "tasks", producer, NOW_MS)


def write_by_tasks(directory: Path, topic: str) -> None:
    tasks = [rows([f"task {task}"] * PARTITIONS, partition=list(range(PARTITIONS))) for task in range(2)]
    job, staged = stage(directory, tasks, topic=topic, partitions=PARTITIONS, is_transactional=True)
    commit_transaction(job, staged, "tasks", begin_transactional_id(job.directory, "tasks", NOW_MS), NOW_MS)


def committed_values(folder: Path) -> list[bytes]:
    with sparklog.open_log(folder) as log:
        found: list[bytes] = log.read(columns=["value"], isolation_level="read_committed")["value"].to_pylist()
    return found


def consumed(broker: Broker, topic: str) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    for record in broker.consume(topic, isolation="read_committed"):
        found[record["partition"]].append(base64.b64decode(record["value"]))
    return found


def test_hanging_transaction_of_a_broker_is_aborted_as_its_own_tool_does_it(broker: Broker) -> None:
    topic = "hung"
    broker.create_topic(topic, partitions=2)
    # One has ended a transaction before, and so the epoch of its coordinator is in the log.
    for number in range(2):
        producer = broker.producer(transactional_id=f"hangs {number}", transaction_timeout_ms=900_000)
        for value in (b"committed", b"hangs"):
            producer.begin()
            producer.send([Record(topic, None, value, partition=number)])
            if value == b"committed":
                producer.commit()
        broker.produce([Record(topic, None, b"behind it", partition=number)])
    folders = [broker.log_dir / f"{topic}-{number}" for number in range(2)]
    (found,) = open_transactions([folders[0]])
    assert (found.transactional_id, found.first_offset, found.timeout_ms) == ("hangs 0", 2, 900_000)
    assert not found.is_hanging(found.start_timestamp + 900_000)
    assert found.is_hanging(found.start_timestamp + 900_001)
    request = AbortRequest(found.topic_partition, found.producer_id)
    with pytest.raises(BrokerRunningError):
        abort_transactions([broker.log_dir], request, found.start_timestamp, executes=True)
    run_tool(broker, "kafka-transactions", "abort", "--topic", topic, "--partition", "1", "--start-offset", "2")
    broker.stop()
    assert abort_transactions([broker.log_dir], request, found.start_timestamp, executes=True) == [found]
    ours, theirs = (described(folder) for folder in folders)
    assert ours == theirs
    assert ours["stable"] == 5
    broker.restart()
    assert [each["last_stable"] for each in broker.offsets(topic)] == [5, 5]
    with broker.producer(transactional_id="hangs 0") as producer:
        producer.begin()
        producer.send([Record(topic, None, b"goes on", partition=0)])
        producer.commit()
    values = [b"committed", b"behind it"]
    assert [base64.b64decode(each["value"]) for each in broker.consume(topic, isolation="read_committed")] in (
        [*values, b"goes on", *values], [*values, *values, b"goes on"]
    )  # fmt: skip
    assert broker.complaints() == []


def _states(directory: Path) -> dict[str, Any]:
    found: Mapping[str, Any] = json.loads((directory / TRANSACTIONAL_IDS).read_bytes())["transactional_ids"]
    return {name: (each["state"], each["producer_epoch"], each["partitions"]) for name, each in found.items()}


def _partitions(listed: list[Mapping[str, Any]]) -> list[str]:
    return [f"{each['topic']}-{partition}" for each in listed for partition in each["partitions"]]
