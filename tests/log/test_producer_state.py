"""What producers have in flight, compared with what brokers wrote down, and the rules of idempotence."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import (
    CorruptCheckpointError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    SeglogError,
)
from sparklog.log.files import TRANSACTION_INDEX
from sparklog.log.index import TRANSACTION_ENTRY, read_entries
from sparklog.log.layout import read_layout
from sparklog.log.producer_snapshots import producers_at_end, snapshots_of
from sparklog.log.producer_state import (
    PRODUCER_EXPIRATION_MS,
    AbortedTransaction,
    ProducerBatch,
    Producers,
    encode_aborted,
    plus,
    producer_batches,
)
from sparklog.log.producer_state import ProducerEntry as Entry
from sparklog.log.segment_listing import list_segments
from sparklog.log.windows import Window
from sparklog.record.batches.framing import scan_headers
from sparklog.storage.local import LocalStorage
from tests.build import ProducerEntry, control_batch, empty_batch, producer_snapshot, producer_snapshot_name
from tests.golden import golden_set, golden_sets
from tests.log import logs
from tests.log.logs import idempotent
from tests.places import folder_at

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
    made = ProducerBatch(producer_id=7, producer_epoch=epoch, base_sequence=first, last_sequence=last)
    return replace(made, **fields)  # type: ignore[arg-type]


def after(*batches: ProducerBatch) -> Producers:
    producers = Producers()
    for each in batches:
        producers.fold_batch(each)
    return producers


def window(*batches: bytes) -> Window:
    data = b"".join(batches)
    return Window(memoryview(data), scan_headers(data))


def folded(*batches: bytes) -> Producers:
    producers = Producers()
    producers.fold(window(*batches))
    return producers


# What brokers wrote


def test_snapshots_of_brokers_are_encoded_byte_for_byte() -> None:
    compared = 0
    for folder in golden_folders():
        for _, path in snapshots_of(folder_at(folder)):
            data = Path(path).read_bytes()
            assert Producers.parse(data, path).encode() == data, path
            compared += len(data) > 56
    assert compared > 40


def test_state_folded_from_the_log_is_what_brokers_wrote_down() -> None:
    """Where the log still has all of its batches, and the broker did not forget a producer when it began again."""
    compared = 0
    for folder in golden_folders():
        layout = read_layout(folder_at(folder))
        if layout.start_offset or "compacted" in folder.name or folder.name == "restarted-0":
            continue
        for offset, path in snapshots_of(folder_at(folder)):
            producers = Producers()
            for segment in layout.segments:
                with segment.open() as log:
                    for found in log.windows(log.start):
                        is_before = found.headers.column("last_offset") < offset
                        producers.fold(Window(found.buffer, found.headers.where(is_before)))
            assert producers.encode() == Path(path).read_bytes(), path
            compared += len(producers)
    assert compared > 90


def test_aborted_transactions_are_those_of_the_brokers_indexes() -> None:
    compared = 0
    for folder in golden_folders():
        if "compacted" in folder.name or not list(folder.glob("*.txnindex")):
            continue
        producers = Producers()
        for segment in list_segments(folder_at(folder)):
            aborted: list[AbortedTransaction] = []
            with segment.open() as log:
                for found in log.windows(log.start):
                    aborted += producers.fold(found)
            path = segment.path(TRANSACTION_INDEX)
            if Path(path).exists():
                with STORAGE.open(path) as index:
                    assert encode_aborted(aborted) == read_entries(index, TRANSACTION_ENTRY).tobytes(), path
                compared += len(aborted)
    assert compared > 10


def test_broker_that_begins_again_forgets_who_was_idle_for_a_day(tmp_path: Path) -> None:
    """Its last snapshot has nobody of the one before it, whose producers wrote with the timestamps of long ago."""
    folder = tmp_path / "restarted-0"
    shutil.copytree(golden_set("v2-lifecycle").partition_dir("restarted", 0), folder)
    last = folder / producer_snapshot_name(60)
    written = last.read_bytes()
    last.unlink()
    layout = read_layout(folder_at(folder))
    assert producers_at_end(layout, now_ms=1_795_000_000_000).encode() == written
    assert len(producers_at_end(layout)) == 3


# Snapshots


def test_every_truncation_of_a_snapshot_is_refused() -> None:
    whole = producer_snapshot([ProducerEntry(producer_id=3), ProducerEntry(producer_id=4)])
    assert len(Producers.parse(whole, "x")) == 2
    for cut in range(len(whole)):
        with pytest.raises(CorruptCheckpointError, match="x"):
            Producers.parse(whole[:cut], "x")


def test_every_flipped_bit_of_a_snapshot_is_refused() -> None:
    whole = producer_snapshot([ProducerEntry(producer_id=3)])
    for bit in range(8 * len(whole)):
        wrong = bytearray(whole)
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptCheckpointError, match=r"00\.snapshot"):
            Producers.parse(bytes(wrong), "00.snapshot")


@given(st.lists(st.binary(min_size=46, max_size=46), max_size=4))
def test_snapshot_of_any_bytes_with_a_right_checksum_is_read_and_written_again(entries: list[bytes]) -> None:
    body = struct.pack(">i", len(entries)) + b"".join(entries)
    made = Producers.parse(struct.pack(">hI", 1, crc32c(body)) + body, "x")
    again = Producers.parse(made.encode(), "x")
    assert again.encode() == made.encode()
    assert again.first_unstable_offset == made.first_unstable_offset


def test_producers_are_written_in_the_order_of_javas_hash_map() -> None:
    def order(*producer_ids: int) -> list[int]:
        written = folded(*(idempotent(10 * n, producer_id) for n, producer_id in enumerate(producer_ids))).encode()
        return [struct.unpack_from(">q", written, at)[0] for at in range(10, len(written), 46)]

    assert order(15, 16, 1) == [16, 1, 15]
    assert order(32, 16, 0) == [32, 16, 0]
    assert order(1 << 32, 0x10002, 2) == [1 << 32, 2, 0x10002]
    # With the thirteenth the 16 places become 32.
    assert order(16, *range(1, 12)) == [16, *range(1, 12)]
    assert order(16, *range(1, 13)) == [*range(1, 13), 16]


# The rules, one by one


@given(st.integers(0, LAST), st.integers(0, 1 << 20))
def test_sequence_begins_again_after_the_largest(sequence: int, count: int) -> None:
    assert plus(sequence, count) == (sequence + count) % (1 << 31)


def test_next_batch_follows_the_last() -> None:
    producers = after(batch(0, 9))
    producers.check(batch(10, 12))
    for wrong in (9, 11, 0):
        with pytest.raises(OutOfOrderSequenceError, match="must continue with sequence 10"):
            producers.check(batch(wrong, wrong))
    after(batch(LAST - 3, LAST)).check(batch(0, 0))
    after(batch(LAST - 3, 1)).check(batch(2, 2))


def test_unknown_producer_may_begin_anywhere_and_a_new_epoch_at_0_only() -> None:
    Producers().check(batch(500, 500))
    producers = after(batch(0, 9, epoch=1))
    producers.check(batch(0, 0, epoch=2))
    with pytest.raises(OutOfOrderSequenceError, match="must continue with sequence 0"):
        producers.check(batch(10, 10, epoch=2))
    with pytest.raises(InvalidProducerEpochError, match="epoch 0, and has written with epoch 1: it is fenced"):
        producers.check(batch(10, 10, epoch=0))


def test_last_five_batches_are_known_again_and_the_sixth_last_is_not() -> None:
    batches = [batch(n * 2, n * 2 + 1, base_offset=n * 2, last_offset=n * 2 + 1) for n in range(6)]
    producers = after(*batches)
    assert producers.duplicate_of(batch(0, 1)) is None
    for old in batches[1:]:
        assert producers.duplicate_of(replace(old, base_offset=-1, last_offset=-1)) == old
    assert producers.duplicate_of(batch(2, 2)) is None
    assert producers.duplicate_of(batch(2, 3, epoch=1)) is None
    assert producers.duplicate_of(batch(2, 3, producer_id=8)) is None


def test_batch_over_the_end_of_the_sequence_is_known_again() -> None:
    (over,) = producer_batches(window(idempotent(40, 7, LAST - 3)).headers.table)
    assert (over.base_sequence, over.last_sequence) == (LAST - 3, 5)
    producers = after(over)
    assert producers.duplicate_of(batch(LAST - 3, 5)) == over
    assert Producers.parse(producers.encode(), "x").duplicate_of(batch(LAST - 3, 5)) == over
    producers.check(batch(6, 6))


def test_snapshot_keeps_the_last_batch_only() -> None:
    producers = after(*(batch(n, n, base_offset=n, last_offset=n) for n in range(3)))
    loaded = Producers.parse(producers.encode(), "x")
    assert loaded.duplicate_of(batch(2, 2)) == producers.duplicate_of(batch(2, 2))
    assert loaded.duplicate_of(batch(1, 1)) is None
    loaded.check(batch(3, 3))


def test_new_epoch_forgets_the_batches_of_the_old() -> None:
    producers = after(batch(0, 4), batch(0, 9, epoch=1))
    assert producers.duplicate_of(batch(0, 4)) is None
    assert producers.duplicate_of(batch(0, 9, epoch=1)) is not None


def test_batches_without_sequence_numbers_repeat_nothing() -> None:
    """Offsets of groups are committed so, in transactions."""
    producers = folded(idempotent(0, 7, -1))
    assert producers.duplicate_of(batch(-1, -1)) is None
    assert Producers.parse(producers.encode(), "x") == producers


def test_replay_refuses_nothing() -> None:
    producers = folded(idempotent(0, 7, 0, epoch=3), idempotent(10, 7, 500, epoch=3), idempotent(20, 7, 9, epoch=1))
    assert producers.entries[7].epoch == 1
    assert [each.base_sequence for each in producers.entries[7].batches] == [9]


def test_marker_ends_the_transaction_and_its_epoch_is_the_producers_from_then_on() -> None:
    open_since_0 = logs.batch(0, producer_id=7, producer_epoch=2, base_sequence=0, transactional=True)
    producers = folded(open_since_0)
    aborted = producers.fold(window(control_batch("abort", 10, 7, 3, 5000, coordinator_epoch=4)))
    assert aborted == [AbortedTransaction(7, 0, 10, 11)]
    assert producers.entries[7] == Entry(epoch=3, timestamp=5000, coordinator_epoch=4)
    assert producers.first_unstable_offset is None
    with pytest.raises(OutOfOrderSequenceError, match="must continue with sequence 0"):
        producers.check(batch(10, 19, epoch=3))
    # Of the older protocol markers have the epoch of the records.
    producers = folded(open_since_0, control_batch("commit", 10, 7, 2))
    producers.check(batch(10, 19, epoch=2, is_transactional=True))


def test_marker_of_no_transaction_is_not_in_the_index() -> None:
    producers = Producers()
    assert producers.fold(window(control_batch("abort", 0, 7, 1), control_batch("abort", 1, 7, 1))) == []
    assert producers.entries[7].epoch == 1


def test_emptied_control_batch_ends_nothing_and_makes_its_producer_known() -> None:
    emptied = {"control": True, "transactional": True, "producer_id": 7, "producer_epoch": 5}
    data = logs.batch(0, producer_id=7, producer_epoch=5, base_sequence=0, transactional=True)
    assert folded(data, empty_batch(10, 10, **emptied)).first_unstable_offset == 0
    producers = folded(empty_batch(10, 10, **emptied))
    assert producers.encode() == producer_snapshot([ProducerEntry(7, -1, -1, -1, 0, -1)])
    producers.check(batch(77, 77))


def test_record_outside_of_an_open_transaction_is_refused() -> None:
    producers = after(batch(0, 0, is_transactional=True, base_offset=3, last_offset=3))
    assert producers.first_unstable_offset == 3
    producers.check(batch(1, 1, is_transactional=True))
    with pytest.raises(InvalidTransactionStateError, match="open since offset 3"):
        producers.check(batch(1, 1))


def test_producer_that_is_idle_too_long_is_forgotten_unless_its_transaction_is_open() -> None:
    now_ms = 10 * PRODUCER_EXPIRATION_MS
    idle = now_ms - PRODUCER_EXPIRATION_MS
    known = {1: Entry(0, timestamp=idle), 2: Entry(0, timestamp=idle + 1), 3: Entry(0, timestamp=idle, first_offset=5)}
    assert set(Producers(known).without_expired(now_ms).entries) == {2, 3}


# All of them at once, against the obvious way: all that happened is kept, and asked


@dataclass(frozen=True)
class Event:
    """A batch of a log, at ``offset``."""

    kind: Literal["data", "abort", "commit", "emptied", "plain"]
    producer_id: int
    epoch: int
    sequence: int
    count: int
    is_transactional: bool
    offset: int = 0

    @property
    def last_offset(self) -> int:
        return self.offset + (self.count if self.kind in ("data", "plain") else 1) - 1

    @property
    def batch(self) -> ProducerBatch:
        last_sequence = (self.sequence + self.count - 1) % (1 << 31)
        return ProducerBatch(
            self.producer_id, self.epoch, self.sequence, last_sequence,
            self.is_transactional, self.offset, self.last_offset, 1000 + self.last_offset,
        )  # fmt: skip

    def encode(self) -> bytes:
        producer = {"producer_id": self.producer_id, "producer_epoch": self.epoch}
        match self.kind:
            case "plain":
                return logs.batch(self.offset, self.count)
            case "data":
                fields = {"base_sequence": self.sequence, "transactional": self.is_transactional}
                return logs.batch(self.offset, self.count, **producer, **fields)
            case "emptied":
                return empty_batch(self.offset, self.offset, control=True, transactional=True, **producer)
            case _:
                return control_batch(
                    self.kind, self.offset, self.producer_id, self.epoch, timestamp=7, coordinator_epoch=self.offset
                )


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    drawn = st.builds(
        Event,
        kind=st.sampled_from(["data", "data", "data", "data", "abort", "commit", "emptied", "plain"]),
        producer_id=st.sampled_from([1, 2, 17]),
        epoch=st.sampled_from([0, 0, 0, 1]),
        sequence=st.sampled_from([0, 1, 2, 4, LAST - 1, LAST]),
        count=st.integers(1, 3),
        is_transactional=st.booleans(),
    )
    events: list[Event] = []
    for event in draw(st.lists(drawn, max_size=25)):
        events.append(replace(event, offset=events[-1].last_offset + 1 if events else 0))
    return events


def open_since(events: Sequence[Event]) -> dict[int, int]:
    found: dict[int, int] = {}
    for event in events:
        if event.kind == "data" and event.is_transactional:
            found.setdefault(event.producer_id, event.offset)
        elif event.kind in ("abort", "commit"):
            found.pop(event.producer_id, None)
    return found


def last_batches(events: Sequence[Event], producer_id: int) -> tuple[int, list[ProducerBatch]]:
    """Return the epoch of a producer, -1 for none, and its last five batches since it has that."""
    epoch, batches = -1, list[ProducerBatch]()
    for event in events:
        if event.producer_id == producer_id and event.kind in ("data", "abort", "commit"):
            batches = batches if event.epoch == epoch else []
            epoch = event.epoch
            batches += [event.batch] if event.kind == "data" else []
    return epoch, batches[-5:]


def aborted_in(events: Sequence[Event]) -> list[AbortedTransaction]:
    found = []
    for row, event in enumerate(events):
        undecided = open_since(events[:row])
        first_offset = undecided.pop(event.producer_id, None)
        if event.kind == "abort" and first_offset is not None:
            stable_offset = min(undecided.values(), default=event.offset + 1)
            found.append(AbortedTransaction(event.producer_id, first_offset, event.offset, stable_offset))
    return found


def refusal(events: Sequence[Event], probe: ProducerBatch) -> type[SeglogError] | None:
    epoch, batches = last_batches(events, probe.producer_id)
    if epoch == -1:
        return None
    if probe.producer_epoch < epoch:
        return InvalidProducerEpochError
    if probe.producer_epoch > epoch or not batches:
        expected = 0
    else:
        expected = 0 if batches[-1].last_sequence == LAST else batches[-1].last_sequence + 1
    if probe.base_sequence != expected:
        return OutOfOrderSequenceError
    if probe.producer_id in open_since(events) and not probe.is_transactional:
        return InvalidTransactionStateError
    return None


def refused(producers: Producers, probe: ProducerBatch) -> type[SeglogError] | None:
    try:
        producers.check(probe)
    except SeglogError as error:
        return type(error)
    return None


@given(histories(), st.integers(0, 25))
def test_whatever_happened_the_state_is_that_of_the_obvious_way(events: list[Event], cut: int) -> None:
    producers, aborted = Producers(), list[AbortedTransaction]()
    for part in (events[:cut], events[cut:]):
        aborted += producers.fold(window(*(event.encode() for event in part)))
    assert aborted == aborted_in(events)
    assert producers.first_unstable_offset == min(open_since(events).values(), default=None)
    assert producers.entries.keys() == {event.producer_id for event in events if event.kind != "plain"}
    for producer_id, entry in producers.entries.items():
        assert (entry.epoch, list(entry.batches)) == last_batches(events, producer_id)
        assert entry.first_offset == open_since(events).get(producer_id, -1)
        seen = [
            event for event in events if event.producer_id == producer_id and event.kind not in ("plain", "emptied")
        ]
        markers = [event.offset for event in seen if event.kind != "data"]
        assert entry.coordinator_epoch == (markers[-1] if markers else -1)
        if seen:
            assert entry.timestamp == (1000 + seen[-1].last_offset if seen[-1].kind == "data" else 7)


@given(histories(), st.integers(0, 25))
def test_snapshot_on_the_way_changes_nothing_but_how_many_batches_are_kept(events: list[Event], cut: int) -> None:
    straight, loaded = Producers(), Producers()
    loaded.fold(window(*(event.encode() for event in events[:cut])))
    loaded = Producers.parse(loaded.encode(), "x")
    straight.fold(window(*(event.encode() for event in events[:cut])))
    rest = window(*(event.encode() for event in events[cut:]))
    assert loaded.fold(rest) == straight.fold(rest)
    assert loaded.first_unstable_offset == straight.first_unstable_offset
    assert sorted(entries_of(loaded.encode())) == sorted(entries_of(straight.encode()))


def entries_of(snapshot: bytes) -> list[bytes]:
    return [snapshot[at : at + 46] for at in range(10, len(snapshot), 46)]


@given(histories(), st.data())
def test_whatever_happened_the_next_batch_is_judged_as_in_the_obvious_way(
    events: list[Event], data: st.DataObject
) -> None:
    producers = folded(*(event.encode() for event in events))
    batches = [event.batch for event in events if event.kind == "data"]
    sequences = [0, LAST, *(each.base_sequence for each in batches), *(plus(each.last_sequence, 1) for each in batches)]
    first = data.draw(st.sampled_from(sequences))
    count = data.draw(st.integers(1, 3))
    probe = ProducerBatch(
        producer_id=data.draw(st.sampled_from([1, 2, 17])),
        producer_epoch=data.draw(st.integers(0, 2)),
        base_sequence=first,
        last_sequence=plus(first, count - 1),
        is_transactional=data.draw(st.booleans()),
    )
    epoch, kept = last_batches(events, probe.producer_id)
    same = [old for old in kept if (old.base_sequence, old.last_sequence) == (first, probe.last_sequence)]
    assert producers.duplicate_of(probe) == (same[0] if same and probe.producer_epoch == epoch else None)
    assert refused(producers, probe) == refusal(events, probe)


def test_producer_is_put_back_as_it_was_before_an_append_that_failed() -> None:
    batch = ProducerBatch(7, 0, 0, 0, is_transactional=True, base_offset=5, last_offset=5, max_timestamp=1)
    for known in ({}, {7: Entry(0, timestamp=1)}, {7: Entry(0, timestamp=1, first_offset=3)}):
        producers, before = Producers(dict(known)), Producers(dict(known))
        producers.fold_batch(batch)
        producers.put_back(7, known.get(7))
        assert producers == before
        assert producers.first_unstable_offset == before.first_unstable_offset
