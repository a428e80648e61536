"""Opens a partition's folder to be written to: finishes what was begun, cuts what was torn, makes what is missing.

What a broker does when it loads a log, and more careful in one thing: where whole batches follow damage, it is not cut
unless that is asked for, since it loses them. A log that was closed cleanly is not read beyond its end.

Source: apache/kafka, LogLoader.java, LogSegment.java (recover, sanityCheck).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from sparklog.errors import CorruptBatchError, CorruptCheckpointError, CorruptLogError
from sparklog.log import files
from sparklog.log.checkpoints import encode_leader_epochs, parse_leader_epochs, parse_offset_checkpoint
from sparklog.log.config import LogConfig
from sparklog.log.files import OffsetFile, offset_file_name, parse_offset_file
from sparklog.log.index import OFFSET_ENTRY, TIME_ENTRY, Entries, read_entries
from sparklog.log.layout import PartitionLayout, list_segments, read_layout
from sparklog.log.policy import ActiveSegment
from sparklog.log.producer_state import AbortedTransaction, Producers, encode_aborted, producers_at_end, snapshots_of
from sparklog.log.segment import Place, Segment
from sparklog.log.tail import BatchRun, Tail, grown, new_segment, sealed
from sparklog.storage.writing import WritableStorage, write_atomically

_INDEXES: Final = (files.OFFSET_INDEX, files.TIME_INDEX, files.TRANSACTION_INDEX)
_NONE: Final = -1

_LOSSY: Final = "'sparklog recover --truncate' cuts the log there, which loses what follows; a replica may be whole"

LeaderEpochs = tuple[tuple[int, int], ...]


class Action(NamedTuple):
    """Something that was done to a file, or with a dry run would be."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


@dataclass(frozen=True)
class Recovered:
    """A log that may be written to.

    Attributes
    ----------
    tail : Tail
        Where the next batch goes.
    start_offset : int
        Log start offset.
    producers : Producers
        As of the log end offset.
    leader_epochs : tuple of (int, int)
        Epochs and their start offsets; none of a log that has had no batch.
    actions : tuple of Action
        What had to be done.
    """

    tail: Tail
    start_offset: int
    producers: Producers
    leader_epochs: LeaderEpochs
    actions: tuple[Action, ...]


class _Hands:
    """Does what recovery decides, or with a dry run only says it."""

    def __init__(self, storage: WritableStorage, folder: str, *, dry_run: bool) -> None:
        self.storage, self.folder = storage, folder
        self.is_dry = dry_run
        self.actions: list[Action] = []

    def names(self) -> list[tuple[OffsetFile, str]]:
        """List the files of the folder that are named for an offset, but for those that are as good as removed."""
        removed = {action.path for action in self.actions if action.what.startswith("removed")} if self.is_dry else ()
        entries = [entry.name for entry in self.storage.entries(self.folder)]
        return [
            (found, name)
            for name in entries
            if (found := parse_offset_file(name)) and f"{self.folder}/{name}" not in removed
        ]

    def remove(self, name: str, why: str) -> None:
        self._note(name, f"removed, {why}")
        if not self.is_dry:
            self.storage.remove(f"{self.folder}/{name}")

    def rename(self, name: str, new_name: str, why: str) -> None:
        self._note(name, f"renamed to {new_name}, {why}")
        if not self.is_dry:
            self.storage.rename(f"{self.folder}/{name}", f"{self.folder}/{new_name}")

    def cut(self, name: str, size_bytes: int, why: str) -> None:
        self._note(name, f"cut to {size_bytes} bytes, {why}")
        if not self.is_dry:
            with self.storage.open_for_append(f"{self.folder}/{name}") as file:
                file.truncate(size_bytes)
                file.sync()

    def make(self, name: str, data: bytes, why: str) -> None:
        self._note(name, f"made, {why}")
        if not self.is_dry:
            write_atomically(self.storage, f"{self.folder}/{name}", data)

    def make_empty(self, names: Iterable[str]) -> None:
        """Make the files of a new segment: nothing to tell of."""
        if not self.is_dry:
            for name in names:
                self.storage.open_for_append(f"{self.folder}/{name}").close()
            self.storage.sync_folder(self.folder)

    def _note(self, name: str, what: str) -> None:
        self.actions.append(Action(f"{self.folder}/{name}", what))


