"""Transactions over partitions: seen by readers of committed records whole or not at all, whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparklog
from sparklog.errors import (
    InvalidOptionError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    LockedError,
    StorageError,
)
from sparklog.log import files
from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import OffsetCommit
from sparklog.log.layout import read_layout
from sparklog.log.producer_snapshots import producers_at_end, snapshots_of
from sparklog.log.producer_state import Producers
from sparklog.log.transactions import last_stable_offset
from sparklog.record.batches.producer_stamps import TransactionProducer
from sparklog.topic.transactions.commit import begin_transactional_id, commit_transaction
from sparklog.topic.transactions.ids import read_transactional_ids
from sparklog.topic.transactions.writer import TransactionalWriter, transaction
from sparklog.topic.write.commit import CommitRequest
from sparklog.topic.write.open_logs import OpenLogs
from sparklog.topic.write.txn_versions import TxnVersion
from sparklog.write.group_offsets import commit_group_offsets, read_group_offsets
from sparklog.write.staged_files import StagedRun
from tests.growth import counted_work
from tests.places import directory_at, folder_at, moved
from tests.storage.crash import CrashingStorage, FailingStorage, Loss, crashes
from tests.topic.staged import CONFIG, NOW_MS, findings, rows, stage, write

PARTITIONS = 8
EVENTS = TopicPartition("events", 0)


def new_rows(partitions: int = PARTITIONS) -> list[Any]:
    """Return the rows of two tasks."""
    return [
        rows([f"{name} {n}" for n in range(count)], partition=[n % partitions for n in range(count)])
        for name, count in (("first", 64), ("second", 16))
    ]


NEW = new_rows()


def committed(directory: Path) -> dict[str, list[str]]:
    """Return what a reader of committed records sees of each partition that has any."""
    found: dict[str, list[str]] = {}
    for folder in sorted(path for path in directory.iterdir() if path.is_dir()):
        with sparklog.open_log(folder) as log:
            values = log.read(columns=["value"], isolation_level="read_committed")["value"].to_pylist()
        if values:
            found[folder.name] = [value.decode() for value in values]
    return found


def expected(partitions: int = PARTITIONS) -> dict[str, list[str]]:
    return {
        f"events-{number}": [f"first {n}" for n in range(number, 64, partitions)]
        + [f"second {n}" for n in range(number, 16, partitions)]
        for number in range(partitions)
    }


def table(*values: str) -> dict[str, list[bytes]]:
    return {"value": [value.encode() for value in values]}


def all_stable(directory: Path) -> bool:
    layouts = [read_layout(folder_at(path)) for path in directory.iterdir() if path.is_dir()]
    return all(last_stable_offset(layout) == layout.end_offset for layout in layouts)


def stage_transaction(
    directory: Path, tasks: list[Any], *, transactional_id: str = "loader", **options: Any
) -> tuple[CommitRequest, list[StagedRun], TransactionProducer]:
    options = {"partitions": PARTITIONS, **options}
    job, staged = stage(directory, tasks, is_transactional=True, **options)
    return job, staged, begin_transactional_id(job.directory, transactional_id, NOW_MS)


def write_transaction(directory: Path, tasks: list[Any], **options: Any) -> Any:
    job, staged, producer = stage_transaction(directory, tasks, **options)
    return commit_transaction(job, staged, "loader", producer, NOW_MS)


@pytest.mark.parametrize(
    ("partitions", "segment_bytes", "loss"),
    [(PARTITIONS, 1 << 30, "kept"), (2, 6_000, "zeros"), (2, 6_000, "pages")],
    ids=["shared files", "files that become segments", "files of which pages are lost"],
)
def test_commit_of_a_job_that_stops_anywhere_is_seen_whole_or_not_at_all(
    tmp_path: Path, partitions: int, segment_bytes: int, loss: Loss
) -> None:
    config = replace(CONFIG, segment_bytes=segment_bytes)
    prepared: list[tuple[CommitRequest, list[StagedRun], TransactionProducer]] = []

    old = {f"events-{number}": ["old"] for number in range(partitions)}
    new = {name: [*values, *expected(partitions)[name]] for name, values in old.items()}

    def prepare(folder: Path) -> None:
        write(folder, [rows(["old"] * partitions, partition=list(range(partitions)))], partitions=partitions)
        prepared.append(stage_transaction(folder, new_rows(partitions), config=config, partitions=partitions))
        assert {each.is_alone for each in prepared[0][1]} == {partitions == 2}

    def run(storage: CrashingStorage, folder: Path) -> None:
        job, staged, producer = prepared[0]
        commit_transaction(moved(job, storage, folder), staged, "loader", producer, NOW_MS)

    outcomes = set()
    for crash in crashes(prepare, run, tmp_path, (loss,)):
        seen = committed(crash.folder)
        assert seen in (old, new), str(crash)
        was_decided = (crash.folder / files.JOURNAL).exists()
        write_transaction(crash.folder, [rows(["next"], partition=[1])], partitions=partitions)
        after = new if was_decided or seen == new else old
        assert committed(crash.folder) == {**after, "events-1": [*after["events-1"], "next"]}, str(crash)
        assert all_stable(crash.folder), str(crash)
        assert findings(crash.folder) == [], str(crash)
        outcomes.add((seen == new, was_decided))
    assert outcomes >= {(False, False), (False, True), (True, False)}


@pytest.mark.parametrize(
    ("partitions", "is_abort"), [(8, False), (2, False), (2, True)], ids=["commit alone", "commit", "abort"]
)
def test_writer_that_stops_anywhere_is_seen_whole_or_not_at_all(
    tmp_path: Path, partitions: int, is_abort: bool
) -> None:
    """What is left open is aborted by the next start of the transactional id."""
    new = {f"events-{number}": ["old", "new", "newer"] for number in range(partitions)}
    old = {name: values[:1] for name, values in new.items()}

    def prepare(folder: Path) -> None:
        with transaction(folder, "loader", CONFIG) as writer:
            for number in range(partitions):
                writer.append("events", number, table("old"))

    def run(storage: CrashingStorage, folder: Path) -> None:
        # Of many partitions the end alone, where nothing is known to be on the disk before.
        first = storage if partitions == 2 else None
        with TransactionalWriter.open(folder, "loader", CONFIG, storage=first) as writer:
            writer.begin()
            for number in range(partitions):
                writer.append("events", number, table("new", "newer"))
            writer.directory = directory_at(folder, storage)
            if is_abort:
                writer.abort()
            else:
                writer.commit()

    outcomes = set()
    for crash in crashes(prepare, run, tmp_path, ("kept",)):
        seen = committed(crash.folder)
        assert seen in (old, new), str(crash)
        was_decided = (crash.folder / files.JOURNAL).exists()
        with transaction(crash.folder, "loader", CONFIG) as writer:
            writer.append("events", 1, table("next"))
        after = new if not is_abort and (was_decided or seen == new) else old
        assert committed(crash.folder) == {**after, "events-1": [*after["events-1"], "next"]}, str(crash)
        assert all_stable(crash.folder), str(crash)
        assert findings(crash.folder) == [], str(crash)
        outcomes.add(seen == new)
    assert outcomes == ({False} if is_abort else {False, True})


@pytest.mark.parametrize("loss", ["kept", "lost", "zeros", "pages"])
def test_writer_that_stops_anywhere_while_it_adds_partitions_leaves_none_hanging(tmp_path: Path, loss: Loss) -> None:
    def prepare(folder: Path) -> None:
        with transaction(folder, "loader", CONFIG) as writer:
            for number in range(3):
                writer.append("events", number, table("old"))

    def run(storage: CrashingStorage, folder: Path) -> None:
        with TransactionalWriter.open(folder, "loader", CONFIG, storage=storage) as writer:
            writer.begin()
            for number in range(3):
                writer.append("events", number, table("new"))

    added = set()
    for crash in crashes(prepare, run, tmp_path, (loss,)):
        states = read_transactional_ids(directory_at(crash.folder))
        assert states is not None
        added.add(len(states.ids["loader"].partitions))
        with transaction(crash.folder, "loader", CONFIG) as writer:
            writer.append("events", 1, table("next"))
        old = {f"events-{number}": ["old"] for number in range(3)}
        assert committed(crash.folder) == {**old, "events-1": ["old", "next"]}, str(crash)
        assert all_stable(crash.folder), str(crash)
        assert findings(crash.folder) == [], str(crash)
    assert added == {0, 1, 2, 3}


def test_partition_added_to_a_transaction_of_many_costs_no_more(tmp_path: Path) -> None:
    with TransactionalWriter.open(tmp_path, "loader", CONFIG) as writer:
        writer.begin()
        found = []
        for number in range(120):
            with counted_work() as work:
                writer.append("events", number, table("x"))
            found.append(work)
        assert max(each.written_bytes for each in found[2:]) <= found[1].written_bytes + 10
        assert max(each.calls for each in found[2:]) <= found[1].calls + 5
        assert max(each.read_bytes for each in found[2:]) <= found[1].read_bytes + 500
        states = read_transactional_ids(writer.directory)
        assert states is not None
        assert states.ids["loader"].partitions == tuple(f"events-{number}" for number in range(120))
        writer.abort()
    assert all_stable(tmp_path)
    assert committed(tmp_path) == {}


@pytest.mark.parametrize("is_abort", [False, True], ids=["commit", "abort"])
def test_offsets_and_records_of_a_writer_that_stops_anywhere_are_seen_together_or_not_at_all(
    tmp_path: Path, is_abort: bool
) -> None:
    """A commit that is decided cannot be undone: the group goes on behind it. Offsets are visible with the records."""
    old, new = OffsetCommit(1, "", 0), OffsetCommit(5, "", NOW_MS)

    def prepare(folder: Path) -> None:
        with transaction(folder, "loader", CONFIG) as writer:
            writer.append("events", 0, table("old"))
        commit_group_offsets(directory_at(folder), "g", {EVENTS: old})

    def run(storage: CrashingStorage, folder: Path) -> None:
        with TransactionalWriter.open(folder, "loader", CONFIG, storage=storage, clock=lambda: NOW_MS) as writer:
            writer.begin()
            writer.append("events", 0, table("new"))
            writer.send_offsets({EVENTS: 5}, "g")
            if is_abort:
                writer.abort()
            else:
                writer.commit()
            commit_group_offsets(writer.directory, "h", {EVENTS: old})

    outcomes = set()
    for crash in crashes(prepare, run, tmp_path, ("kept",) if is_abort else ("kept", "lost")):
        directory = directory_at(crash.folder)
        visible, seen = read_group_offsets(directory)["g"][EVENTS], committed(crash.folder)["events-0"]
        assert (visible == new) == ("new" in seen), str(crash)
        offset = read_group_offsets(directory, with_decided=True)["g"][EVENTS]
        was_decided = (crash.folder / files.JOURNAL).exists()
        outcomes.add((offset == new, "new" in seen))
        if offset == new:
            # A consumer that goes on from there is never put back.
            commit_group_offsets(directory, "g", {EVENTS: OffsetCommit(7, "", 0)})
        with transaction(crash.folder, "loader", CONFIG):
            pass
        after = read_group_offsets(directory)["g"][EVENTS]
        assert after == (OffsetCommit(7, "", NOW_MS) if offset == new else old), str(crash)
        assert committed(crash.folder)["events-0"] == ["old", "new"][: 1 + (offset == new)], str(crash)
        assert offset == (new if not is_abort and (was_decided or "new" in seen) else old), str(crash)
        assert findings(crash.folder) == [], str(crash)
    assert outcomes == ({(False, False)} if is_abort else {(False, False), (True, False), (True, True)})


def test_transaction_of_offsets_alone_is_committed_and_fenced(tmp_path: Path) -> None:
    with transaction(tmp_path, "loader", CONFIG) as writer:
        writer.append("events", 0, table("old"))
        writer.commit()
        writer.begin()
        writer.send_offsets({EVENTS: (5, "note")}, "g")
        epoch = writer.producer_epoch
    assert writer.producer_epoch == epoch + 1
    assert read_group_offsets(directory_at(tmp_path))["g"][EVENTS][:2] == (5, "note")
    with TransactionalWriter.open(tmp_path, "loader", CONFIG) as writer:
        writer.begin()
        writer.send_offsets({EVENTS: 6}, "g")
        with transaction(tmp_path, "loader", CONFIG):
            pass
        with pytest.raises(InvalidProducerEpochError, match="fenced"):
            writer.send_offsets({EVENTS: 7}, "g")
        with pytest.raises(InvalidProducerEpochError, match="fenced"):
            writer.commit()
    assert read_group_offsets(directory_at(tmp_path))["g"][EVENTS].offset == 5


def test_batches_of_all_tasks_have_one_producer_and_follow_one_another(tmp_path: Path) -> None:
    for number in range(2):
        write_transaction(tmp_path, NEW, config=replace(CONFIG, segment_bytes=(1 << 30) if number else 6_000))
    layout = read_layout(folder_at(tmp_path / "events-3"))
    tables = []
    for segment in layout.segments:
        with segment.open() as log:
            tables += [window.headers.table for window in log.windows(log.start)]
    found = np.concatenate(tables)
    states = read_transactional_ids(directory_at(tmp_path))
    assert states is not None
    assert set(found["producer_id"]) == {states.ids["loader"].producer_id}
    is_marker = found["base_sequence"] < 0
    # Each run of the job starts the transactional id, and its marker has an epoch of its own.
    assert found["producer_epoch"][is_marker].tolist() == [1, 3]
    for epoch in (0, 2):
        batches = found[found["producer_epoch"] == epoch]
        counts = batches["last_offset"] - batches["base_offset"] + 1
        assert batches["base_sequence"].tolist() == np.cumsum([0, *counts[:-1]]).tolist()
    assert findings(tmp_path) == []


def test_job_whose_transactional_id_was_started_again_commits_nothing(tmp_path: Path) -> None:
    job, staged, producer = stage_transaction(tmp_path, NEW)
    write_transaction(tmp_path, [rows(["newer"], partition=[0])])
    with pytest.raises(InvalidProducerEpochError, match=r"'loader' was started .* it is fenced.*Nothing of this write"):
        commit_transaction(job, staged, "loader", producer, NOW_MS)
    assert committed(tmp_path) == {"events-0": ["newer"]}


def test_job_of_a_version_that_was_written_writes_nothing(tmp_path: Path) -> None:
    for number in range(2):
        job, staged, producer = stage_transaction(tmp_path, NEW)
        job = replace(job, transaction=TxnVersion("loader", 7))
        summary = commit_transaction(job, staged, "loader", producer, NOW_MS)
        assert summary["is_skipped"] == bool(number)
    assert committed(tmp_path) == expected()
    assert [path.name for path in tmp_path.glob("*.staged")] == []


def test_commit_without_a_producer_starts_the_transactional_id_itself(tmp_path: Path) -> None:
    for number in range(2):
        job, staged = stage(tmp_path, [rows([str(number)], partition=[0])], is_transactional=True)
        summary = commit_transaction(job, staged, "stream", None, NOW_MS)
        assert [(each["records"], each["last_offset"]) for each in summary["partitions"]] == [(1, 2 * number + 1)]
    assert committed(tmp_path) == {"events-0": ["0", "1"]}
    assert producers_at_end(read_layout(folder_at(tmp_path / "events-0"))).first_unstable_offset is None


def interleaved(directory: Path, end: Callable[[TransactionalWriter, TransactionalWriter], None]) -> None:
    with ExitStack() as stack:
        logs = stack.enter_context(OpenLogs(directory_at(directory), CONFIG))
        one, other = (TransactionalWriter.open(directory, name, CONFIG, logs=logs) for name in ("one", "other"))
        for writer in (one, other):
            writer.begin()
        for number in range(3):
            one.append("events", number % 2, table(f"one {number}"))
            other.append("events", 0, table(f"other {number}"))
        end(one, other)


def test_transactions_of_two_ids_interleave_and_one_is_aborted(tmp_path: Path) -> None:
    def end(one: TransactionalWriter, other: TransactionalWriter) -> None:
        one.commit()
        assert committed(tmp_path) == {"events-0": ["one 0"], "events-1": ["one 1"]}
        other.abort()

    interleaved(tmp_path, end)
    assert committed(tmp_path) == {"events-0": ["one 0", "one 2"], "events-1": ["one 1"]}
    assert all_stable(tmp_path)
    index = (tmp_path / "events-0" / files.offset_file_name(0, files.TRANSACTION_INDEX)).read_bytes()
    states = read_transactional_ids(directory_at(tmp_path))
    assert states is not None
    # Its first offset, that of its marker, and the last stable offset after it.
    numbers = (states.ids["other"].producer_id, 1, 6, 7)
    assert index == b"\0\0" + b"".join(number.to_bytes(8, "big") for number in numbers)
    assert findings(tmp_path) == []


def test_writer_that_is_fenced_by_a_newer_start_writes_no_more(tmp_path: Path) -> None:
    def end(one: TransactionalWriter, other: TransactionalWriter) -> None:
        newer = TransactionalWriter.open(tmp_path, "other", CONFIG, logs=other._logs)
        for partition in (0, 1):
            # Fenced by the marker in the log, and by what is known of the transactional id.
            with pytest.raises(InvalidProducerEpochError, match="fenced"):
                other.append("events", partition, table("too late"))
        with pytest.raises(InvalidProducerEpochError, match="fenced"):
            other.commit()
        other.close()
        newer.begin()
        newer.append("events", 0, table("newer"))
        newer.commit()
        one.commit()

    interleaved(tmp_path, end)
    assert committed(tmp_path) == {"events-0": ["one 0", "one 2", "newer"], "events-1": ["one 1"]}
    assert all_stable(tmp_path)
    assert findings(tmp_path) == []


def left_open(directory: Path, *, timeout_ms: int) -> TransactionalWriter:
    """Return a writer whose transaction is open, and whose logs are closed as if its process were dead."""
    with OpenLogs(directory_at(directory), CONFIG) as logs:
        writer = TransactionalWriter.open(directory, "one", CONFIG, timeout_ms=timeout_ms, logs=logs)
        writer.begin()
        writer.append("events", 0, table("left"))
    return writer


def test_transaction_that_is_open_for_too_long_is_aborted_by_the_next_start_of_any_id(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, [rows(["old"], partition=[0])])
    writer, directory = left_open(tmp_path, timeout_ms=60_000), directory_at(tmp_path)
    states = read_transactional_ids(directory)
    assert states is not None
    begun_ms = states.ids["one"].start_ms
    begin_transactional_id(directory, "other", begun_ms + 60_000)
    assert not all_stable(tmp_path)
    begin_transactional_id(directory, "other", begun_ms + 60_001)
    assert all_stable(tmp_path)
    assert "the transaction of 'one' was open for more than 60000 ms: aborted" in caplog.text
    assert committed(tmp_path) == {"events-0": ["old"]}
    with pytest.raises(InvalidProducerEpochError, match="fenced"):
        writer.commit()
    assert findings(tmp_path) == []


def test_transaction_of_a_writer_that_has_its_logs_open_is_left_to_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def end(one: TransactionalWriter, other: TransactionalWriter) -> None:
        begin_transactional_id(directory_at(tmp_path), "third", 1 << 42)
        assert caplog.text.count("is open in this process already") == 2
        one.commit()
        other.abort()

    interleaved(tmp_path, end)
    assert committed(tmp_path) == {"events-0": ["one 0", "one 2"], "events-1": ["one 1"]}


def test_overdue_transaction_of_a_damaged_log_keeps_no_other_id_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left_open(tmp_path, timeout_ms=1)
    (log,) = (tmp_path / "events-0").glob("*.log")
    log.write_bytes(b"no batch at all, and none behind it" * 10)
    begin_transactional_id(directory_at(tmp_path), "other", 1 << 42)
    assert "cannot be aborted" in caplog.text
    log.unlink()
    begin_transactional_id(directory_at(tmp_path), "other", 1 << 42)


def test_log_that_is_closed_within_a_transaction_has_it_in_its_snapshot(tmp_path: Path) -> None:
    with OpenLogs(directory_at(tmp_path), CONFIG) as logs:
        with transaction(tmp_path, "one", logs=logs) as writer:
            writer.append("events", 0, table("committed"))
        writer = TransactionalWriter.open(tmp_path, "one", logs=logs)
        writer.begin()
        writer.append("events", 0, table("a", "b"))
        writer.append("events", 0, table("c"))
    offset, path = snapshots_of(folder_at(tmp_path / "events-0"))[0]
    entry = Producers.parse(Path(path).read_bytes(), path).entries[writer.producer_id]
    assert (offset, entry.first_offset, entry.epoch, entry.last_sequence) == (5, 2, writer.producer_epoch, 2)
    assert committed(tmp_path) == {"events-0": ["committed"]}


def test_transaction_is_committed_at_the_end_of_its_block_and_aborted_by_an_error(tmp_path: Path) -> None:
    with suppress(ZeroDivisionError), transaction(tmp_path, "one") as writer:
        writer.append("events", 0, table("never"))
        raise ZeroDivisionError
    with transaction(tmp_path, "one") as writer:
        assert writer.append("events", 0, table("seen", "too")) == (2, 3)
        assert committed(tmp_path) == {}
        writer.append("events", 0, table("as well"))
    assert committed(tmp_path) == {"events-0": ["seen", "too", "as well"]}
    with transaction(tmp_path, "one") as writer:
        writer.append("events", 0, table("taken back"))
        writer.abort()
    with transaction(tmp_path, "one"):
        pass
    assert committed(tmp_path) == {"events-0": ["seen", "too", "as well"]}
    assert all_stable(tmp_path)


def test_wrong_use_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="a transactional id is a text that is not empty"):
        TransactionalWriter.open(tmp_path, "")
    with pytest.raises(InvalidOptionError, match="timeout_ms is at least 1"):
        TransactionalWriter.open(tmp_path, "one", timeout_ms=0)
    with TransactionalWriter.open(tmp_path, "one") as writer:
        with pytest.raises(InvalidTransactionStateError, match="no transaction of 'one' has begun"):
            writer.append("events", 0, table("a"))
        with pytest.raises(InvalidTransactionStateError, match="no transaction of 'one' has begun"):
            writer.commit()
        writer.begin()
        with pytest.raises(InvalidTransactionStateError, match="has begun already"):
            writer.begin()
        with pytest.raises(InvalidOptionError, match="not a topic's name"):
            writer.append("a/b", 0, table("a"))
    with pytest.raises(InvalidTransactionStateError, match="is closed"):
        writer.begin()


def test_log_that_another_has_open_is_not_written_to(tmp_path: Path) -> None:
    with sparklog.PartitionLog.open(tmp_path / "events-0"), TransactionalWriter.open(tmp_path, "one") as writer:
        writer.begin()
        writer.append("events", 1, table("a"))
        with pytest.raises(LockedError, match="is open in this process already"):
            writer.append("events", 0, table("a"))
        writer.append("events", 1, table("b"))
        writer.abort()
    with transaction(tmp_path, "one") as writer:
        writer.append("events", 0, table("a"))
    assert committed(tmp_path) == {"events-0": ["a"]}


def test_commit_that_fails_anywhere_says_what_is_visible(tmp_path: Path) -> None:
    """It was decided, or it can be repeated, or it can only be aborted, since the logs could not be synced."""
    expected_values, outcomes = ["before"], set()
    with transaction(tmp_path, "one") as writer:
        writer.append("events", 0, table("before"))
    for fail_at in range(1, 200):
        storage = FailingStorage(tmp_path, fail_at=1 << 30, is_full=False)
        writer = TransactionalWriter.open(tmp_path, "one", storage=storage)
        writer.begin()
        writer.append("events", 0, table(str(fail_at)))
        storage._fail_at = len(storage.calls) + fail_at
        with suppress(StorageError):
            writer.commit()
        has_failed, storage._fail_at = storage.has_failed, 1 << 30
        if writer._must_abort:
            with pytest.raises(InvalidTransactionStateError, match="can only be aborted"):
                writer.commit()
            writer.abort()
            outcomes.add("aborted")
            continue
        expected_values.append(str(fail_at))
        if writer.in_transaction:
            writer.commit()
            outcomes.add("repeated")
        else:
            outcomes.add("done" if writer._is_open else "decided")
        writer.close()
        if not has_failed:
            break
    with transaction(tmp_path, "one"):
        pass
    assert outcomes == {"aborted", "repeated", "decided", "done"}
    assert committed(tmp_path)["events-0"] == expected_values
    assert all_stable(tmp_path)


def test_other_writes_see_nothing_of_an_open_transaction(tmp_path: Path) -> None:
    write(tmp_path, [rows(["old"], partition=[0])])
    with OpenLogs(directory_at(tmp_path), LogConfig()) as logs:
        writer = TransactionalWriter.open(tmp_path, "one", logs=logs)
        writer.begin()
        writer.append("events", 0, table("open"))
    write(tmp_path, [rows(["behind"], partition=[0])])
    assert committed(tmp_path) == {"events-0": ["old"]}
    with transaction(tmp_path, "one"):
        pass
    assert committed(tmp_path) == {"events-0": ["old", "behind"]}
