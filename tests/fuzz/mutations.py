"""Damages to a log: what a bad disk, a bad copy or a bad hand may make of its files.

Every damage is a list of edits, each of which puts bytes in the place of bytes, so that a case can be saved, replayed,
and made smaller by leaving edits out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.fuzz.logs import LOG, SoundLog, Span

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Edit:
    """Puts `data` in the place of `length` bytes of a file; with no data at all, the file goes."""

    file: str
    position: int
    length: int
    data: bytes | None

    def to_json(self) -> dict[str, Any]:
        data = None if self.data is None else self.data.hex()
        return {"file": self.file, "position": self.position, "length": self.length, "data": data}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Edit:
        data = None if row["data"] is None else bytes.fromhex(row["data"])
        return cls(row["file"], row["position"], row["length"], data)


@dataclass(frozen=True)
class Mutation:
    """One damage: what kind it is, and how it is done."""

    kind: str
    edits: tuple[Edit, ...]


def applied(files: Files, edits: Sequence[Edit]) -> dict[str, bytes]:
    """Return the files as the edits, one after another, leave them."""
    left = dict(files)
    for edit in edits:
        if edit.data is None:
            left.pop(edit.file, None)
            continue
        before = left.get(edit.file, b"")
        left[edit.file] = before[: edit.position] + edit.data + before[edit.position + edit.length :]
    return left


# Each kind of damage


def flip(rng: random.Random, log: SoundLog, _donor: SoundLog) -> list[Edit]:
    """One to four bytes of batches, a bit each or all of it; in a row, or anywhere, headers more often than not."""
    count = rng.choice((1, 1, 1, 2, 3, 4))
    places = {_byte_of_a_batch(rng, log)}
    if count > 1 and rng.random() < 0.3:
        ((file, first),) = places
        places = {(file, first + n) for n in range(count) if first + n < len(log.files[file])}
    while len(places) < count and rng.random() < 0.99:
        places.add(_byte_of_a_batch(rng, log))
    return [_flipped(rng, log, file, position) for file, position in sorted(places)]


def _byte_of_a_batch(rng: random.Random, log: SoundLog) -> tuple[str, int]:
    span = rng.choice(log.spans)
    header_bytes = 61 if span.magic == 2 else 26
    if rng.random() < 0.6:
        return span.file, min(span.start + rng.randrange(header_bytes), span.end - 1)
    return span.file, rng.randrange(span.start, span.end)


def _flipped(rng: random.Random, log: SoundLog, file: str, position: int) -> Edit:
    old = log.files[file][position]
    new = old ^ 1 << rng.randrange(8)
    if rng.random() < 0.4:
        new = rng.choice([byte for byte in (0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256), new) if byte != old])
    return Edit(file, position, 1, bytes([new]))


def cut(rng: random.Random, log: SoundLog, _donor: SoundLog) -> list[Edit]:
    """The end of a segment goes: at a batch boundary, near one, or anywhere."""
    file = rng.choice(log.segments)
    size_bytes = len(log.files[file])
    boundaries = [span.start for span in log.spans_in(file)] or [0]
    match rng.randrange(3):
        case 0:
            end = rng.choice(boundaries)
        case 1:
            end = rng.choice(boundaries) + rng.randrange(-3, 70)
        case _:
            end = rng.randrange(size_bytes + 1)
    end = min(max(end, 0), size_bytes)
    return [Edit(file, end, size_bytes - end, b"")]


def gap(rng: random.Random, log: SoundLog, _donor: SoundLog) -> list[Edit]:
    """Some bytes in the midst of a segment are not there."""
    file = rng.choice(log.spans).file
    start = rng.randrange(len(log.files[file]))
    return [Edit(file, start, rng.choice((1, 2, 8, 61, rng.randrange(1, 400))), b"")]


def splice(rng: random.Random, log: SoundLog, donor: SoundLog) -> list[Edit]:
    """Bytes of another place, or of another log, stand in a segment: over its own, or between them."""
    span, other = rng.choice(log.spans), rng.choice((log, donor))
    source = rng.choice(other.spans)
    if rng.random() < 0.5:
        length = rng.choice((0, span.end - span.start))
        return [Edit(span.file, span.start, length, other.batch(source))]
    start = rng.randrange(source.start, source.end)
    data = other.files[source.file][start : start + rng.randrange(1, 200)]
    position = rng.randrange(span.start, span.end)
    return [Edit(span.file, position, rng.choice((0, len(data))), data)]


def double(rng: random.Random, log: SoundLog, _donor: SoundLog) -> list[Edit]:
    """A batch stands twice: the second time right behind the first, or elsewhere."""
    span = rng.choice(log.spans)
    place = span if rng.random() < 0.5 else rng.choice(log.spans)
    return [Edit(place.file, place.end, 0, log.batch(span))]


def swap(rng: random.Random, log: SoundLog, _donor: SoundLog) -> list[Edit]:
    """Two batches, neighbours or not, stand in each other's place."""
    if len(log.spans) < 2:
        return double(rng, log, _donor)
    row = rng.randrange(len(log.spans) - 1)
    other = row + 1 if rng.random() < 0.5 else rng.randrange(row + 1, len(log.spans))
    first, second = log.spans[row], log.spans[other]
    # The later place first, so that the earlier one is still where it was.
    return [_replaced(second, log.batch(first)), _replaced(first, log.batch(second))]


