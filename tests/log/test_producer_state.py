"""What producers have in flight, compared with what brokers wrote down, and the rules of idempotence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidProducerEpochError, InvalidTransactionStateError, OutOfOrderSequenceError
from sparklog.log.files import TRANSACTION_INDEX
from sparklog.log.index import TRANSACTION_ENTRY, read_entries
from sparklog.log.layout import list_segments, read_layout
from sparklog.log.producer_state import (
    PRODUCER_EXPIRATION_MS,
    AbortedTransaction,
    ProducerBatch,
    ProducerEntry,
    Producers,
    encode_aborted,
    plus,
    producers_at_end,
)
from sparklog.log.producers import snapshots_of
from sparklog.log.segment import Place
from sparklog.storage.local import LocalStorage
from tests.golden import golden_sets
from tests.log import logs

LAST = (1 << 31) - 1
STORAGE = LocalStorage()


def golden_folders() -> list[Path]:
    return [
        golden.partition_dir(topic, partition)
        for golden in golden_sets()
        for topic, partition in golden.partitions
        if golden.partition_dir(topic, partition).is_dir()
    ]


def batch(first: int, last: int, epoch: int = 0, **fields: int | bool) -> ProducerBatch:
    return replace(ProducerBatch(7, epoch, first, last), **fields)  # type: ignore[arg-type]


def after(*batches: ProducerBatch) -> Producers:
    producers = Producers()
    for each in batches:
        producers.fold_batch(each)
    return producers


def test_snapshots_of_brokers_are_encoded_as_they_are() -> None:
    """But for the order of producers, which is that of a hash map there."""
    compared = 0
    for folder in golden_folders():
        for _, path in snapshots_of(STORAGE, str(folder)):
            data = Path(path).read_bytes()
            producers = Producers.parse(data, path)
            again = producers.encode()
            assert sorted(entries(again)) == sorted(entries(data)), path
            assert Producers.parse(again, path) == producers
            compared += len(producers.entries)
    assert compared > 10


def entries(snapshot: bytes) -> list[bytes]:
    return [snapshot[at : at + 46] for at in range(10, len(snapshot), 46)]


def test_state_folded_from_the_log_is_what_brokers_wrote_down() -> None:
    """Where the log still has all of its batches, and nothing was cleaned."""
    compared = 0
    for folder in golden_folders():
        layout = read_layout(str(folder))
        if layout.start_offset or "compacted" in folder.name or folder.name.startswith("__"):
            continue
        for offset, path in snapshots_of(STORAGE, str(folder)):
            folded = Producers()
            if not 0 < offset <= layout.end_offset:
                continue
            until = replace(layout, end=Place(0, offset))
            for segment in until.segments:
                with segment.open() as log:
                    for window in log.windows(log.start):
                        headers = window.headers.where(window.headers.column("last_offset") < offset)
                        folded.fold(replace(window, headers=headers))
            written = Producers.parse(Path(path).read_bytes(), path)
            # A broker forgets those that have been idle for a day when it starts; the times of these are long ago.
            assert set(entries(written.encode())) <= set(entries(folded.encode())), path
            compared += len(written.entries)
    assert compared > 10


def test_aborted_transactions_are_those_of_the_brokers_indexes() -> None:
    compared = 0
    for folder in golden_folders():
        if "compacted" in folder.name or not list(folder.glob("*.txnindex")):
            continue
        producers = Producers()
        for segment in list_segments(STORAGE, str(folder)):
            aborted: list[AbortedTransaction] = []
            with segment.open() as log:
                for window in log.windows(log.start):
                    aborted += producers.fold(window)
            path = segment.path(TRANSACTION_INDEX)
            if Path(path).exists():
                with STORAGE.open(path) as index:
                    assert encode_aborted(aborted) == read_entries(index, TRANSACTION_ENTRY).tobytes(), path
                compared += len(aborted)
    assert compared > 0


def test_state_at_the_end_is_that_of_the_last_snapshot_and_what_followed(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    producer = {"producer_id": 7, "producer_epoch": 0}
    sent = [logs.batch(0, 5, base_sequence=0, **producer), logs.batch(5, 5, base_sequence=5, **producer)]
    (folder / "00000000000000000000.log").write_bytes(b"".join(sent))
    other = Producers({9: ProducerEntry(3, timestamp=1)})
    (folder / "00000000000000000005.snapshot").write_bytes(other.encode())
    found = producers_at_end(read_layout(str(folder))).entries
    assert found[9] == other.entries[9]
    assert [each.base_offset for each in found[7].batches] == [5]
    (folder / "00000000000000000005.snapshot").write_bytes(other.encode()[:-1])
    found = producers_at_end(read_layout(str(folder))).entries
    assert [each.base_offset for each in found[7].batches] == [0, 5]


@given(st.integers(0, LAST), st.integers(0, 1 << 20))
def test_sequence_begins_again_after_the_largest(sequence: int, count: int) -> None:
    assert plus(sequence, count) == (sequence + count) % (1 << 31)


def test_next_batch_follows_the_last() -> None:
    producers = after(batch(0, 9))
    producers.check(batch(10, 12))
    for wrong in (9, 11, 0):
        with pytest.raises(OutOfOrderSequenceError, match="must go on with sequence 10"):
            producers.check(batch(wrong, wrong))
    after(batch(LAST - 3, LAST)).check(batch(0, 0))
    after(batch(LAST - 3, 1)).check(batch(2, 2))


def test_unknown_producer_may_begin_anywhere_and_a_new_epoch_at_0_only() -> None:
    Producers().check(batch(500, 500))
    producers = after(batch(0, 9, epoch=1))
    producers.check(batch(0, 0, epoch=2))
    with pytest.raises(OutOfOrderSequenceError, match="must go on with sequence 0"):
        producers.check(batch(10, 10, epoch=2))
    with pytest.raises(InvalidProducerEpochError, match="epoch 0, and has written with epoch 1: it is fenced"):
        producers.check(batch(10, 10, epoch=0))


def test_last_five_batches_are_known_again() -> None:
    batches = [batch(n * 2, n * 2 + 1, base_offset=n * 2, last_offset=n * 2 + 1) for n in range(6)]
    producers = after(*batches)
    assert producers.duplicate_of(batch(0, 1)) is None
    for old in batches[1:]:
        assert producers.duplicate_of(replace(old, base_offset=-1, last_offset=-1)) == old
    assert producers.duplicate_of(batch(2, 2)) is None
    assert producers.duplicate_of(batch(2, 3, epoch=1)) is None


def test_record_outside_of_an_open_transaction_is_refused() -> None:
    producers = after(batch(0, 0, is_transactional=True, base_offset=3, last_offset=3))
    assert producers.first_unstable_offset == 3
    producers.check(batch(1, 1, is_transactional=True))
    with pytest.raises(InvalidTransactionStateError, match="open since offset 3"):
        producers.check(batch(1, 1))


def test_producer_that_is_idle_too_long_is_forgotten_unless_its_transaction_is_open() -> None:
    now_ms = 10 * PRODUCER_EXPIRATION_MS
    idle = now_ms - PRODUCER_EXPIRATION_MS
    known = {1: ProducerEntry(0, timestamp=idle), 2: ProducerEntry(0, timestamp=idle + 1)}
    known |= {3: ProducerEntry(0, timestamp=idle, first_offset=5)}
    assert set(Producers(known).without_expired(now_ms).entries) == {2, 3}
