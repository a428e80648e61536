"""Committed offsets of groups: consumers and transactions commit them, and none is put back by an older one."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from sparklog.errors import CorruptCheckpointError, InvalidOptionError
from sparklog.log.files import GROUP_OFFSETS, JOURNAL, TopicPartition
from sparklog.log.group_offsets import (
    NO_OFFSET,
    CommittedOffsets,
    GroupOffsets,
    OffsetCommit,
    StoredOffsets,
    parse_group_offsets,
)
from sparklog.log.journal import Journal, parse_journal, pending
from sparklog.log.places import LogDirectory
from sparklog.write.group_offsets import commit_group_offsets, next_transaction, read_group_offsets
from sparklog.write.journal import apply_journal, write_journal
from tests.places import directory_at
from tests.storage.crash import CrashingStorage, crashes

EVENTS, OTHER, THIRD = (TopicPartition("events", number) for number in range(3))
NOW_MS = 1_700_000_000_000


def at(offset: int, timestamp: int = NOW_MS) -> OffsetCommit:
    return OffsetCommit(offset, "", timestamp)


def decide(directory: LogDirectory, offsets: dict[TopicPartition, OffsetCommit], group: str = "g") -> Journal:
    """Decide a transaction that commits offsets, and die."""
    journal = Journal("1", {}, (), offsets=next_transaction(directory, {group: offsets}))
    write_journal(directory, journal)
    return journal


def test_commits_are_added_to_those_that_are_there(tmp_path: Path) -> None:
    directory = directory_at(tmp_path)
    assert read_group_offsets(directory) == {}
    commit_group_offsets(directory, "g", {EVENTS: OffsetCommit(1, "", 5), OTHER: OffsetCommit(2, "note", 6)})
    commit_group_offsets(directory, "ü/g", {EVENTS: OffsetCommit(3, "", 7)})
    commit_group_offsets(directory, "g", {EVENTS: OffsetCommit(4, "", 8)})
    assert read_group_offsets(directory) == {
        "g": {EVENTS: (4, "", 8), OTHER: (2, "note", 6)},
        "ü/g": {EVENTS: (3, "", 7)},
    }


def test_commits_of_threads_lose_nothing(tmp_path: Path) -> None:
    directory = directory_at(tmp_path)

    def commit(number: int) -> None:
        for n in range(5):
            commit_group_offsets(directory, f"g{number}", {EVENTS: OffsetCommit(n, "", 0)})

    threads = [threading.Thread(target=commit, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_group_offsets(directory) == {f"g{number}": {EVENTS: (4, "", 0)} for number in range(6)}


def seen(directory: LogDirectory) -> GroupOffsets:
    """Return what a consumer of a group would go on from."""
    return read_group_offsets(directory, with_decided=True)


def test_offsets_of_a_decided_transaction_are_visible_with_its_records(tmp_path: Path) -> None:
    directory = directory_at(tmp_path)
    commit_group_offsets(directory, "g", {EVENTS: at(1), OTHER: at(1)})
    decide(directory, {EVENTS: at(5), THIRD: at(6)})
    assert read_group_offsets(directory) == {"g": {EVENTS: at(1), OTHER: at(1)}}
    after = {"g": {EVENTS: at(5), OTHER: at(1), THIRD: at(6)}}
    assert seen(directory) == after
    # Another's commit puts them into the file, and makes them no more visible than they were.
    commit_group_offsets(directory, "h", {EVENTS: at(9)})
    visible = read_group_offsets(directory)
    assert visible == {"g": {EVENTS: at(1), OTHER: at(1), THIRD: (NO_OFFSET, "", 0)}, "h": {EVENTS: at(9)}}
    apply_journal(directory)
    assert not (tmp_path / JOURNAL).exists()
    assert read_group_offsets(directory) == seen(directory) == {**after, "h": {EVENTS: at(9)}}


def test_offsets_are_not_visible_before_the_last_step_that_carries_a_transaction_out(tmp_path: Path) -> None:
    def prepare(folder: Path) -> None:
        commit_group_offsets(directory_at(folder), "g", {EVENTS: at(1)})
        decide(directory_at(folder), {EVENTS: at(5)})

    def run(storage: CrashingStorage, folder: Path) -> None:
        apply_journal(directory_at(folder, storage))

    offsets = set()
    for crash in crashes(prepare, run, tmp_path):
        offset = read_group_offsets(directory_at(crash.folder))["g"][EVENTS].offset
        assert (offset == 1) == (crash.folder / JOURNAL).exists(), str(crash)
        assert seen(directory_at(crash.folder))["g"][EVENTS] == at(5), str(crash)
        offsets.add(offset)
    assert offsets == {1, 5}


def test_transaction_counts_behind_a_file_of_before_the_last_one_was_lost(tmp_path: Path) -> None:
    """Old copies have seen many transactions, and the file that was made anew few."""
    directory = directory_at(tmp_path)
    for offset in range(3):
        decide(directory, {EVENTS: at(offset, NOW_MS + offset)})
        apply_journal(directory)
    old = (tmp_path / GROUP_OFFSETS).read_bytes()
    (tmp_path / GROUP_OFFSETS).unlink()
    decide(directory, {EVENTS: at(7, NOW_MS + 10)})
    (tmp_path / GROUP_OFFSETS).write_bytes(old)
    assert seen(directory)["g"][EVENTS].offset == 7
    apply_journal(directory)
    assert read_group_offsets(directory)["g"][EVENTS].offset == 7


def test_time_of_a_commit_is_not_before_that_of_the_one_it_replaces(tmp_path: Path) -> None:
    directory = directory_at(tmp_path)
    for offset, time_ms in ((1, 500), (2, 400), (3, 600)):
        commit_group_offsets(directory, "g", {EVENTS: at(offset, time_ms)})
        assert read_group_offsets(directory)["g"][EVENTS] == at(offset, max(500, time_ms))


@pytest.mark.parametrize(
    ("group", "partition", "commit"),
    [
        ("g", ("events", None), at(1)),
        ("g", ("events", 1.5), at(1)),
        ("g", ("events", True), at(1)),
        ("g", ("events", "a/b"), at(1)),
        ("g", ("events", -1), at(1)),
        ("g", ("events", 1 << 31), at(1)),
        ("g", ("a/b", 0), at(1)),
        ("g", (None, 0), at(1)),
        ("g", EVENTS, at(1 << 70)),
        ("g", EVENTS, at(-2)),
        ("g", EVENTS, at(True)),
        ("g", EVENTS, at(1, -1)),
        ("g", EVENTS, at(1, 1 << 63)),
        ("g", EVENTS, OffsetCommit(1, 5, NOW_MS)),  # type: ignore[arg-type]
        ("g", EVENTS, OffsetCommit(1, "\udc80", NOW_MS)),
        (None, EVENTS, at(1)),
        ("\udc80", EVENTS, at(1)),
    ],
)
def test_commit_that_could_not_be_read_again_is_refused_and_nothing_is_written(
    tmp_path: Path, group: Any, partition: Any, commit: OffsetCommit
) -> None:
    directory = directory_at(tmp_path)
    commit_group_offsets(directory, "g", {OTHER: at(1)})
    offsets = {TopicPartition(*partition): commit, OTHER: at(2)}
    with pytest.raises(InvalidOptionError, match="nothing was committed"):
        commit_group_offsets(directory, group, offsets)
    with pytest.raises(InvalidOptionError, match="nothing was committed"):
        next_transaction(directory, {group: offsets})
    assert read_group_offsets(directory) == {"g": {OTHER: at(1)}}


@pytest.mark.parametrize("time_ms", [NO_OFFSET, 1.0, True, 1 << 63, 1e30, None])
@pytest.mark.parametrize("offset", [5, -2, 1 << 63, 1e30, False])
def test_file_with_a_number_that_is_none_is_refused(offset: object, time_ms: object) -> None:
    data = json.dumps({"version": 1, "groups": {"g": {"events": {"0": [offset, "", time_ms]}}}})
    with pytest.raises(CorruptCheckpointError, match="committed offsets"):
        parse_group_offsets(data.encode(), GROUP_OFFSETS)


@pytest.mark.parametrize("clock_ms", [NOW_MS - 60_000, NOW_MS, NOW_MS + 60_000], ids=["went back", "stood", "went on"])
def test_journal_that_is_carried_out_late_puts_back_nothing(tmp_path: Path, clock_ms: int) -> None:
    """Whatever the clock says: a consumer's commit behind the transaction's is the newer one."""
    directory = directory_at(tmp_path)
    journal = decide(directory, {EVENTS: at(5), OTHER: at(6)})
    commit_group_offsets(directory, "g", {EVENTS: at(7, clock_ms)})
    commit_group_offsets(directory, "h", {EVENTS: at(1, clock_ms)})
    time_ms = max(NOW_MS, clock_ms)
    expected = {"g": {EVENTS: at(7, time_ms), OTHER: at(6)}, "h": {EVENTS: at(1, clock_ms)}}
    assert seen(directory) == expected
    apply_journal(directory)
    assert read_group_offsets(directory) == expected
    # Once more, as after a crash that left the journal.
    write_journal(directory, journal)
    assert seen(directory) == expected
    apply_journal(directory)
    assert read_group_offsets(directory) == expected
    decide(directory, {EVENTS: at(3, clock_ms)})
    assert seen(directory)["g"] == {EVENTS: at(3, time_ms), OTHER: at(6)}


def test_commit_beside_a_pending_transaction_that_stops_anywhere_loses_neither(tmp_path: Path) -> None:
    def prepare(folder: Path) -> None:
        decide(directory_at(folder), {EVENTS: at(5), OTHER: at(6)})

    def run(storage: CrashingStorage, folder: Path) -> None:
        directory = directory_at(folder, storage)
        commit_group_offsets(directory, "g", {EVENTS: at(7), THIRD: at(1)})
        apply_journal(directory)
        commit_group_offsets(directory, "g", {OTHER: at(9)})

    of_transaction = {EVENTS: at(5), OTHER: at(6)}
    steps = [of_transaction, {**of_transaction, EVENTS: at(7), THIRD: at(1)}]
    steps.append({**steps[-1], OTHER: at(9)})
    found = []
    for crash in crashes(prepare, run, tmp_path):
        directory = directory_at(crash.folder)
        committed = seen(directory)["g"]
        assert committed in steps, str(crash)
        apply_journal(directory)
        assert read_group_offsets(directory)["g"] == committed, str(crash)
        found.append(steps.index(dict(committed)))
    assert set(found) == {0, 1, 2}


def test_reader_whom_a_transaction_overtakes_does_not_mix_old_and_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the file of before, and then finds the journal of the next transaction but one."""
    directory, look = directory_at(tmp_path), pending
    decide(directory, {EVENTS: at(1), OTHER: at(1)})
    overtaken = [2, 3]

    def overtaking(place: LogDirectory) -> Journal | None:
        if overtaken:
            offset = overtaken.pop(0)
            apply_journal(directory)
            decide(directory, {EVENTS: at(offset)})
        return look(place)

    monkeypatch.setattr("sparklog.write.group_offsets.pending", overtaking)
    assert read_group_offsets(directory) == {"g": {EVENTS: at(2), OTHER: at(1)}}