def recover(
    storage: WritableStorage,
    folder: str,
    config: LogConfig,
    now_ms: int,
    *,
    truncate: bool = False,
    dry_run: bool = False,
) -> Recovered:
    """Make a partition's folder fit to be written to. The caller holds the lock of its log directory.

    Parameters
    ----------
    folder : str
        The partition's folder, which is there.
    config : LogConfig
        Says how far apart index entries are.
    now_ms : int
        The time.
    truncate : bool
        Cut the log at its first damage even where whole batches follow, which loses them.
    dry_run : bool
        Change nothing, and say what would be done.

    Raises
    ------
    CorruptLogError
        The log is damaged, and to cut it there would lose whole batches.
    """
    hands = _Hands(storage, folder, dry_run=dry_run)
    _remove_leftovers(hands)
    layout = _sound_layout(hands, truncate=truncate)
    _remove_orphans(hands, layout)
    epochs = _leader_epochs(hands, layout)
    _remove_snapshots(hands, layout)
    tail = _tail(hands, layout, config, now_ms)
    _mend_older_indexes(hands, layout, config)
    producers = producers_at_end(layout, now_ms)
    return Recovered(tail, layout.start_offset, producers, epochs, tuple(hands.actions))


def _remove_leftovers(hands: _Hands) -> None:
    """Finish replacing and removing segments, as a broker that begins again does."""
    for found, name in hands.names():
        if found.suffix.endswith(files.DELETED):
            hands.remove(name, "which a broker was about to do")
    swapped = [segment for segment in list_segments(hands.storage, hands.folder) if segment.swap]
    for found, name in hands.names():
        is_finished = any(found.offset == segment.base_offset for segment in swapped)
        if found.suffix.endswith(files.CLEANED) or (found.suffix.endswith(files.SWAP) and not is_finished):
            hands.remove(name, "since the cleaning that it is of was not done")
    for segment in swapped:
        with segment.open() as log:
            end_offset = log.end().offset
        for found, name in hands.names():
            if not found.suffix.endswith(files.SWAP) and segment.base_offset <= found.offset < end_offset:
                hands.remove(name, "since a cleaned segment takes its place")
        for found, name in hands.names():
            if found.suffix.endswith(files.SWAP) and found.offset == segment.base_offset:
                hands.rename(name, name.removesuffix(files.SWAP), "to finish a cleaning")


def _sound_layout(hands: _Hands, *, truncate: bool) -> PartitionLayout:
    """Return the layout of the log without a torn end; raise where it is damaged elsewhere, or cut it there."""
    while True:
        try:
            layout = read_layout(hands.folder, hands.storage)
            _refuse_lost_log(hands, layout, truncate=truncate)
            layout = _checked_end(hands, layout)
        except CorruptLogError as error:
            if not truncate or error.path is None or error.position is None or hands.is_dry:
                raise
            _cut_at(hands, error.path.rpartition("/")[2], error.position)
            continue
        if layout.segments and layout.segments[-1].size_bytes > layout.end.position:
            name = layout.segments[-1].path().rpartition("/")[2]
            hands.cut(name, layout.end.position, f"the end of its last whole batch, before offset {layout.end_offset}")
        return layout


