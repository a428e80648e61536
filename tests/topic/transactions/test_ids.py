"""What is known of transactional ids: epochs, producer ids, and the file that keeps them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparklog
from sparklog.errors import CorruptCheckpointError, InvalidProducerEpochError
from sparklog.log.files import ADDED_PARTITIONS, TRANSACTIONAL_IDS
from sparklog.record.batches.producer_stamps import TransactionProducer
from sparklog.topic.transactions.coordinators import first_transactional_ids
from sparklog.topic.transactions.ids import (
    EPOCH_MAX,
    EXPIRATION_MS,
    PRODUCER_IDS_FROM,
    PRODUCER_IDS_UNTIL,
    TransactionalIds,
    add_partitions,
    read_transactional_ids,
    replace_ids,
    stored_ids,
)
from sparklog.write.small_files import write_atomically
from tests.golden import golden_set
from tests.places import directory_at
from tests.storage.memory import MemoryStorage
from tests.system.logs import put, write_log

FIRST = PRODUCER_IDS_FROM + 100


def test_each_start_and_each_end_take_the_next_epoch() -> None:
    ids = TransactionalIds(FIRST).begun("a", 60_000, 1)
    assert ids.ids["a"].producer == (FIRST, 0)
    ids = ids.opened("a", 2).opened("a", 3, ["t-0", "t-1"]).opened("a", 4, ["t-0"])
    assert (ids.ids["a"].is_open, ids.ids["a"].partitions, ids.ids["a"].start_ms) == (True, ("t-0", "t-1"), 2)
    ids = ids.ended("a", 5, is_abort=True)
    assert (ids.ids["a"].producer, ids.ids["a"].state) == ((FIRST, 1), "CompleteAbort")
    assert ids.begun("a", 60_000, 6).ids["a"].producer == (FIRST, 2)
    assert ids.begun("b", 60_000, 6).ids["b"].producer == (FIRST + 1, 0)


def test_new_producer_follows_the_last_epoch() -> None:
    ids = TransactionalIds(FIRST).begun("a", 60_000, 0)
    for _ in range(EPOCH_MAX):
        ids = ids.begun("a", 60_000, 0)
    assert ids.ids["a"].producer == (FIRST, EPOCH_MAX)
    assert ids.begun("a", 60_000, 0).ids["a"].producer == (FIRST + 1, 0)
    assert ids.ended("a", 0, is_abort=False).ids["a"].producer == (FIRST + 1, 0)


def test_producer_of_an_earlier_start_is_fenced() -> None:
    ids = TransactionalIds(FIRST).begun("a", 60_000, 0).begun("a", 60_000, 0)
    assert ids.checked("a", TransactionProducer(FIRST, 1)).producer_epoch == 1
    for name, producer in (("a", TransactionProducer(FIRST, 0)), ("gone", TransactionProducer(FIRST, 0))):
        with pytest.raises(InvalidProducerEpochError, match=f"'{name}' was started with .* it is fenced"):
            ids.checked(name, producer)


def test_idle_transactional_ids_are_forgotten_and_open_ones_are_not() -> None:
    ids = TransactionalIds(FIRST).begun("idle", 60_000, 0).begun("open", 60_000, 0).opened("open", 0, ["t-0"])
    assert set(ids.begun("a", 60_000, EXPIRATION_MS).ids) == {"open", "a"}
    assert set(ids.begun("a", 60_000, EXPIRATION_MS - 1).ids) == {"idle", "open", "a"}


@given(st.dictionaries(st.text(min_size=1), st.lists(st.sampled_from(["t-0", "ü-1"]), max_size=2)))
def test_file_is_read_as_it_was_written(names: dict[str, list[str]]) -> None:
    ids = TransactionalIds(FIRST)
    for number, (name, folders) in enumerate(names.items()):
        ids = ids.begun(name, 1 + number, number)
        for folder in folders:
            ids = ids.opened(name, number, [folder])
    assert _reread(ids.encode()) == ids


def _reread(data: bytes) -> TransactionalIds | None:
    storage = MemoryStorage()
    with storage.open_for_append(f"/{TRANSACTIONAL_IDS}") as file:
        file.append(data)
    return read_transactional_ids(directory_at("/", storage))


SOUND = json.loads(TransactionalIds(FIRST).begun("a", 60_000, 1).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"version": 3},
        {"next_producer_id": -1},
        {"next_producer_id": "7"},
        {"transactional_ids": []},
        {"transactional_ids": {"a": {}}},
        {"transactional_ids": {"a": {**SOUND["transactional_ids"]["a"], "producer_epoch": 32_767}}},
        {"transactional_ids": {"a": {**SOUND["transactional_ids"]["a"], "state": "Sleeping"}}},
    ],
    ids=str,
)
def test_damaged_file_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    for data in (json.dumps({**SOUND, **change}).encode(), TransactionalIds(FIRST).encode()[:-1], b"\xff"):
        (tmp_path / TRANSACTIONAL_IDS).write_bytes(data)
        with pytest.raises(CorruptCheckpointError, match="transactional ids"):
            read_transactional_ids(directory_at(tmp_path))
        with pytest.raises(CorruptCheckpointError):
            sparklog.TransactionalWriter.open(tmp_path, "a")


def test_file_of_an_earlier_version_is_read_and_followed_by_a_journal(tmp_path: Path) -> None:
    ids = TransactionalIds(FIRST).begun("a", 60_000, 1).opened("a", 2, ["t-0"])
    data = ids.encode().replace(b'"version": 2', b'"version": 1')
    assert data != ids.encode()
    (tmp_path / TRANSACTIONAL_IDS).write_bytes(data)
    assert read_transactional_ids(directory_at(tmp_path)) == ids


def journal(folder: Path, *lines: tuple[TransactionProducer, list[str]]) -> Path:
    """Add partitions to transactions, and return the path of the journal."""
    for producer, folders in lines:
        add_partitions(directory_at(folder), producer, folders, stored_ids(directory_at(folder))[1])
    return folder / ADDED_PARTITIONS


def test_added_partitions_count_for_the_open_transaction_of_their_producer_and_epoch(tmp_path: Path) -> None:
    ids = TransactionalIds(FIRST).begun("a", 60_000, 1).begun("b", 60_000, 1).begun("c", 60_000, 1)
    ids = ids.opened("a", 2, ["t-0"]).opened("b", 2, ["t-0"])
    directory = directory_at(tmp_path)
    replace_ids(directory, ids)
    (a, b, c), old = (ids.ids[name].producer for name in "abc"), TransactionProducer(FIRST, 7)
    journal(tmp_path, (a, ["t-1"]), (b, ["t-2", "t-0"]), (old, ["t-3"]), (a, ["t-4"]), (c, ["t-5"]))

    def partitions() -> dict[str, tuple[str, ...]]:
        found = read_transactional_ids(directory)
        assert found is not None
        return {name: each.partitions for name, each in found.ids.items()}

    assert partitions() == {"a": ("t-0", "t-1", "t-4"), "b": ("t-0", "t-2"), "c": ()}
    # The end of a transaction is written by a commit, which does not know of the journal.
    whole = read_transactional_ids(directory)
    assert whole is not None
    write_atomically(directory, TRANSACTIONAL_IDS, whole.ended("a", 3, is_abort=True).encode())
    assert partitions() == {"a": (), "b": ("t-0", "t-2"), "c": ()}
    after = read_transactional_ids(directory)
    assert after is not None
    replace_ids(directory, after.opened("a", 4, ["t-6"]))
    assert partitions() == {"a": ("t-6",), "b": ("t-0", "t-2"), "c": ()}
    assert not (tmp_path / ADDED_PARTITIONS).exists()


def test_line_that_a_crash_tore_is_not_there_and_the_next_addition_cuts_it_off(tmp_path: Path) -> None:
    ids = TransactionalIds(FIRST).begun("a", 60_000, 1).opened("a", 2, ["t-0"])
    directory, producer = directory_at(tmp_path), ids.ids["a"].producer
    replace_ids(directory, ids)
    whole = journal(tmp_path, (producer, ["t-1"]), (producer, ["t-2"])).read_bytes()
    first, second = whole.splitlines(keepends=True)
    for rest in (second[:-1], second[:20], b"\0" * 30, second[:9] + b"\0" * (len(second) - 10) + b"\n"):
        (tmp_path / ADDED_PARTITIONS).write_bytes(first + rest)
        assert stored_ids(directory)[1].of == {producer: ("t-1",)}
        journal(tmp_path, (producer, ["t-3"]))
        assert stored_ids(directory)[1].of == {producer: ("t-1", "t-3")}
        assert (tmp_path / ADDED_PARTITIONS).read_bytes().startswith(first)


def test_flipped_bit_of_a_line_is_an_error_that_names_its_position(tmp_path: Path) -> None:
    ids = TransactionalIds(FIRST).begun("a", 60_000, 1).opened("a", 2, ["t-0"])
    directory, producer = directory_at(tmp_path), ids.ids["a"].producer
    replace_ids(directory, ids)
    whole = journal(tmp_path, (producer, ["t-1"]), (producer, ["t-2"])).read_bytes()
    start = whole.index(b"\n") + 1
    for position in range(0, len(whole) - 1, 3):
        # Lines that a process has read, it does not read again.
        other = tmp_path / str(position)
        other.mkdir()
        (other / TRANSACTIONAL_IDS).write_bytes(ids.encode())
        flipped = bytearray(whole)
        flipped[position] ^= 4
        (other / ADDED_PARTITIONS).write_bytes(flipped)
        with pytest.raises(CorruptCheckpointError, match="added partitions") as caught:
            read_transactional_ids(directory_at(other))
        assert caught.value.position == (0 if position < start else start)
        with pytest.raises(CorruptCheckpointError):
            sparklog.TransactionalWriter.open(other, "a")
        assert (other / ADDED_PARTITIONS).read_bytes() == flipped


def test_first_producer_id_is_a_random_one_of_our_range(tmp_path: Path) -> None:
    found = [first_transactional_ids(directory_at(tmp_path)).next_producer_id for _ in range(20)]
    assert len(set(found)) == len(found)
    assert all(PRODUCER_IDS_FROM <= each < PRODUCER_IDS_UNTIL for each in found)
    largest = first_transactional_ids(directory_at(tmp_path), lambda: (1 << 42) - 1).next_producer_id
    assert largest < PRODUCER_IDS_UNTIL - 500


def test_first_producer_id_is_above_those_that_logs_and_coordinators_have(tmp_path: Path) -> None:
    directory = directory_at(tmp_path)
    assert first_transactional_ids(directory, lambda: 0).next_producer_id == PRODUCER_IDS_FROM
    with sparklog.PartitionLog.open(tmp_path / "t-0") as log:
        log.append({"value": [b""]}, producer_id=FIRST, producer_epoch=0, base_sequence=0)
    assert first_transactional_ids(directory, lambda: 0).next_producer_id == FIRST + 1
    value = {"producerId": FIRST + 5, "transactionPartitions": []}
    write_log(tmp_path / "__transaction_state-0", [put("TransactionLog", {"transactionalId": "a"}, value, 1)])
    assert first_transactional_ids(directory, lambda: 0).next_producer_id == FIRST + 6
    # Those of a cluster are far below.
    golden = directory_at(golden_set("v2-internal").log_dir)
    assert first_transactional_ids(golden, lambda: 0).next_producer_id == PRODUCER_IDS_FROM
