"""Our transactional ids in ``__transaction_state``: recorded where it is whole, and nothing of a coordinator's lost."""

from __future__ import annotations

import logging
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.errors import LockedError
from sparklog.log import files
from sparklog.log.layout import read_layout
from sparklog.record.batches.producer_stamps import TransactionProducer
from sparklog.system.records import InternalLog, last_records
from sparklog.topic.internal.groups import partition_of_group
from sparklog.topic.transactions import coordinator_log
from sparklog.topic.transactions.commit import begin_transactional_id, commit_transaction
from sparklog.topic.transactions.ids import EPOCH_MAX, read_transactional_ids
from sparklog.topic.transactions.writer import TransactionalWriter, transaction
from sparklog.topic.write.open_logs import OpenLogs
from sparklog.write.partition import LogWriter
from tests.places import directory_at, folder_at
from tests.storage.crash import CrashingStorage, crashes
from tests.system.logs import put, write_log
from tests.topic.staged import CONFIG, NOW_MS, findings, rows, stage

PARTITIONS = 3
OTHER = {"producerId": 7, "producerEpoch": 3, "transactionTimeoutMs": 1, "transactionStatus": 4}


def record(name: str, **fields: Any) -> Any:
    whole = {"transactionPartitions": [], "transactionLastUpdateTimestampMs": 1, "transactionStartTimestampMs": 1}
    return put("TransactionLog", {"transactionalId": name}, {**OTHER, **whole, **fields}, 1)


def write_topic(directory: Path, records: dict[int, list[Any]] | None = None, partitions: int = PARTITIONS) -> None:
    for number in range(partitions):
        write_log(directory / f"__transaction_state-{number}", (records or {}).get(number, []))


def recorded(directory: Path) -> dict[str, tuple[str, int]]:
    """Return the states of all ids and their epochs, and see that each is in its partition."""
    history = sparklog.views.read(directory, "transactions", history=True).to_pylist()
    assert all(row["log_partition"] == partition_of_group(row["transactional_id"], PARTITIONS) for row in history)
    found = sparklog.views.read(directory, "transactions").to_pylist()
    return {row["transactional_id"]: (row["state"], row["producer_epoch"]) for row in found}


def known(directory: Path) -> dict[str, tuple[str, int]]:
    states = read_transactional_ids(directory_at(directory))
    assert states is not None
    return {name: (each.state, each.producer_epoch) for name, each in states.ids.items()}


def write(directory: Path, name: str = "loader", value: bytes = b"a") -> None:
    with transaction(directory, name, CONFIG) as writer:
        writer.append("events", 0, {"value": [value]})


def test_each_start_and_each_end_is_recorded_in_the_partition_of_the_id(tmp_path: Path) -> None:
    write_topic(tmp_path)
    for name in ("a", "b", "loader", "ü"):
        with transaction(tmp_path, name, CONFIG) as writer:
            assert recorded(tmp_path)[name] == ("Empty", 0)
            writer.append("events", 0, {"value": [b"a"]})
            writer.commit()
            assert recorded(tmp_path)[name] == ("CompleteCommit", 1)
            writer.begin()
            writer.append("events", 0, {"value": [b"b"]})
            writer.abort()
        assert recorded(tmp_path)[name] == ("CompleteAbort", 2)
    assert recorded(tmp_path) == known(tmp_path)
    assert findings(tmp_path) == []