def _refuse_lost_log(hands: _Hands, layout: PartitionLayout, *, truncate: bool) -> None:
    """Raise where all of a log is before its start offset: a broker would delete it, and so would a writer."""
    there = list_segments(hands.storage, hands.folder)
    if layout.segments or not there:
        return
    if not truncate:
        raise CorruptLogError(
            f"the log ends before its start offset {layout.start_offset}, so that a broker would delete all of it",
            path=there[-1].path(),
            hint=f"Set its line in {files.LOG_START_CHECKPOINT} right, or let 'sparklog recover --truncate' delete it",
        )
    for found, name in hands.names():
        if found.offset < layout.start_offset:
            hands.remove(name, f"which is before the log start offset {layout.start_offset}")


def _checked_end(hands: _Hands, layout: PartitionLayout) -> PartitionLayout:
    """Check the batches that may not have been on the disk when a log was not closed; where it ends by them."""
    if not layout.segments or _was_closed(hands, layout):
        return layout
    # Compiled code, which a log that was closed does not need.
    from sparklog.record.columns import check_crcs

    for segment in _unsynced(hands, layout):
        with segment.open() as log:
            place = log.start
            try:
                for window in log.windows(log.start):
                    check_crcs(window.buffer, window.headers)
                    place = Place(window.headers.origin + window.headers.valid_bytes, place.offset)
            except CorruptBatchError as error:
                located = CorruptBatchError(
                    error.reason, path=segment.path(), position=error.position, offset=error.offset, hint=_LOSSY
                )
                place = Place(located.position or 0, located.offset or segment.base_offset)
                if not segment.is_last or log.find_whole_batch(place) is not None:
                    raise located from error
                return replace(layout, end=place)
    return layout


def _was_closed(hands: _Hands, layout: PartitionLayout) -> bool:
    """Tell whether all of a log was synced when its writer left it."""
    directory = hands.folder.rpartition("/")[0]
    if any(entry.name == files.CLEAN_SHUTDOWN for entry in hands.storage.entries(directory)):
        return True
    snapshot = OffsetFile(layout.end_offset, files.SNAPSHOT)
    return layout.end_offset == 0 or any(found == snapshot for found, _ in hands.names())


def _unsynced(hands: _Hands, layout: PartitionLayout) -> Sequence[Segment]:
    """Return the segments from the one on up to whose beginning a broker knew all to be on the disk."""
    path = f"{hands.folder.rpartition('/')[0]}/{files.RECOVERY_POINT_CHECKPOINT}"
    try:
        points = parse_offset_checkpoint(hands.storage.read_small(path) or b"", path)
    except CorruptCheckpointError:
        points = {}
    topic_partition = layout.topic_partition
    known = points.get(topic_partition) if topic_partition is not None else None
    first = len(layout.segments) - 1 if known is None else layout.segment_of(known)
    return layout.segments[first:]


def _cut_at(hands: _Hands, name: str, position: int) -> None:
    """Cut the log at a damage: what follows in its segment, and every later segment."""
    cut = parse_offset_file(name.removesuffix(files.SWAP))
    if cut is None:
        raise AssertionError(f"damage is in a segment, and not in {name}")
    with hands.storage.open(f"{hands.folder}/{name}") as log:
        lost_bytes = log.size_bytes() - position
    hands.cut(name, position, f"where it is damaged, which loses the {lost_bytes} bytes behind that")
    for found, other in hands.names():
        if found.offset > cut.offset:
            hands.remove(other, "which follows the damage, and is lost")
        elif found.offset == cut.offset and found.suffix in _INDEXES:
            hands.remove(other, "since its log was cut")


def _remove_orphans(hands: _Hands, layout: PartitionLayout) -> None:
    bases = {segment.base_offset for segment in list_segments(hands.storage, hands.folder)}
    for found, name in hands.names():
        if found.suffix in _INDEXES and found.offset not in bases:
            hands.remove(name, "since its segment is not there")
    if not layout.segments:
        suffixes = (files.LOG, files.OFFSET_INDEX, files.TIME_INDEX)
        hands.make_empty(offset_file_name(layout.start_offset, suffix) for suffix in suffixes)