def test_file_is_read_as_it_was_written() -> None:
    groups = {"g": {EVENTS: OffsetCommit(1, "ü", 2), OTHER: at(3)}}
    for offsets in (CommittedOffsets(), CommittedOffsets(groups, 7), CommittedOffsets(groups, 7, groups)):
        found = parse_group_offsets(data := offsets.to_json("made"), GROUP_OFFSETS)
        assert found == StoredOffsets(offsets, "made", len(data))
        journal = Journal("1", {}, (), offsets=offsets)
        assert parse_journal(journal.to_json(), JOURNAL) == journal


def test_file_of_before_transactions_is_read() -> None:
    data = b'{"version": 1, "groups": {"g": {"events": {"0": [4, "m", 8]}}}}'
    groups = {"g": {EVENTS: OffsetCommit(4, "m", 8)}}
    assert parse_group_offsets(data, GROUP_OFFSETS) == StoredOffsets(CommittedOffsets(groups))


@pytest.mark.parametrize("transactions", [-1, True, 1.5, "1", None])
def test_number_of_transactions_that_is_none_is_refused(transactions: object) -> None:
    data = json.dumps({"version": 1, "groups": {}, "transactions": transactions}).encode()
    with pytest.raises(CorruptCheckpointError, match="not a number of transactions"):
        parse_group_offsets(data, GROUP_OFFSETS)


def test_file_cut_anywhere_is_refused() -> None:
    data = CommittedOffsets({"g": {EVENTS: at(1)}}, 7).to_json("made")
    for cut in range(len(data)):
        with pytest.raises(CorruptCheckpointError):
            parse_group_offsets(data[:cut], GROUP_OFFSETS)


def test_damaged_file_is_not_replaced_by_a_transaction(tmp_path: Path) -> None:
    directory = directory_at(tmp_path)
    decide(directory, {EVENTS: at(5)})
    (tmp_path / GROUP_OFFSETS).write_bytes(b"{")
    for call in (apply_journal, read_group_offsets, lambda place: next_transaction(place, {"g": {EVENTS: at(6)}})):
        with pytest.raises(CorruptCheckpointError, match=r"seglog\.offsets"):
            call(directory)
    assert (tmp_path / GROUP_OFFSETS).read_bytes() == b"{"
    assert (tmp_path / JOURNAL).exists()
