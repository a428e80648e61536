"""Makes a sound copy of one damaged log: every sound batch, unchanged, with new indexes, snapshots and epochs.

The copy has the source's segments: the same base offsets, and of their batches those whose checksum agrees and whose
offsets fit. Damage leaves a hole in the offsets, as the cleaner does. A segment without a sound batch is left out, so
the hole may reach over several; Kafka reads on at the next batch. Only a segment too long for an index is divided.

Offsets are never used twice. If checkpoints, snapshots or the header of a damaged last batch say that the log once
reached further than its last sound batch, the copy ends there: with an empty batch, as the cleaner leaves one, so that
consumers pass the hole. A log of magic 0 or 1 ends with an empty segment instead, since it has no such batch.

The state of producers comes from the batches, and after damage from the source's own snapshot at the next segment, if
that is sound: it knows what the lost batches did. If the end of a transaction was lost, and no snapshot
knows it, the transaction is open until its producer's next marker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from sparklog.errors import CorruptCheckpointError
from sparklog.jobs.run.job import Amount, Report
from sparklog.jobs.source import adjacent_batches, reading
from sparklog.log import files
from sparklog.log.checkpoints import encode_leader_epochs, encode_topic_id, parse_leader_epochs
from sparklog.log.config import LogConfig
from sparklog.log.damage_rows import DamagedStretch
from sparklog.log.files import TopicPartition
from sparklog.log.index import POSITION_MAX
from sparklog.log.layout import PartitionLayout, read_layout
from sparklog.log.log_identity import encode_log_id, read_log_id
from sparklog.log.places import PartitionFolder
from sparklog.log.producer_snapshots import snapshots_of
from sparklog.log.producer_state import AbortedTransaction, Producers, encode_aborted
from sparklog.log.scans.losses import LostSegments
from sparklog.log.scans.sound_range import scan_range_past_damage
from sparklog.log.segment import RELATIVE_OFFSET_MAX, Segment
from sparklog.log.windows import Window
from sparklog.record.batches.framing import scan_headers
from sparklog.record.decode.columns import decode_batches
from sparklog.record.format import v2
from sparklog.record.format.v2 import OFFSET_MAX
from sparklog.storage.base import WritableFile
from sparklog.write.active_segment import BatchRun, append_run, new_segment, seal

_CONFIG: Final = LogConfig()
_NONE: Final = -1
_MAGIC: Final = 2
"""The magic of the only format with empty batches."""


@dataclass(frozen=True)
class LogToSalvage:
    """A log to salvage, and the facts that files outside of its folder tell about it.

    Attributes
    ----------
    start_offset, high_watermark
        The offsets in the checkpoints of its directory.
    reached_offset : int
        The log has once reached this offset, by the checkpoints; 0 if they do not tell.
    topic_id : str or None
        The id of its topic, from any partition of it.
    """

    folder: PartitionFolder
    log_bytes: int
    start_offset: int = 0
    reached_offset: int = 0
    high_watermark: int | None = None
    topic_id: str | None = None

    @property
    def name(self) -> str:
        return self.folder.name


@dataclass(frozen=True)
class SalvagedLog:
    """The amounts that were kept of a log, and its damage.

    Attributes
    ----------
    records : int
        The records in the batches, markers included.
    log_bytes : int
        The length of the batches.
    start_offset, end_offset, high_watermark : int
        The offsets of the copy.
    open_transactions : int
        The number of transactions that are open at the end, perhaps since their markers were lost.
    damage : tuple of DamagedStretch
        The bytes and offsets that were lost.
    staged : str
        The name of the folder with the copy until the job has committed it.
    """

    topic: str
    partition: int
    batches: int
    records: int
    log_bytes: int
    start_offset: int
    end_offset: int
    high_watermark: int
    open_transactions: int
    damage: tuple[DamagedStretch, ...] = ()
    staged: str = ""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def lost_bytes(self) -> int:
        return sum(each.length_bytes for each in self.damage)

    @property
    def lost_offsets(self) -> int:
        """The number of offsets that may have had a record, and have none now."""
        return sum(each.end_offset - each.first_offset for each in self.damage)


def salvage_log(source: LogToSalvage, into: PartitionFolder, report: Report) -> SalvagedLog:
    """Write the sound copy of a log into a new folder, and sync it; an `UnreadableLogError` is one of the source."""
    with reading():
        layout = read_layout(source.folder, "skip")
    storage = into.writable
    storage.make_folder(into.location)
    copy, damage = _Copy(source.folder, into), list[DamagedStretch]()
    for part in _parts(layout, source.start_offset):
        if isinstance(part, DamagedStretch):
            damage.append(part)
            copy.lose(part)
        else:
            report(copy.take(*part))
    last, sound_offset = layout.segments[-1] if layout.segments else None, copy.end_offset
    in_folder = (layout.start_offset, 0 if last is None else last.base_offset, _last_snapshot(layout))
    end_offset = max(sound_offset, copy.reached_offset, source.reached_offset, *in_folder)
    (batches, records, log_bytes), written = copy.amounts.tolist(), _written_epochs(source.folder, end_offset)
    copy.finish(end_offset, last, (written or copy.epochs)[-1:])
    log_id = read_log_id(source.folder)
    small = {
        files.LEADER_EPOCH_CHECKPOINT: encode_leader_epochs(written or copy.epochs),
        files.PARTITION_METADATA: None if source.topic_id is None else encode_topic_id(source.topic_id),
        files.LOG_IDENTITY: None if log_id is None else encode_log_id(log_id),
    }
    for name, data in small.items():
        if data is not None:
            copy.write(name, data)
    storage.sync_files([into.file(each.name) for each in storage.names(into.location)])
    storage.sync_folder(into.location)
    mark = source.high_watermark
    return SalvagedLog(
        source.folder.topic,
        source.folder.partition or 0,
        batches,
        records,
        log_bytes,
        max(source.start_offset, copy.bases[0]),
        end_offset,
        end_offset if mark is None else min(mark, end_offset),
        len(copy.producers.open_transactions),
        _bounded(damage, layout, sound_offset, end_offset),
        into.name,
    )


def _parts(layout: PartitionLayout, start_offset: int) -> Iterator[tuple[Segment, Window] | DamagedStretch]:
    """Scan a log past damage, and before it for segments that are gone; an error is one of the source."""
    with reading():
        gone = LostSegments(layout.folder).within(start_offset, layout.start_offset)
        if gone:
            at, path = (layout.folder.topic, layout.folder.partition), layout.folder.path(gone[0], files.LOG)
            reason = "the indexes of the segment exist, but its log does not"
            yield DamagedStretch(*at, path, 0, 0, gone[0], layout.start_offset, reason)
        yield from scan_range_past_damage(layout, layout.start_offset, OFFSET_MAX)


class _Copy:
    """The copy of a log while its segments are written.

    Attributes
    ----------
    end_offset : int
        The offset after the last batch so far.
    reached_offset : int
        The log has reached this offset, by indexes without a log, and the headers of damaged batches that follow the
        last sound one.
    """

    def __init__(self, source: PartitionFolder, into: PartitionFolder) -> None:
        self._source, self._into = source, into
        self._segment: Segment | None = None
        self._log: WritableFile | None = None
        self._offsets, self._times = bytearray(), bytearray()
        self._aborted: list[AbortedTransaction] = []
        self._state = new_segment(0, 0)
        # Batches may be lost since the last snapshot, so that the state of the producers may be wrong.
        self._has_hole, self._magic = True, _MAGIC
        self.producers: Producers = Producers()
        self.epochs: list[tuple[int, int]] = []
        self.bases: list[int] = []
        self.end_offset = self.reached_offset = 0
        # Of batches, records and bytes.
        self.amounts = np.zeros(3, dtype=np.int64)

    def lose(self, stretch: DamagedStretch) -> None:
        """Note that batches are lost."""
        self._has_hole = True
        count = stretch.end_offset - stretch.first_offset
        # A header is believed if it follows the batches before it, and has no more offsets than records fit.
        if stretch.first_offset == max(self.end_offset, self.reached_offset) and 0 < count <= stretch.length_bytes:
            self.reached_offset = stretch.end_offset
        elif not stretch.length_bytes:
            self.reached_offset = max(self.reached_offset, stretch.first_offset)

    def take(self, segment: Segment, window: Window) -> Amount:
        """Append the sound batches of a window of the source's segment; return their amount."""
        base_offset = self._state.segment.base_offset
        if segment is not self._segment:
            self._end_segment()
            base_offset = segment.base_offset
            if self._has_hole:
                self._take_producers(base_offset)
        self._segment, headers = segment, window.headers
        size_bytes = int(headers.column("batch_bytes").sum())
        if self._log is not None and self._state.segment.size_bytes + size_bytes > POSITION_MAX:
            self._end_segment()
            base_offset = self.end_offset
        if self._log is None:
            self._log = self._begin(base_offset)
        for run in adjacent_batches(window):
            start = int(run.headers.column("position")[0]) - run.headers.origin
            self._log.append(run.buffer[start : start + int(run.headers.column("batch_bytes").sum())])
        self._state, offsets, times = append_run(self._state, BatchRun.from_headers(headers), _CONFIG)
        self._offsets += offsets
        self._times += times
        self._aborted += self.producers.fold(window)
        epochs = headers.column("leader_epoch")
        for row in np.flatnonzero(np.diff(epochs, prepend=_NONE)).tolist():
            if epochs[row] > (self.epochs[-1][0] if self.epochs else _NONE):
                self.epochs.append((int(epochs[row]), int(headers.column("base_offset")[row])))
        self.end_offset, self._magic = self._state.end_offset, int(headers.column("magic")[-1])
        records = _record_count(window)
        self.amounts += (len(headers), records, size_bytes)
        return Amount(size_bytes, records)

    def _take_producers(self, offset: int) -> None:
        """Replace the state of the producers by that of the source's snapshot at an offset, if it is sound."""
        path = self._source.path(offset, files.SNAPSHOT)
        data = self._source.storage.read_small(path)
        with suppress(CorruptCheckpointError):
            if data is not None:
                producers = Producers.parse(data, path)
                if all(batch.last_offset < offset for each in producers.entries.values() for batch in each.batches):
                    self.producers, self._has_hole = producers, False

    def _begin(self, base_offset: int) -> WritableFile:
        if self.bases:
            self.write(files.offset_file_name(base_offset, files.SNAPSHOT), self.producers.encode())
        self.bases.append(base_offset)
        self._state = new_segment(base_offset, 0)
        return self._into.writable.create(self._into.path(base_offset, files.LOG))

    def _end_segment(self) -> None:
        """Write the indexes of the segment; its log gets the time of its source, by which retention may go."""
        if self._log is None:
            return
        base_offset = self._state.segment.base_offset
        _, last_entry = seal(self._state)
        self._log.close()
        self._log = None
        indexes = {files.OFFSET_INDEX: self._offsets, files.TIME_INDEX: self._times + last_entry}
        if self._aborted:
            indexes[files.TRANSACTION_INDEX] = bytearray(encode_aborted(self._aborted))
        for suffix, data in indexes.items():
            self.write(files.offset_file_name(base_offset, suffix), bytes(data))
        self._offsets, self._times, self._aborted = bytearray(), bytearray(), []
        stamp = None if self._segment is None else self._source.storage.stamp(self._segment.path())
        if stamp is not None:
            self._into.writable.set_modified_ns(self._into.path(base_offset, files.LOG), stamp.modified_ns)

    def finish(self, end_offset: int, last: Segment | None, epoch: Sequence[tuple[int, int]]) -> None:
        """End the log at an offset.

        Parameters
        ----------
        last : Segment or None
            The last segment of the source.
        epoch : sequence of (int, int)
            The last leader epoch and its start offset; empty if the log has none.
        """
        if end_offset > self.end_offset and self._magic == _MAGIC:
            segment = last if last is not None and last.base_offset < end_offset else self._segment
            if segment is not None and end_offset <= segment.base_offset + RELATIVE_OFFSET_MAX:
                batch = memoryview(v2.empty_at(end_offset - 1, epoch[0][0] if epoch else 0))
                self.take(segment, Window(batch, scan_headers(batch)))
        self._end_segment()
        if not self.bases or end_offset > self.end_offset:
            self._segment, self._log = None, self._begin(end_offset)
            self._end_segment()
        if end_offset > self.bases[0]:
            self.write(files.offset_file_name(end_offset, files.SNAPSHOT), self.producers.encode())

    def write(self, name: str, data: bytes) -> None:
        """Write a small file of the copy."""
        with self._into.writable.create(self._into.file(name)) as file:
            file.append(data)