def _replaced(span: Span, data: bytes) -> Edit:
    return Edit(span.file, span.start, span.end - span.start, data)


def drop(rng: random.Random, log: SoundLog, _donor: SoundLog) -> list[Edit]:
    """One to three whole batches of a segment are not there."""
    span = rng.choice(log.spans)
    following = [each for each in log.spans_in(span.file) if each.start >= span.start][: rng.choice((1, 1, 2, 3))]
    return [Edit(span.file, span.start, following[-1].end - span.start, b"")]


def tail(rng: random.Random, log: SoundLog, donor: SoundLog) -> list[Edit]:
    """Behind the last segment, or another, stand zeros, noise, or a part of a batch."""
    file = log.segments[-1] if rng.random() < 0.8 else rng.choice(log.segments)
    source = rng.choice(donor.spans)
    more = rng.choice(
        (
            bytes(rng.randrange(1, 3000)),
            rng.randbytes(rng.randrange(1, 300)),
            donor.batch(source)[: rng.randrange(source.end - source.start)],
            bytes(rng.randrange(1, 100)) + rng.randbytes(rng.randrange(1, 100)),
        )
    )
    return [Edit(file, len(log.files[file]), 0, more)]


def foreign_index(rng: random.Random, log: SoundLog, donor: SoundLog) -> list[Edit]:
    """An index or a checkpoint is that of another segment, or of another log.

    A snapshot of the producers is left alone: one of another log is sound by its checksum, and nothing in an empty one
    tells that it is; what of it can be told is tested with the producers' state.
    """
    other = rng.choice((log, donor))
    hints = sorted(name for name in _hints(log) if not name.endswith(".snapshot"))
    if not hints:
        return damaged_index(rng, log, donor)
    named = rng.choice(hints)
    suffix = "." + named.rpartition(".")[2]
    candidates = [name for name in _hints(other) if name.endswith(suffix) and (other is not log or name != named)]
    if not candidates:
        return damaged_index(rng, log, donor)
    return [Edit(named, 0, len(log.files[named]), other.files[rng.choice(sorted(candidates))])]


def damaged_index(rng: random.Random, log: SoundLog, _donor: SoundLog) -> list[Edit]:
    """An index, a snapshot or a checkpoint has flipped bytes, is cut, has more behind it, or is not there."""
    named = rng.choice(sorted(_hints(log)))
    data = log.files[named]
    match rng.randrange(5 if data else 2):
        case 0:
            return [Edit(named, 0, len(data), None)]
        case 1:
            more = rng.choice((bytes(rng.randrange(1, 100)), rng.randbytes(rng.randrange(1, 100))))
            return [Edit(named, len(data), 0, more)]
        case 2:
            end = rng.randrange(len(data))
            return [Edit(named, end, len(data) - end, b"")]
        case _:
            positions = {rng.randrange(len(data)) for _ in range(rng.randrange(1, 5))}
            return [_flipped(rng, log, named, position) for position in sorted(positions)]


def _hints(log: SoundLog) -> list[str]:
    return [name for name in log.files if not name.endswith(LOG)]


Kind = Callable[[random.Random, SoundLog, SoundLog], list[Edit]]

KINDS: Final[Mapping[str, Kind]] = {
    "flip": flip,
    "cut": cut,
    "gap": gap,
    "splice": splice,
    "double": double,
    "swap": swap,
    "drop": drop,
    "tail": tail,
    "foreign index": foreign_index,
    "damaged index": damaged_index,
}


def mutated(rng: random.Random, log: SoundLog, donor: SoundLog, kind: str, *, with_flip: bool) -> Mutation:
    """Damage a log in one way; with a flip, now and then a byte of a batch is flipped as well."""
    edits = KINDS[kind](rng, log, donor)
    if with_flip and kind != "flip" and rng.random() < 0.1:
        # The byte that is flipped comes first: later edits may move it.
        return Mutation(f"{kind} and flip", (*flip(rng, log, donor)[:1], *edits))
    return Mutation(kind, tuple(edits))
