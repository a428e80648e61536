"""Recovers the indexes of a log: makes missing and wrong ones again from its batches.

Source: apache/kafka, LogSegment.java (recover, sanityCheck).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from sparklog.errors import CorruptBatchError, CorruptLogError
from sparklog.log import files
from sparklog.log.config import LogConfig
from sparklog.log.files import offset_file_name
from sparklog.log.index import OFFSET_ENTRY, POSITION_MAX, TIME_ENTRY, TRANSACTION_ENTRY, Entries, read_entries
from sparklog.log.layout import PartitionLayout, cut_at
from sparklog.log.producer_snapshots import producers_at_end
from sparklog.log.producer_state import AbortedTransaction, encode_aborted
from sparklog.log.scans.of_range import refuse_damaged_window
from sparklog.log.segment import OffsetPosition, Segment
from sparklog.record.format.headers import BatchHeaders
from sparklog.write.active_segment import ActiveSegmentState, BatchRun, append_run, new_segment, seal
from sparklog.write.policy import ActiveSegment
from sparklog.write.recovery_actions import RecoveryActions
from sparklog.write.recovery_end import SoundLog

_NONE: Final = -1
_FROM_BATCHES: Final = "from the batches of its log"


def recover_active_segment(
    actions: RecoveryActions, sound: SoundLog, config: LogConfig, now_ms: int
) -> ActiveSegmentState:
    """Return the state of the active segment, after making wrong indexes again and trimming all."""
    layout = sound.layout
    if not layout.segments:
        return new_segment(layout.start_offset, now_ms)
    active = layout.segments[-1]
    kept = _kept_indexes(actions, active, sound)
    if kept is None:
        return _rebuilt(actions, layout, len(layout.segments) - 1, config, now_ms)
    offsets, times = kept
    for suffix, entries in ((files.OFFSET_INDEX, offsets), (files.TIME_INDEX, times)):
        _trim(actions, active, suffix, entries)
    _trim_transactions(actions, active, layout.end_offset)
    return _state_from(active, sound, offsets, times, now_ms)


def refuse_unindexable(actions: RecoveryActions, sound: SoundLog) -> None:
    """Raise `CorruptLogError` if indexes must be made for a segment that is too long for them.

    Indexes that reach as far as they can are kept: all offsets are found with them, and an append rolls.
    """
    for segment in sound.layout.segments:
        size_bytes = sound.layout.end.position if segment.is_last else segment.size_bytes
        if size_bytes > POSITION_MAX and _kept_indexes(actions, segment, sound) is None:
            raise CorruptLogError(
                f"the segment has {size_bytes} bytes, and its indexes are missing or wrong: they cannot be made, since "
                f"they hold no position above {POSITION_MAX}",
                path=segment.path(),
                position=POSITION_MAX,
                hint="Copy the log to another directory with 'sparklog copy --keep-offsets', which makes shorter "
                "segments; no broker starts on a directory with this one",
            )


def _kept_indexes(actions: RecoveryActions, segment: Segment, sound: SoundLog) -> tuple[Entries, Entries] | None:
    """Return the entries of a segment's indexes; None if they must be made again."""
    offsets, times = _entries(actions, segment, files.OFFSET_INDEX), _entries(actions, segment, files.TIME_INDEX)
    # Those of an older segment are only hints to readers.
    if offsets is None or times is None or (segment.is_last and not _are_right(segment, sound, offsets, times)):
        return None
    return offsets, times


def _state_from(active: Segment, sound: SoundLog, offsets: Entries, times: Entries, now_ms: int) -> ActiveSegmentState:
    """Make the state of the active segment from its indexes and the batches after their last entries."""
    end = sound.layout.end
    position = int(offsets[-1]["position"]) if len(offsets) else 0
    latest = int(times[-1]["timestamp"]) if len(times) else _NONE
    latest_offset = active.base_offset + int(times[-1]["relative_offset"]) if len(times) else _NONE
    first_timestamp, last_time = _NONE, latest
    if end.position:
        first = next(_batches_from(active, sound, 0))
        first_timestamp = int(first.column("max_timestamp")[0])
    for headers in _batches_from(active, sound, position) if position < end.position else ():
        for last_offset, timestamp in zip(
            headers.column("last_offset").tolist(), headers.column("max_timestamp").tolist(), strict=True
        ):
            if timestamp > latest and last_offset < end.offset:
                latest, latest_offset = timestamp, last_offset
    segment = ActiveSegment(active.base_offset, end.position, now_ms, first_timestamp, len(offsets), len(times))
    return ActiveSegmentState(segment, end.offset, end.position - position, latest, latest_offset, last_time)


def _batches_from(active: Segment, sound: SoundLog, position: int) -> Iterator[BatchHeaders]:
    """Scan the headers of the active segment from a batch boundary on, from the tail or else from the file."""
    known = sound.tail_from(position)
    if known is not None:
        yield known
        return
    with active.open() as log:
        # A dry run has not cut off the end.
        log.is_to_be_cut = True
        yield from log.single_headers(OffsetPosition(position, active.base_offset))


