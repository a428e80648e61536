"""What the format itself can know of a damaged log: the oracle reads it, and says where it must stop.

A log is sound to the format where every batch is whole and has its checksum, offsets ascend and stay in their segments,
and what follows the last batch of the last segment is a torn write. Of a log that was damaged and is sound to the
format all the same, nobody can ask for more than that it is read as what it has become; `Model.unseen` says why it can
be so, and there are three reasons only:

- ``torn tail``: bytes behind the last whole batch of the last segment, which are zeros, or a batch that is cut short.
- ``unchecked header``: the base offset and the leader epoch of magic 2, and the offset of magic 0 and 1, are outside of
  the checksum. Every other byte of every batch is as it was.
- ``other batches``: whole batches are missing, moved, or come from elsewhere, and offsets ascend.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import crc32c

from tests.fuzz.logs import SoundLog, base_of, segments_of
from tests.oracle import OracleBatch, OracleError, decode_log, last_stable_offset, read_committed

UNSEEN: Final = ("torn tail", "unchecked header", "other batches")
OVERHEAD_BYTES: Final = 12
MESSAGE_BYTES_MIN: Final = 14
SEGMENT_REACH: Final = 1 << 31
"""No index of a segment reaches an offset as far above its base, and no broker puts one there."""


@dataclass(frozen=True)
class Placed:
    """A batch, the segment that it is in, and what of it is under its checksum."""

    file: str
    batch: OracleBatch
    checked: bytes

    @property
    def offsets(self) -> tuple[int, int]:
        """The first and the last offset; of a wrapper those of its messages."""
        if self.batch.magic < 2:
            return self.batch.records[0].offset, self.batch.records[-1].offset
        return self.batch.base_offset, self.batch.last_offset


@dataclass(frozen=True)
class Fault:
    """Something that is no sound batch, and the offsets that it may have held: those from `lowest` to `highest`.

    `highest` is exclusive, and None where nothing sound follows. A batch that is only `misplaced` is whole.
    """

    what: str
    file: str
    lowest: int
    highest: int | None = None
    is_misplaced: bool = False

    def is_met(self, start: int, end: int | None) -> bool:
        """Tell whether who reads a range must meet it.

        That a batch is misplaced shows by the one before it only, which who begins behind that one does not read.
        """
        is_behind_start = start < self.lowest if self.is_misplaced else self.highest is None or start < self.highest
        return is_behind_start and (end is None or end > self.lowest)


@dataclass(frozen=True)
class Model:
    """A log as the format has it.

    Attributes
    ----------
    placed : sequence of Placed
        The sound batches, in order, those behind faults as well.
    faults : sequence of Fault
        What else there is, but for a torn tail.
    end_offset : int
        Log end offset, by the last sound batch.
    is_end_sound : bool
        Whether nothing but a torn tail is behind that batch. Damage in a segment before the last does not move the end:
        the name of the last segment says where it begins.
    torn_at : int or None
        Where a torn tail of the last segment begins, if there is one.
    begins_in : str
        The segment that is looked at first.
    unseen : set of str
        Of `UNSEEN`: how the log differs from the sound one without a fault.
    """

    placed: Sequence[Placed]
    faults: Sequence[Fault]
    end_offset: int
    is_end_sound: bool
    torn_at: int | None
    begins_in: str = ""
    unseen: frozenset[str] = frozenset()

    @property
    def batches(self) -> list[OracleBatch]:
        return [each.batch for each in self.placed]

    @property
    def last_stable_offset(self) -> int:
        stable = last_stable_offset(self.batches)
        is_open = bool(self.placed) and stable != self.placed[-1].batch.last_offset + 1
        return stable if is_open else self.end_offset

    def rows(self, *, committed: bool, start: int, end: int | None = None) -> list[Row]:
        """Return the rows that a reader of a range is given, faults left out."""
        chosen = {id(batch) for batch in read_committed(self.batches)} if committed else None
        return [
            row
            for each in self.placed
            if not each.batch.is_control and (chosen is None or id(each.batch) in chosen)
            for row in rows_of(each)
            if start <= row[0] and (end is None or row[0] < end)
        ]

    def offset_for_time(self, timestamp: int, start: int) -> int | None:
        """Return the first offset as late as a time; a marker counts, as for a broker."""
        for batch in self.batches:
            for record in batch.records:
                if record.offset >= start and record.timestamp >= timestamp:
                    return record.offset
        return None


Row = tuple[object, ...]
ROW_COLUMNS: Final = (
    "offset", "key", "value", "timestamp", "timestampType", "headers", "sequence", "leader_epoch", "producer_id",
    "producer_epoch", "is_transactional", "compression", "magic", "position", "file",
)  # fmt: skip


def rows_of(placed: Placed) -> list[tuple[int, *tuple[object, ...]]]:
    """Return the rows of a batch, of `ROW_COLUMNS`."""
    batch = placed.batch
    return [
        (
            record.offset, record.key, record.value, record.timestamp, record.timestamp_type,
            record.headers or None, record.sequence, batch.leader_epoch, batch.producer_id, batch.producer_epoch,
            batch.is_transactional, batch.codec, batch.magic, batch.position, placed.file,
        )
        for record in batch.records
    ]  # fmt: skip


def model_of(files: Mapping[str, bytes], sound: SoundLog | None = None, start: int | None = None) -> Model:
    """Read the files of a partition, and say what of them the format objects to.

    Parameters
    ----------
    sound : SoundLog, optional
        What they were before they were damaged.
    start : int, optional
        Read them as who begins at that offset, and has found its place by an index: what is before it is not looked at.
    """
    names = segments_of(files)
    walked: list[Placed | Fault] = []
    torn_at = None
    begin = None if sound is None or start is None else _place_of(sound, start)
    for row, name in enumerate(names):
        if begin is not None and name < begin[0]:
            continue
        is_last = row + 1 == len(names)
        upper = min(base_of(name) + SEGMENT_REACH, (1 << 63) - 1 if is_last else base_of(names[row + 1]))
        position = 0 if begin is None or name != begin[0] else begin[1]
        end = _walk(files[name], name, upper, walked, position)
        if end < len(files[name]):
            torn_at = end if is_last and may_be_torn(files[name], end, _lowest(walked, name)) else None
            if torn_at is None:
                walked.append(Fault(f"no batch at {end}", name, _lowest(walked, name)))
    placed = [each for each in walked if isinstance(each, Placed)]
    base_offset = base_of(names[-1]) if names else 0
    model = Model(
        placed,
        _faults(walked),
        end_offset=max(base_offset, placed[-1].offsets[1] + 1) if placed else base_offset,
        is_end_sound=not walked or isinstance(walked[-1], Placed) or walked[-1].file != names[-1],
        torn_at=torn_at,
        begins_in="" if begin is None else begin[0],
    )
    return model if sound is None else replace(model, unseen=_unseen(model, sound, files))


def _lowest(walked: Sequence[Placed | Fault], name: str) -> int:
    """Return the lowest offset that may come next, in a segment."""
    before = next((each for each in reversed(walked) if isinstance(each, Placed)), None)
    return base_of(name) if before is None else max(base_of(name), before.offsets[1] + 1)


def _faults(walked: Sequence[Placed | Fault]) -> list[Fault]:
    """Return the faults, each with the first offset of the sound batch behind it."""
    faults: list[Fault] = []
    highest: int | None = None
    for each in reversed(walked):
        if isinstance(each, Placed):
            highest = each.offsets[0]
        else:
            faults.append(replace(each, highest=highest))
    return faults[::-1]


_SOUND_MODELS: dict[str, Model] = {}


def _sound_model(sound: SoundLog) -> Model:
    if sound.name not in _SOUND_MODELS:
        _SOUND_MODELS[sound.name] = model_of(sound.files)
    return _SOUND_MODELS[sound.name]


def _place_of(sound: SoundLog, offset: int) -> tuple[str, int] | None:
    """Return the file and the position of the batch of a sound log that holds an offset, or else is the next."""
    found = (each for each in _sound_model(sound).placed if each.offsets[1] >= offset)
    first = next(found, None)
    return None if first is None else (first.file, first.batch.position)


def _walk(data: bytes, name: str, upper_offset: int, walked: list[Placed | Fault], position: int = 0) -> int:
    """Take the batches of a segment, sound or not, as far as sizes lead; the position behind the last."""
    while len(data) - position > OVERHEAD_BYTES + 4:
        (size,) = struct.unpack_from(">i", data, position + 8)
        if size < MESSAGE_BYTES_MIN or position + OVERHEAD_BYTES + size > len(data):
            break
        raw = data[position : position + OVERHEAD_BYTES + size]
        lowest = _lowest(walked, name)
        try:
            (batch,) = decode_log(raw)
        except OracleError as error:
            walked.append(Fault(f"{error} at {position}", name, lowest))
        else:
            each = Placed(name, replace(batch, position=position), raw[12:] if batch.magic < 2 else raw[17:])
            walked.append(_misplaced(each, range(lowest, upper_offset)) or each)
        position += len(raw)
    return position


def _misplaced(each: Placed, allowed: range) -> Fault | None:
    """Say where the offsets of a batch cannot be."""
    first, last = each.offsets
    where = each.file, allowed.start
    # Old librdkafka wrote 0, whatever the offsets in the wrapper were.
    if each.batch.magic < 2 and each.batch.last_offset not in (last, 0):
        return Fault(f"a wrapper of offset {each.batch.last_offset} ends with {last}", *where)
    if first not in allowed or last not in allowed or last < first:
        return Fault(f"offsets {first} to {last} are not in {allowed}", *where, is_misplaced=True)
    return None


def may_be_torn(data: bytes, position: int, offset: int) -> bool:
    """Tell whether the end of the last segment, where a batch of an offset is expected, is what a torn write leaves.

    It is zeros; or the beginning of a batch that is longer than what is there, behind which no batch of this log is
    whole, and which is not whole but for a wrong size.
    """
    rest = data[position:]
    if not any(rest):
        return True
    if len(rest) > OVERHEAD_BYTES:
        (size,) = struct.unpack_from(">i", rest, 8)
        if size < MESSAGE_BYTES_MIN or OVERHEAD_BYTES + size <= len(rest):
            return False
    return not is_checked(rest) and not whole_batch_behind(data, position + 1, offset)


def is_checked(batch: bytes) -> bool:
    """Tell whether bytes are a batch by their checksum, whatever their size says."""
    if len(batch) < 26 or batch[16] > 2:
        return False
    if batch[16] == 2:
        return len(batch) >= 61 and crc32c.crc32c(batch[21:]) == int.from_bytes(batch[17:21], "big")
    return zlib.crc32(batch[16:]) == int.from_bytes(batch[12:16], "big")


def whole_batch_behind(data: bytes, position: int, offset: int) -> bool:
    """Tell whether a whole batch of this log, checksum and all, stands anywhere from a position on.

    A value of a torn record may hold a batch of another log. One of an offset before the one expected, or further from
    it than a segment reaches, is taken for that, unless another whole batch follows it, or the data ends with it.
    """
    data_end = len(data.rstrip(b"\0"))
    for start in range(position, len(data) - 25):
        end = _end_of_whole(data, start)
        if end is None:
            continue
        at = int.from_bytes(data[start : start + 8], "big", signed=True)
        if offset <= at < offset + SEGMENT_REACH or end >= data_end or _end_of_whole(data, end) is not None:
            return True
    return False


def _end_of_whole(data: bytes, start: int) -> int | None:
    size = int.from_bytes(data[start + 8 : start + 12], "big")
    end = start + OVERHEAD_BYTES + size
    is_whole = size >= MESSAGE_BYTES_MIN and end <= len(data) and data[start + 16] <= 2 and is_checked(data[start:end])
    return end if is_whole else None


def _unseen(model: Model, sound: SoundLog, files: Mapping[str, bytes]) -> frozenset[str]:
    before = _sound_model(sound)
    found = set[str]()
    if model.torn_at is not None:
        found.add("torn tail")
    there = iter(before.placed)
    pairs = [(each, next((was for was in there if was.checked == each.checked), None)) for each in model.placed]
    # What a torn tail, or a fault, has taken is not missing: it is what the tail or the fault is.
    missing = len(before.placed) - len(model.placed) - len(model.faults)
    if any(was is None for _, was in pairs) or (missing > 0 and model.torn_at is None):
        found.add("other batches")
    if any(was is not None and _unchecked(each) != _unchecked(was) for each, was in pairs):
        found.add("unchecked header")
    if not found and not model.faults and any(files[name] != sound.files.get(name) for name in segments_of(files)):
        found.add("other batches")
    return frozenset(found)


def _unchecked(placed: Placed) -> tuple[int, int, int]:
    return placed.batch.base_offset, placed.batch.last_offset, placed.batch.leader_epoch


# What else in the folder and its directory knows


def index_proves_loss(
    files: Mapping[str, bytes], sound: SoundLog, model: Model, reach: int | None = None
) -> str | None:
    """Say which index of a sealed segment, itself undamaged, speaks of batches that are not there any more.

    Who looks no further than the offset `reach`, exclusive, does not come to the end of every segment.
    """
    for name in segments_of(files)[:-1]:
        if name < model.begins_in or any(fault.file == name for fault in model.faults):
            continue
        last = max((each.offsets[1] for each in model.placed if each.file == name), default=base_of(name) - 1)
        if reach is not None and reach <= last + 1:
            break
        for suffix, layout in ((".timeindex", ">qi"), (".index", ">ii")):
            index = name.replace(".log", suffix)
            if files.get(index) != sound.files.get(index) or not files.get(index):
                continue
            size = struct.calcsize(layout)
            entries = list(struct.iter_unpack(layout, files[index][: len(files[index]) // size * size]))
            by_offset = [
                (
                    base_of(name) + (relative if suffix == ".timeindex" else first),
                    first if suffix == ".timeindex" else -1,
                )
                for first, relative in entries
            ]
            inside = [entry for entry in by_offset if entry[0] <= last]
            if by_offset[-1][0] > last and (not inside or any(_agrees(model, name, *inside[row]) for row in (0, -1))):
                return f"its {'time' if suffix == '.timeindex' else 'offset'} index"
    return None


def _agrees(model: Model, name: str, offset: int, timestamp: int) -> bool:
    """Tell whether a log still has the batch that an index entry is of: else the index may be another log's."""
    return any(
        each.offsets[0] <= offset <= each.offsets[1] and timestamp in (-1, each.batch.max_timestamp)
        for each in model.placed
        if each.file == name
    )


def directory_proves_loss(sound: SoundLog, model: Model) -> str | None:
    """Say how the log directory knows that what is missing at the end had been synced: no torn write has taken it."""
    if sound.is_clean and model.torn_at is not None:
        return "a torn tail behind the marker of a clean shutdown"
    if model.end_offset < sound.recovery_point:
        return f"{'a torn tail' if model.torn_at is not None else 'a log that ends'} below the recovery point"
    return None