def _leader_epochs(hands: _Hands, layout: PartitionLayout) -> LeaderEpochs:
    """Return the leader epochs of a log, those left out that begin behind its end."""
    path = f"{hands.folder}/{files.LEADER_EPOCH_CHECKPOINT}"
    data = hands.storage.read_small(path)
    try:
        there = tuple(parse_leader_epochs(data, path)) if data else ()
    except CorruptCheckpointError:
        there = ()
    right = tuple((epoch, offset) for epoch, offset in there if offset <= layout.end_offset)
    if not right and layout.end_offset > layout.start_offset:
        right = _epochs_of_batches(layout)
    if data and not right:
        hands.remove(files.LEADER_EPOCH_CHECKPOINT, "since it says nothing of this log")
    elif right != there:
        hands.make(files.LEADER_EPOCH_CHECKPOINT, encode_leader_epochs(right), "to say what the batches do")
    return right


def _epochs_of_batches(layout: PartitionLayout) -> LeaderEpochs:
    epochs: list[tuple[int, int]] = []
    for segment in layout.segments:
        with segment.open() as log:
            for window in log.windows(log.start):
                of_batches = window.headers.column("leader_epoch")
                for row in np.flatnonzero(np.diff(of_batches, prepend=_NONE)).tolist():
                    if of_batches[row] > (epochs[-1][0] if epochs else _NONE):
                        epochs.append((int(of_batches[row]), int(window.headers.column("base_offset")[row])))
    return tuple(epochs)


def _remove_snapshots(hands: _Hands, layout: PartitionLayout) -> None:
    """Remove snapshots that speak of offsets that there are not, and those that nobody asks for."""
    bases = {segment.base_offset for segment in list_segments(hands.storage, hands.folder)}
    offsets = [offset for offset, _ in snapshots_of(hands.storage, hands.folder)]
    latest = max((offset for offset in offsets if offset <= layout.end_offset), default=_NONE)
    for offset in offsets:
        name = offset_file_name(offset, files.SNAPSHOT)
        if offset > layout.end_offset:
            hands.remove(name, f"since the log ends at offset {layout.end_offset}")
        elif offset not in bases and offset != latest:
            hands.remove(name, "since a later one is there")


def _tail(hands: _Hands, layout: PartitionLayout, config: LogConfig, now_ms: int) -> Tail:
    """Return the end of the log, its active segment's indexes mended and trimmed."""
    if not layout.segments:
        return new_segment(layout.start_offset, now_ms)
    active = replace(layout.segments[-1], size_bytes=layout.end.position)
    offsets, times = _entries(hands, active, files.OFFSET_INDEX), _entries(hands, active, files.TIME_INDEX)
    if offsets is None or times is None or not _are_right(active, layout.end_offset, offsets, times):
        return _rebuilt(hands, layout, len(layout.segments) - 1, config, now_ms)
    for suffix, entries in ((files.OFFSET_INDEX, offsets), (files.TIME_INDEX, times)):
        _trim(hands, active, suffix, entries)
    return _tail_from(active, layout.end, offsets, times, now_ms)


def _tail_from(active: Segment, end: Place, offsets: Entries, times: Entries, now_ms: int) -> Tail:
    """Fold the batches behind the last index entry into what the indexes say."""
    position = int(offsets[-1]["position"]) if len(offsets) else 0
    latest = int(times[-1]["timestamp"]) if len(times) else _NONE
    latest_offset = active.base_offset + int(times[-1]["relative_offset"]) if len(times) else _NONE
    first_timestamp = last_time = _NONE
    last_time = latest
    with active.open() as log:
        if end.position:
            first_timestamp = int(next(log.hop(log.start)).column("max_timestamp")[0])
        for headers in log.hop(Place(position, active.base_offset)) if position < end.position else ():
            for last_offset, timestamp in zip(
                headers.column("last_offset").tolist(), headers.column("max_timestamp").tolist(), strict=True
            ):
                if timestamp > latest and last_offset < end.offset:
                    latest, latest_offset = timestamp, last_offset
    segment = ActiveSegment(active.base_offset, end.position, now_ms, first_timestamp, len(offsets), len(times))
    return Tail(segment, end.offset, end.position - position, latest, latest_offset, last_time)