def _entries(actions: RecoveryActions, segment: Segment, suffix: str) -> Entries | None:
    """Return the entries of an index; None if it is missing."""
    name = offset_file_name(segment.base_offset, suffix)
    if not actions.lists(name):
        return None
    with actions.opened(name) as index:
        return read_entries(index, OFFSET_ENTRY if suffix == files.OFFSET_INDEX else TIME_ENTRY)


def _are_right(segment: Segment, sound: SoundLog, offsets: Entries, times: Entries) -> bool:
    """Return whether indexes may belong to a segment: a cheap check of order, last entries and the batch there."""
    if not (_ascends(offsets) and _ascends(times)):
        return False
    relative_end = sound.layout.end_offset - segment.base_offset
    if any(len(each) and int(each["relative_offset"][-1]) >= relative_end for each in (times, offsets)):
        return False
    if not len(offsets):
        return True
    relative_offset, position = offsets[-1].tolist()
    if not 0 < position < sound.layout.end.position:
        return False
    header = sound.tail_from(position)
    if header is None:
        with segment.open() as log:
            header = log.header_at(position)
    # Older brokers wrote one entry for each append: the batch there is then the first of several.
    return header is not None and int(header.column("base_offset")[0]) <= segment.base_offset + relative_offset


def _ascends(entries: Entries) -> bool:
    """Return whether the entries of an index ascend in all of their fields."""
    if len(entries) < 2:
        return True
    columns = (entries[name] for name in entries.dtype.names or ())
    return not any(np.count_nonzero(column[1:] <= column[:-1]) for column in columns)


def _trim(actions: RecoveryActions, segment: Segment, suffix: str, entries: Entries) -> None:
    name = offset_file_name(segment.base_offset, suffix)
    with actions.opened(name) as index:
        size_bytes = index.size_bytes()
    if size_bytes != entries.nbytes:
        actions.cut(name, entries.nbytes, "behind its last entry")


def _trim_transactions(actions: RecoveryActions, segment: Segment, end_offset: int) -> None:
    """Cut the transaction index of the active segment, if there is one, to whole entries of the log's offsets."""
    name = offset_file_name(segment.base_offset, files.TRANSACTION_INDEX)
    if not actions.lists(name):
        return
    with actions.opened(name) as index:
        data = index.read(0, index.size_bytes())
    entries = np.frombuffer(data, TRANSACTION_ENTRY, len(data) // TRANSACTION_ENTRY.itemsize)
    sound = int((np.maximum.accumulate(entries["last_offset"]) < end_offset).sum())
    if sound * TRANSACTION_ENTRY.itemsize != len(data):
        actions.cut(name, sound * TRANSACTION_ENTRY.itemsize, "behind its last entry for an offset of the log")


def recover_older_indexes(actions: RecoveryActions, layout: PartitionLayout, config: LogConfig) -> None:
    """Make the missing indexes of the segments before the active one; existing ones are only hints anyway."""
    names = {name for _, name in actions.names()}
    for row, segment in enumerate(layout.segments[:-1]):
        if not all(
            offset_file_name(segment.base_offset, suffix) in names for suffix in (files.OFFSET_INDEX, files.TIME_INDEX)
        ):
            try:
                _rebuilt(actions, layout, row, config, 0)
            except CorruptBatchError as error:
                # Readers do without the index, and report the damage when they reach it.
                actions.warn(f"{error}; the indexes of that segment are not made again")


def _rebuilt(
    actions: RecoveryActions, layout: PartitionLayout, row: int, config: LogConfig, now_ms: int
) -> ActiveSegmentState:
    """Make all indexes of a segment again from its batches; return its state as an active segment."""
    segment = layout.segments[row]
    is_active = row + 1 == len(layout.segments)
    state, aborted = new_segment(segment.base_offset, now_ms), list[AbortedTransaction]()
    producers = producers_at_end(cut_at(layout, max(segment.base_offset, layout.start_offset)))
    offsets, times = bytearray(), bytearray()
    end_position = layout.end.position if is_active else segment.size_bytes
    with segment.open() as log:
        for window in log.windows(log.start, end_position=end_position):
            refuse_damaged_window(segment, window)
            headers = window.headers
            state, offset_entries, time_entries = append_run(state, BatchRun.from_headers(headers), config)
            offsets += offset_entries
            times += time_entries
            aborted += producers.fold(window)
    state, last_entry = seal(state)
    times += last_entry
    for suffix, data in ((files.OFFSET_INDEX, bytes(offsets)), (files.TIME_INDEX, bytes(times))):
        actions.make(offset_file_name(segment.base_offset, suffix), data, _FROM_BATCHES)
    _remake_transactions(actions, offset_file_name(segment.base_offset, files.TRANSACTION_INDEX), aborted)
    return state


def _remake_transactions(actions: RecoveryActions, name: str, aborted: Sequence[AbortedTransaction]) -> None:
    """Make a transaction index again; if nothing was aborted there is none."""
    if aborted:
        actions.make(name, encode_aborted(aborted), _FROM_BATCHES)
    elif actions.lists(name):
        actions.remove(name, "which names transactions that its log does not abort")
