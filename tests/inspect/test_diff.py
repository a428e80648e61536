"""Copies of a log compared: each range of offsets against a slow oracle, and each way in which copies differ."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.inspect.diff import Compared, DiffKind, DiffRow, diff_copies
from tests.build import (
    Record,
    leader_epoch_checkpoint,
    legacy_message,
    legacy_wrapper,
    offset_checkpoint,
    v2_batch,
    write_partition,
)
from tests.log.logs import batch, batches
from tests.places import folder_at

END = 1 << 62
Shown = tuple[str, int | None, int | None, tuple[str | None, ...]]


def rows_of(*folders: Path | None) -> list[DiffRow]:
    found = diff_copies([None if folder is None else folder_at(folder) for folder in folders])
    return [row for row in found if isinstance(row, DiffRow)]


def shown(*folders: Path | None) -> list[Shown]:
    return [(row.kind.value, row.start_offset, row.end_offset, row.copies) for row in rows_of(*folders)]


def copies(folder: Path, *contents: Sequence[bytes], **options: Any) -> list[Path]:
    """Write a copy of events-0 for each list of batches."""
    places = [folder / str(number) / "events-0" for number in range(len(contents))]
    for place, content in zip(places, contents, strict=True):
        write_partition(place, content, **options)
    return places


@dataclass(frozen=True)
class Piece:
    """A batch of a copy: its offsets and its bytes."""

    start: int
    end: int
    data: bytes

    @property
    def is_sound(self) -> bool:
        return crc32c(self.data[21:]) == int.from_bytes(self.data[17:21], "big")


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


@st.composite
def edited(draw: st.DrawFn, pieces: list[Piece]) -> list[Piece]:
    """Edit a copy as crashes, cleaners, elections and disks do."""
    pieces = list(pieces)
    for _ in range(draw(st.integers(0, 4))):
        row = draw(st.integers(0, len(pieces) - 1))
        piece = pieces[row]
        edit = draw(st.sampled_from(["drop", "epoch", "other", "flip", "split", "cut"]))
        if edit == "drop" and len(pieces) > 1:
            del pieces[row]
        elif edit == "cut" and row:
            del pieces[row:]
        elif edit == "epoch":
            pieces[row] = replace(piece, data=piece.data[:15] + bytes([draw(st.integers(1, 9))]) + piece.data[16:])
        elif edit == "other":
            data = batch(piece.start, piece.end - piece.start, producer_id=draw(st.integers(1, 9)))
            pieces[row] = Piece(piece.start, piece.end, data)
        elif edit == "flip":
            position = draw(st.integers(61, len(piece.data) - 1))
            pieces[row] = replace(piece, data=flipped(piece.data, position))
        elif edit == "split" and piece.end - piece.start > 1:
            middle = (piece.start + piece.end) // 2
            halves = [(piece.start, middle), (middle, piece.end)]
            pieces[row : row + 1] = [Piece(at, end, batch(at, end - at)) for at, end in halves]
    return pieces


def oracle_states(pieces: list[Piece]) -> list[tuple[int, int, bytes | None]]:
    """List (start, end, bytes) of each batch and of each damaged stretch, which has no bytes."""
    found: list[tuple[int, int, bytes | None]] = []
    end, is_damaged = 0, False
    for piece in pieces:
        if not piece.is_sound:
            is_damaged = True
            continue
        if is_damaged:
            found.append((end, piece.start, None))
        found.append((piece.start, piece.end, piece.data))
        end, is_damaged = piece.end, False
    return [*found, (end, END, None)] if is_damaged else found


def is_doubted(pieces: list[Piece], piece: Piece | None) -> bool:
    """Return whether a batch directly after damage does not lead to the next one: its offset may be damaged as well."""
    row = pieces.index(piece) if piece else 0
    return 0 < row < len(pieces) - 1 and not pieces[row - 1].is_sound and pieces[row].end != pieces[row + 1].start


def piece_before(pieces: list[Piece], offset: int) -> Piece | None:
    """Return the last batch that ends at an offset or before it."""
    return next((piece for piece in reversed(pieces) if piece.end <= offset), None)


def oracle(contents: list[list[Piece]], offset: int) -> tuple[str, tuple[str, ...]] | None:
    """Say the kind and the states at an offset; None if no copy has anything there."""
    at: list[bytes | str] = []
    for pieces in contents:
        covering = [data for start, end, data in oracle_states(pieces) if start <= offset < end]
        at.append("missing" if not covering else "damaged" if covering[0] is None else covering[0])
    different = list(dict.fromkeys(each for each in at if isinstance(each, bytes)))
    states = tuple(each if isinstance(each, str) else "ABC"[different.index(each)] for each in at)
    if set(states) == {"missing"}:
        return None
    if "damaged" in states:
        return "damaged", states
    if len(different) > 1:
        without = {each[:12] + each[16:] for each in different}
        return ("leader-epoch" if len(without) == 1 else "divergent"), states
    return ("missing" if "missing" in states else "equal"), states


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_ranges_are_those_of_the_oracle(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=25))
    starts = [0, *itertools.accumulate(sizes)]
    original = [Piece(start, start + size, batch(start, size)) for start, size in zip(starts, sizes, strict=False)]
    contents = [data.draw(edited(original)) for _ in range(data.draw(st.integers(2, 3)))]
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / str(number) / "events-0" for number in range(len(contents))]
        for place, pieces in zip(places, contents, strict=True):
            segment_bytes = data.draw(st.sampled_from([None, 500, 2_000]))
            write_partition(place, [piece.data for piece in pieces], segment_bytes=segment_bytes)
        found = rows_of(*places)
    ranges = [row for row in found if row.is_range]
    for one, other in itertools.pairwise(ranges):
        assert (one.end_offset or 0) <= (other.start_offset or 0)
        assert (one.kind, one.copies, one.reason) != (other.kind, other.copies, other.reason)
    highest = max((piece.end for pieces in contents for piece in pieces if piece.is_sound), default=0)
    for offset in range(highest):
        covering = [row for row in ranges if row.start_offset <= offset < row.end_offset]  # type: ignore[operator]
        assert len(covering) <= 1
        expected = oracle(contents, offset)
        held = [next((p for p in pieces if p.start <= offset < p.end), None) for pieces in contents]
        first = held[0]
        if expected is None or not any(held) or (first and not first.is_sound and set(held) == {first}):
            # A range runs on over offsets that no copy has. Bytes that all copies have are equal, damaged or not.
            continue
        (found_there,) = [(row.kind.value, row.copies) for row in covering]
        # The bytes of a batch that is doubted may have been of all offsets up to the next batch.
        beside = [piece or piece_before(pieces, offset) for pieces, piece in zip(contents, held, strict=True)]
        if any(map(is_doubted, contents, beside)) and "damaged" in found_there[1]:
            continue
        # A copy that lacks a batch beside such bytes may have had it there.
        pairs = zip(found_there[1], expected[1], held, strict=True)
        assert all(state == wanted or (piece is None and state == "missing") for state, wanted, piece in pairs)
        assert found_there == expected or found_there[1] != expected[1]
    if all(pieces == contents[0] for pieces in contents):
        assert {row.kind for row in found} <= {DiffKind.EQUAL}
    else:
        assert {row.kind for row in found} != {DiffKind.EQUAL}


def test_segments_that_begin_elsewhere_are_no_difference(tmp_path: Path) -> None:
    content = batches(300)
    one, other = copies(tmp_path, content, content, segment_bytes=7_000)
    shutil.rmtree(other)
    write_partition(other, content, segment_bytes=30_000)
    assert shown(one, other) == [("equal", 0, 3000, ("A", "A"))]


def test_one_changed_batch_among_thousands_is_one_range(tmp_path: Path) -> None:
    content = batches(2000)
    changed = [*content[:1234], batch(12340, producer_id=7), *content[1235:]]
    assert shown(*copies(tmp_path, content, changed, content)) == [
        ("equal", 0, 12340, ("A", "A", "A")),
        ("divergent", 12340, 12350, ("A", "B", "A")),
        ("equal", 12350, 20000, ("A", "A", "A")),
    ]


@pytest.mark.parametrize("position", [0, 7, 8, 11, 16, 17, 30, 61, 200])
def test_damage_costs_the_range_of_one_batch_whatever_byte_it_hits(tmp_path: Path, position: int) -> None:
    content = batches(40)
    one, other = copies(tmp_path, content, content)
    (log,) = other.glob("*.log")
    log.write_bytes(flipped(log.read_bytes(), sum(map(len, content[:20])) + position))
    assert shown(one, other) == [
        ("equal", 0, 200, ("A", "A")),
        ("damaged", 200, 210, ("A", "damaged")),
        ("equal", 210, 400, ("A", "A")),
    ]


def test_noise_between_batches_is_an_empty_range(tmp_path: Path) -> None:
    content = batches(4)
    one, other = copies(tmp_path, content, content)
    (log,) = other.glob("*.log")
    log.write_bytes(b"".join([*content[:2], b"\xff" * 99, *content[2:]]))
    found = rows_of(one, other)
    assert [(row.kind, row.start_offset, row.end_offset, row.copies) for row in found] == [
        ("equal", 0, 20, ("A", "A")),
        ("damaged", 20, 20, (None, "damaged")),
        ("equal", 20, 40, ("A", "A")),
    ]
    assert found[1].reason


def test_copy_of_a_damaged_log_is_equal_also_beside_a_difference(tmp_path: Path) -> None:
    content = batches(6)
    damaged = [content[0], flipped(content[1], 70) + b"\xff" * 99, *content[2:]]
    assert shown(*copies(tmp_path / "whole", damaged, damaged)) == [("equal", 0, 60, ("A", "A"))]
    changed = [batch(0, producer_id=7), *damaged[1:]]
    assert shown(*copies(tmp_path / "changed", damaged, changed)) == [
        ("divergent", 0, 10, ("A", "B")),
        ("equal", 10, 60, ("A", "A")),
    ]


@pytest.mark.parametrize("every", [2, 5])
def test_dense_differences_are_rows_of_their_own(tmp_path: Path, every: int) -> None:
    content = batches(600)
    changed = [data[:15] + b"\7" + data[16:] if number % every == 0 else data for number, data in enumerate(content)]
    found = shown(*copies(tmp_path, content, changed, content))
    assert [row for row in found if row[0] != "equal"] == [
        ("leader-epoch", 10 * number, 10 * number + 10, ("A", "B", "A")) for number in range(0, 600, every)
    ]
    assert sum((row[2] or 0) - (row[1] or 0) for row in found) == 6000


def test_torn_end_is_only_a_shorter_log_and_a_lost_end_is_damage(tmp_path: Path) -> None:
    content = batches(5)
    one, torn, noise = copies(tmp_path, content, content[:4], content[:4])
    for folder, rest in ((torn, content[4][:50]), (noise, b"\xff" * 50)):
        (log,) = folder.glob("*.log")
        log.write_bytes(log.read_bytes() + rest)
    assert shown(one, torn) == [
        ("equal", 0, 40, ("A", "A")),
        ("missing", 40, 50, ("A", "missing")),
        ("end-offset", 40, 50, ("50", "40")),
    ]
    assert shown(noise, one)[1:] == [
        ("damaged", 40, 50, ("damaged", "A")),
        ("end-offset", 40, 50, ("40", "50")),
    ]
    assert shown(torn, noise)[1:] == [("damaged", 40, 40, (None, "damaged"))]


def test_log_start_offsets_differ_also_inside_of_a_batch(tmp_path: Path) -> None:
    one, other, third = copies(tmp_path, *[batches(6)] * 3)
    (other.parent / "log-start-offset-checkpoint").write_text(offset_checkpoint({("events", 0): 25}))
    (third.parent / "log-start-offset-checkpoint").write_text(offset_checkpoint({("events", 0): 25}))
    assert shown(one, other) == [
        ("start-offset", 0, 25, ("0", "25")),
        ("missing", 0, 25, ("A", "missing")),
        ("equal", 25, 60, ("A", "A")),
    ]
    assert shown(third, other) == [("equal", 25, 60, ("A", "A"))]


def test_lineages_and_topic_ids_are_compared(tmp_path: Path) -> None:
    one, other = copies(tmp_path, batches(6), batches(6))
    (one / "leader-epoch-checkpoint").write_text(leader_epoch_checkpoint([(0, 0), (3, 40)]))
    (other / "leader-epoch-checkpoint").write_text(leader_epoch_checkpoint([(0, 0), (2, 30), (3, 40)]))
    (one / "partition.metadata").write_text("version: 0\ntopic_id: Q2TYVrXaSDWPZ5lUZtm3Jg\n")
    assert shown(one, other) == [
        ("topic-id", None, None, ("Q2TYVrXaSDWPZ5lUZtm3Jg", None)),
        ("equal", 0, 60, ("A", "A")),
        ("epochs", 30, 60, ("0", "2")),
    ]


def test_partition_that_only_some_have_is_a_row(tmp_path: Path) -> None:
    one, other = copies(tmp_path, batches(2), batches(2))
    assert shown(one, None, other) == [
        ("partition", None, None, (str(one), None, str(other))),
        ("equal", 0, 20, ("A", None, "A")),
    ]
    assert shown(None, other) == [("partition", None, None, (None, str(other)))]


def test_folder_that_cannot_be_listed_is_a_row(tmp_path: Path) -> None:
    one, other = copies(tmp_path, batches(2), batches(2))
    shutil.rmtree(other)
    (found,) = rows_of(one, other)
    assert (found.kind, found.copies) == (DiffKind.UNREADABLE, (None, None))
    assert str(other) in found.reason


def test_old_formats_are_compared_as_they_lie(tmp_path: Path) -> None:
    messages = [legacy_message(n, b"k", b"%d" % n) for n in range(10)]
    wrapper = legacy_wrapper([Record(n, 5, b"k", b"v") for n in range(5)], base_offset=10)
    last = legacy_message(15, b"k", b"last")
    whole, without = [*messages, wrapper, last], [*messages, last]
    assert shown(*copies(tmp_path, whole, without, whole)) == [
        ("equal", 0, 10, ("A", "A", "A")),
        ("missing", 10, 15, ("A", "missing", "A")),
        ("equal", 15, 16, ("A", "A", "A")),
    ]


def test_long_batches_are_compared_in_blocks(tmp_path: Path) -> None:
    long = [v2_batch([Record(0, 0, b"k", bytes(size))], base_offset=n) for n, size in enumerate([10, 3 << 20, 9 << 20])]
    other = [*long[:2], v2_batch([Record(0, 0, b"k", bytes(9 << 20)[:-1] + b"x")], base_offset=2)]
    assert shown(*copies(tmp_path, long, other)) == [
        ("equal", 0, 2, ("A", "A")),
        ("divergent", 2, 3, ("A", "B")),
    ]


def test_all_bytes_are_counted_once(tmp_path: Path) -> None:
    content = batches(50)
    places = copies(tmp_path, content, [*content[:20], *content[30:]])
    amounts = [
        each.size_bytes for each in diff_copies([folder_at(each) for each in places]) if isinstance(each, Compared)
    ]
    assert sum(amounts) == sum(path.stat().st_size for folder in places for path in folder.glob("*.log"))