def test_state_and_records_of_a_commit_that_stops_anywhere_are_there_together_or_not_at_all(tmp_path: Path) -> None:
    def prepare(folder: Path) -> None:
        write_topic(folder)
        write(folder)

    def run(storage: CrashingStorage, folder: Path) -> None:
        with TransactionalWriter.open(folder, "loader", CONFIG, storage=storage) as writer:
            writer.begin()
            writer.append("events", 0, {"value": [b"new"]})
            writer.commit()

    found = set()
    for crash in crashes(prepare, run, tmp_path, ("kept",)):
        with transaction(crash.folder, "another", CONFIG):
            pass
        states = recorded(crash.folder)
        with sparklog.open_log(crash.folder / "events-0") as log:
            values = log.read(columns=["value"], isolation_level="read_committed")["value"].to_pylist()
        assert (states["loader"] == ("CompleteCommit", 3)) == (values == [b"a", b"new"]), str(crash)
        assert states == known(crash.folder), str(crash)
        assert findings(crash.folder) == [], str(crash)
        found.add(states["loader"])
    assert found == {("CompleteCommit", 1), ("Empty", 2), ("Ongoing", 2), ("CompleteCommit", 3)}


def test_job_that_overwrites_its_topic_leaves_what_coordinators_have(tmp_path: Path) -> None:
    write_topic(tmp_path, {partition_of_group("theirs", PARTITIONS): [record("theirs")]})
    for name in ("theirs-not", "loader"):
        job, staged = stage(tmp_path, [rows(["a"], partition=[0])], is_transactional=True)
        commit_transaction(replace(job, is_overwrite=True), staged, name, None, NOW_MS)
    assert {*recorded(tmp_path)} == {"theirs", "theirs-not", "loader"}
    checkpoint = (tmp_path / files.LOG_START_CHECKPOINT).read_text()
    assert "events" in checkpoint
    assert "__transaction_state" not in checkpoint


@pytest.mark.parametrize(("epoch", "is_new", "next_epoch"), [(40, False, 41), (0, False, 2), (EPOCH_MAX, True, 0)])
def test_id_that_a_coordinator_went_on_with_gets_a_higher_epoch(
    tmp_path: Path, epoch: int, is_new: bool, next_epoch: int
) -> None:
    write(tmp_path)
    states = read_transactional_ids(directory_at(tmp_path))
    assert states is not None
    producer_id, number = states.ids["loader"].producer_id, partition_of_group("loader", PARTITIONS)
    write_topic(tmp_path, {number: [record("loader", producerId=producer_id, producerEpoch=epoch)]})
    with TransactionalWriter.open(tmp_path, "loader", CONFIG) as writer:
        assert (writer.producer_id, writer.producer_epoch) == (producer_id + is_new, next_epoch)


@pytest.mark.parametrize("status", [1, 2, 3, 7])
def test_transaction_that_a_coordinator_has_open_stays_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    number = partition_of_group("loader", PARTITIONS)
    write_topic(tmp_path, {number: [record("loader", transactionStatus=status)]})
    before = recorded(tmp_path)
    with caplog.at_level(logging.WARNING, logger="sparklog"):
        write(tmp_path)
    assert recorded(tmp_path) == before
    assert "has an open transaction of 'loader'" in caplog.text
    states = read_transactional_ids(directory_at(tmp_path))
    assert states is not None
    # The same where it is of a producer of ours, which the coordinator has gone on with.
    producer_id = states.ids["loader"].producer_id
    write_log(
        tmp_path / f"__transaction_state-{number}", [record("loader", transactionStatus=status, producerId=producer_id)]
    )
    with TransactionalWriter.open(tmp_path, "loader", CONFIG) as writer:
        assert (writer.producer_id, writer.producer_epoch) == (producer_id + 1, 0)


@pytest.mark.parametrize("gone", [0, 1])
def test_directory_without_all_partitions_is_left_as_it_is(tmp_path: Path, gone: int) -> None:
    write_topic(tmp_path)
    (tmp_path / f"__transaction_state-{gone}").rename(tmp_path / "elsewhere")
    write(tmp_path)
    assert sparklog.views.read(tmp_path, "transactions").num_rows == 0