def _record_count(window: Window) -> int:
    """Count the records of batches; only the contents of a compressed wrapper of magic 0 or 1 tell their number."""
    counts = window.headers.column("record_count")
    known, wrappers = int(counts.clip(0).sum()), window.headers.where(counts < 0)
    if len(wrappers):
        known += sum(each.num_rows for each in decode_batches(window.buffer, wrappers, columns=("offset",)))
    return known


def _bounded(
    damage: Sequence[DamagedStretch], layout: PartitionLayout, sound_offset: int, end_offset: int
) -> tuple[DamagedStretch, ...]:
    """Return the stretches with the offsets after the last sound batch, which end where the copy does."""
    found = [
        each
        if each.first_offset < sound_offset
        else replace(each, first_offset=min(each.first_offset, end_offset), end_offset=min(each.end_offset, end_offset))
        for each in damage
    ]
    if found and found[-1].first_offset >= sound_offset:
        found[-1] = replace(found[-1], end_offset=end_offset)
    elif end_offset > sound_offset and layout.segments:
        last, at = layout.segments[-1], (layout.folder.topic, layout.folder.partition)
        reason = f"the log ends before offset {sound_offset}, and has once reached {end_offset}"
        found.append(DamagedStretch(*at, last.path(), last.size_bytes, 0, sound_offset, end_offset, reason))
    return tuple(found)


def _last_snapshot(layout: PartitionLayout) -> int:
    """Return the offset of the last sound snapshot of producers; 0 if there is none."""
    for offset, path in snapshots_of(layout.folder):
        with suppress(CorruptCheckpointError):
            Producers.parse(layout.storage.read_small(path) or b"", path)
            return offset
    return 0


def _written_epochs(folder: PartitionFolder, end_offset: int) -> Sequence[tuple[int, int]]:
    """Return the leader epochs in the checkpoint of a log up to an offset; none if it is not sound."""
    path = folder.file(files.LEADER_EPOCH_CHECKPOINT)
    with suppress(CorruptCheckpointError):
        written = parse_leader_epochs(folder.storage.read_small(path) or b"", path)
        if all(0 <= a[0] < b[0] and 0 <= a[1] < b[1] for a, b in pairwise([*written, (1 << 31, OFFSET_MAX)])):
            return [each for each in written if each[1] <= end_offset]
    return []