def _entries(hands: _Hands, segment: Segment, suffix: str) -> Entries | None:
    """Return the entries of an index; None where it is missing."""
    name = offset_file_name(segment.base_offset, suffix)
    if not any(other == name for _, other in hands.names()):
        return None
    with hands.storage.open(f"{hands.folder}/{name}") as index:
        return read_entries(index, OFFSET_ENTRY if suffix == files.OFFSET_INDEX else TIME_ENTRY)


def _are_right(segment: Segment, end_offset: int, offsets: Entries, times: Entries) -> bool:
    """Tell, cheaply, whether indexes may be of a segment: their order, their ends, and the batch they end with."""
    for entries in (offsets, times):
        for name in entries.dtype.names or ():
            if (np.diff(entries[name].astype(np.int64)) <= 0).any():
                return False
    if any(
        len(each) and segment.base_offset + int(each[-1]["relative_offset"]) >= end_offset for each in (times, offsets)
    ):
        return False
    if not len(offsets):
        return True
    last = offsets[-1]
    if not 0 < last["position"] < segment.size_bytes:
        return False
    with segment.open() as log:
        header = log.header_at(int(last["position"]))
    # Older brokers wrote an entry an append: the batch there is then the first of several.
    last_offset = segment.base_offset + int(last["relative_offset"])
    return header is not None and int(header.column("base_offset")[0]) <= last_offset


def _trim(hands: _Hands, segment: Segment, suffix: str, entries: Entries) -> None:
    name = offset_file_name(segment.base_offset, suffix)
    with hands.storage.open(f"{hands.folder}/{name}") as index:
        size_bytes = index.size_bytes()
    if size_bytes != entries.nbytes:
        hands.cut(name, entries.nbytes, "behind its last entry")


def _mend_older_indexes(hands: _Hands, layout: PartitionLayout, config: LogConfig) -> None:
    """Make the indexes that segments before the active one are missing; those that are there are hints anyway."""
    names = {name for _, name in hands.names()}
    for row, segment in enumerate(layout.segments[:-1]):
        if not all(
            offset_file_name(segment.base_offset, suffix) in names for suffix in (files.OFFSET_INDEX, files.TIME_INDEX)
        ):
            _rebuilt(hands, layout, row, config, 0)


def _rebuilt(hands: _Hands, layout: PartitionLayout, row: int, config: LogConfig, now_ms: int) -> Tail:
    """Make all indexes of a segment anew from its batches; what it is as an active segment."""
    segment = layout.segments[row]
    is_active = row + 1 == len(layout.segments)
    tail, aborted = new_segment(segment.base_offset, now_ms), list[AbortedTransaction]()
    producers = _producers_at(layout, segment.base_offset)
    offsets, times = bytearray(), bytearray()
    end_position = layout.end.position if is_active else segment.size_bytes
    with segment.open() as log:
        for window in log.windows(log.start):
            headers = window.headers.where(window.headers.column("position") < end_position)
            tail, offset_entries, time_entries = grown(tail, BatchRun.from_headers(headers), config)
            offsets += offset_entries
            times += time_entries
            aborted += producers.fold(window)
    tail, last_entry = sealed(tail)
    times += last_entry
    for suffix, data in (
        (files.OFFSET_INDEX, bytes(offsets)),
        (files.TIME_INDEX, bytes(times)),
        (files.TRANSACTION_INDEX, encode_aborted(aborted)),
    ):
        if data or suffix != files.TRANSACTION_INDEX:
            hands.make(offset_file_name(segment.base_offset, suffix), data, "from the batches of its log")
    return tail


def _producers_at(layout: PartitionLayout, offset: int) -> Producers:
    return producers_at_end(replace(layout, end=Place(0, max(offset, layout.start_offset))))