def test_directory_whose_partitions_seem_to_be_all_and_are_not_is_left_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here = partition_of_group("loader", PARTITIONS)
    other = next(str(n) for n in range(99) if partition_of_group(str(n), PARTITIONS) != here)
    write_topic(tmp_path, {here: [record(other)]})
    with caplog.at_level(logging.WARNING, logger="sparklog"):
        write(tmp_path)
    assert "not all of its topic is here" in caplog.text
    rows_of_topic = sparklog.views.read(tmp_path, "transactions").to_pylist()
    assert [row["transactional_id"] for row in rows_of_topic] == [other]


def left_open(directory: Path, *partitions: int, timeout_ms: int = 60_000) -> TransactionProducer:
    """Leave a transaction open, as a process that was killed does, and return its producer."""
    with OpenLogs(directory_at(directory), CONFIG) as logs:
        writer = TransactionalWriter.open(directory, "loader", CONFIG, logs=logs, timeout_ms=timeout_ms)
        writer.begin()
        for partition in partitions:
            writer.append("events", partition, {"value": [b"left"]})
        return TransactionProducer(writer.producer_id, writer.producer_epoch)


def ends(directory: Path) -> list[int]:
    """Return the log end offsets of all partitions of the topic."""
    return [read_layout(folder_at(path)).end_offset for path in sorted(directory.glob("events-*"))]


def test_open_transaction_is_recorded_with_its_partitions_in_the_bytes_of_a_coordinator(tmp_path: Path) -> None:
    write_topic(tmp_path)
    producer = left_open(tmp_path, 1, 0)
    states = read_transactional_ids(directory_at(tmp_path))
    assert states is not None
    found = states.ids["loader"]
    with sparklog.open_log(tmp_path / f"__transaction_state-{partition_of_group('loader', PARTITIONS)}") as log:
        values = log.read(columns=["value"])["value"].to_pylist()
    partitions = [b"\x02" + struct.pack(">i", 1), b"\x03" + struct.pack(">ii", 0, 1)]
    for value, numbers in zip(values[1:], partitions, strict=True):
        head = struct.pack(">hqhib", 1, *producer, 60_000, 1)
        topics = b"\x02" + b"\x07events" + numbers + b"\x00"
        assert value.startswith(head + topics)
        last_update_ms, start_ms = struct.unpack_from(">qq", value, len(head + topics))
        assert start_ms == found.start_ms <= last_update_ms <= found.last_update_ms
        # Two tagged fields: the previous producer id, and the client's version of transactions.
        tags = b"\x02" + b"\x00\x08" + struct.pack(">q", producer.producer_id) + b"\x02\x02" + struct.pack(">h", 2)
        assert value[len(head + topics) + 16 :] == tags
    assert recorded(tmp_path) == known(tmp_path) == {"loader": ("Ongoing", 0)}


def test_transaction_of_which_no_record_was_written_is_ended_too(tmp_path: Path) -> None:
    write_topic(tmp_path)
    write(tmp_path)
    with TransactionalWriter.open(tmp_path, "loader", CONFIG) as writer:
        writer.begin()
        with LogWriter.open(tmp_path / "events-0"), pytest.raises(LockedError):
            writer.append("events", 0, {"value": [b"refused"]})
        assert recorded(tmp_path) == known(tmp_path) == {"loader": ("Ongoing", 2)}
        writer.abort()
        assert recorded(tmp_path) == known(tmp_path) == {"loader": ("CompleteAbort", 3)}
        # Another writer's log gets no marker.
        assert ends(tmp_path) == [2]


@pytest.mark.parametrize(
    ("theirs", "next_epoch", "is_recorded"),
    [
        ({"transactionStatus": 5}, 2, True),
        ({"transactionStatus": 0, "producerEpoch": 9}, 10, True),
        # It has a transaction of its own open, or has still to abort ours.
        ({"transactionStatus": 1, "producerEpoch": 9}, 0, False),
        ({"transactionStatus": 3}, 0, False),
    ],
)
def test_transaction_that_a_coordinator_has_ended_or_will_gets_no_marker_from_here(
    tmp_path: Path, theirs: dict[str, int], next_epoch: int, is_recorded: bool
) -> None:
    write_topic(tmp_path)
    producer_id, number = left_open(tmp_path, 0, 1).producer_id, partition_of_group("loader", PARTITIONS)
    of_ours = {"producerId": producer_id, "previousProducerId": producer_id, "producerEpoch": 1}
    shutil.rmtree(tmp_path / f"__transaction_state-{number}")
    write_log(tmp_path / f"__transaction_state-{number}", [record("loader", **{**of_ours, **theirs})])
    before = recorded(tmp_path), ends(tmp_path)
    with TransactionalWriter.open(tmp_path, "loader", CONFIG) as writer:
        is_new = not next_epoch
        assert (writer.producer_id, writer.producer_epoch) == (producer_id + is_new, next_epoch)
    assert ends(tmp_path) == before[1]
    assert recorded(tmp_path) == ({"loader": ("Empty", next_epoch)} if is_recorded else before[0])


def test_transaction_that_a_coordinator_has_ended_by_another_producer_gets_no_marker_either(tmp_path: Path) -> None:
    write_topic(tmp_path)
    producer_id, number = left_open(tmp_path, 0, timeout_ms=1).producer_id, partition_of_group("loader", PARTITIONS)
    shutil.rmtree(tmp_path / f"__transaction_state-{number}")
    theirs = {"producerId": 12, "previousProducerId": producer_id, "producerEpoch": 0}
    write_log(tmp_path / f"__transaction_state-{number}", [record("loader", **theirs)])
    before = ends(tmp_path)
    # It is overdue, and any start would abort it.
    begin_transactional_id(directory_at(tmp_path), "another", 1 << 42)
    assert ends(tmp_path) == before
    assert known(tmp_path)["loader"] == ("CompleteAbort", 1)


def test_transaction_that_a_coordinator_does_not_know_is_aborted_here(tmp_path: Path) -> None:
    producer = left_open(tmp_path, 0)
    write_topic(tmp_path, {partition_of_group("loader", PARTITIONS): [record("loader")]})
    before = ends(tmp_path)
    with TransactionalWriter.open(tmp_path, "loader", CONFIG) as writer:
        assert (writer.producer_id, writer.producer_epoch) == (producer.producer_id, 2)
    assert ends(tmp_path) == [before[0] + 1]


def test_partition_is_looked_at_once_by_a_start_and_once_by_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_topic(tmp_path)
    looked_at: list[str] = []

    def counting(log: InternalLog) -> Any:
        looked_at.append(log.layout.folder.name)
        return last_records(log)

    monkeypatch.setattr(coordinator_log, "last_records", counting)
    here = f"__transaction_state-{partition_of_group('loader', PARTITIONS)}"
    left_open(tmp_path, 0)
    # The start, and the partition that is added.
    assert looked_at == [here, here]
    looked_at.clear()
    with TransactionalWriter.open(tmp_path, "loader", CONFIG) as writer:
        # It has aborted what was left open.
        assert (recorded(tmp_path), looked_at) == ({"loader": ("Empty", 2)}, [here])
        writer.begin()
        writer.append("events", 1, {"value": [b"a"]})
        looked_at.clear()
        writer.commit()
    job, staged = stage(tmp_path, [rows(["a"], partition=[0])], is_transactional=True)
    commit_transaction(job, staged, "loader", None, NOW_MS)
    assert looked_at == [here, here]
    history = sparklog.views.read(tmp_path, "transactions", history=True).to_pylist()
    assert [(row["state"], row["client_transaction_version"]) for row in history] == [
        ("Empty", 0), ("Ongoing", 2), ("CompleteAbort", 2),
        ("Empty", 2), ("Ongoing", 2), ("CompleteCommit", 2),
        # Tasks leave no transaction open.
        ("CompleteCommit", 2),
    ]  # fmt: skip
