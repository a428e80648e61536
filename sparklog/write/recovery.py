"""Recovers a partition's folder, so that it can be written to.

Recovery finishes the work that a broker or a writer had begun, cuts off the torn end of the log, and makes the missing
files. It does the same as a broker that loads a log, but is more careful about the bytes that it cuts off:

- A crash tears the last write, and no bytes that were on the disk before. So bytes are cut only at the end of the log,
  where no whole batch follows them, at or above the recovery point, and not after a clean shutdown. All other bytes
  that are no sound batch are damage: recovery refuses the log, unless ``truncate`` insists.
- Every cut is reported, and the bytes are kept beside the log in a ``.cut`` file; see `sparklog.log.files`.

The last batches are always checked. The rest of a log that was closed cleanly is not read.

Source: apache/kafka, LogLoader.java, LogSegment.java (recover, sanityCheck).
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np

from sparklog.errors import CorruptBatchError, CorruptCheckpointError, CorruptLogError
from sparklog.log import files
from sparklog.log.checkpoints import encode_leader_epochs, parse_leader_epochs
from sparklog.log.clock import NS_PER_MS
from sparklog.log.config import LogConfig
from sparklog.log.directory_view import DirectoryView
from sparklog.log.files import cut_file_name, offset_file_name
from sparklog.log.layout import PartitionLayout
from sparklog.log.places import PartitionFolder
from sparklog.log.producer_snapshots import KnownProducers, last_snapshot, producers_after
from sparklog.log.producer_state import Producers, parse_snapshot
from sparklog.log.scans.losses import LostSegments, orphan_bases
from sparklog.write.active_segment import ActiveSegmentState
from sparklog.write.recovery_actions import KEPT, LOSSY, Action, RecoveryActions
from sparklog.write.recovery_end import SoundLog, check_end
from sparklog.write.recovery_indexes import recover_active_segment, recover_older_indexes, refuse_unindexable
from sparklog.write.small_files import BEFORE_LOG_END, lower_offset

FIRST_SEGMENT: Final = (files.LOG, files.OFFSET_INDEX, files.TIME_INDEX)
"""The suffixes of the files in the first segment of an empty log."""
_INDEXES: Final = (files.OFFSET_INDEX, files.TIME_INDEX, files.TRANSACTION_INDEX)
_NONE: Final = -1

LeaderEpochs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Recovered:
    """A log that can be written to.

    Attributes
    ----------
    state : ActiveSegmentState
        The state of the active segment, to which the next batch is appended.
    start_offset : int
        Log start offset.
    producers : Producers
        The state of the producers at the log end offset.
    leader_epochs : tuple of (int, int)
        Epochs and their start offsets; empty for a log that has had no batch.
    actions : tuple of Action
        The changes that were necessary.
    has_segment : bool
        Whether the log now has a segment.
    snapshots : set of int
        The offsets of the producer snapshots now in the folder.
    empty_snapshot : int or None
        The offset of the last of them, if it has no producers.
    """

    state: ActiveSegmentState
    start_offset: int
    producers: Producers
    leader_epochs: LeaderEpochs
    actions: tuple[Action, ...]
    has_segment: bool
    snapshots: Set[int]
    empty_snapshot: int | None = None


def recover_log(
    folder: PartitionFolder,
    config: LogConfig,
    now_ms: int,
    *,
    truncate: bool = False,
    dry_run: bool = False,
    is_thorough: bool = False,
    is_quiet: bool = False,
    view: DirectoryView | None = None,
    begins_log: bool = True,
) -> Recovered:
    """Recover a partition's folder so that it can be written to. The caller holds the lock of its log directory.

    Parameters
    ----------
    folder : PartitionFolder
        The partition's folder. If it does not exist, the log is empty, and ``begins_log`` must be False.
    config : LogConfig
        Sets how far apart index entries are.
    now_ms : int
        Wall-clock time, ms since the epoch.
    truncate : bool
        Whether to cut the log at its first damage even if no crash can have torn it, which loses all records after it.
    dry_run : bool
        Whether to change nothing, and only return the actions that would be taken.
    is_thorough : bool
        Whether to check every batch of the log, not only batches that may not have been on the disk.
    is_quiet : bool
        Whether to log no warnings, since the caller shows the actions.
    view : DirectoryView, optional
        The log directory's files about its logs, read under the lock: once for many logs.
    begins_log : bool
        Whether to make the id and the first segment of a log without segments; if not, the caller makes them.

    Raises
    ------
    CorruptLogError
        The log is damaged where no crash can have torn it.
    """
    view = view or DirectoryView(folder.directory)
    with RecoveryActions(folder, view, dry_run=dry_run, is_quiet=is_quiet) as actions:
        return _recovered(actions, config, now_ms, truncate=truncate, is_thorough=is_thorough, begins_log=begins_log)


def _recovered(
    actions: RecoveryActions, config: LogConfig, now_ms: int, *, truncate: bool, is_thorough: bool, begins_log: bool
) -> Recovered:
    _remove_index_remains(actions)
    _remove_set_aside(actions, config, now_ms)
    remove_leftovers(actions)
    sound = _sound_log(actions, truncate=truncate, is_thorough=is_thorough)
    layout = sound.layout
    # These come before any cut, so that a log that cannot be recovered stays as it is.
    refuse_unindexable(actions, sound)
    with _hinted():
        known = last_snapshot(layout, _snapshots(actions))
        empty_snapshot = known.offset if known is not None and not known.producers.entries else None
        producers = producers_after(known or KnownProducers(Producers(), layout.start_offset), layout, now_ms)
        written = _written_epochs(actions)
        epochs = _leader_epochs(written, layout)
    _cut_torn_tail(actions, layout)
    _lower_checkpoints(actions, layout)
    _remove_orphans(actions, layout)
    if begins_log and not layout.segments:
        actions.begin_log(offset_file_name(layout.start_offset, suffix) for suffix in FIRST_SEGMENT)
    _write_leader_epochs(actions, written, epochs)
    _remove_snapshots(actions, layout, None if known is None else known.offset)
    with _hinted():
        state = recover_active_segment(actions, sound, config, now_ms)
    recover_older_indexes(actions, layout, config)
    has_segment = begins_log or bool(layout.segments)
    snapshots, done = frozenset(_snapshots(actions)), tuple(actions.done)
    return Recovered(state, layout.start_offset, producers, epochs, done, has_segment, snapshots, empty_snapshot)


@contextmanager
def _hinted() -> Iterator[None]:
    """Add advice about damage to an error that is raised only because an index or a snapshot is missing."""
    try:
        yield
    except CorruptBatchError as error:
        raise error.hinted(LOSSY) from error


def remove_leftovers(actions: RecoveryActions) -> None:
    """Finish replacing segments, as a restarted broker does; the caller holds the lock of the log directory."""
    if not any(found.suffix.endswith((files.CLEANED, files.SWAP)) for found, _ in actions.names()):
        return
    swapped = [segment for segment in actions.segments() if segment.swap]
    _remove_undecided(actions, {segment.base_offset for segment in swapped})
    for segment in swapped:
        with segment.open() as log:
            end_offset = log.end().offset
        for found, name in actions.names():
            if not found.suffix.endswith((files.SWAP, files.DELETED)) and (
                segment.base_offset <= found.offset < end_offset
            ):
                actions.remove(name, "since a cleaned segment takes its place")
        # Removed files must not come back beside their replacements.
        actions.sync()
        for found, name in actions.names():
            if found.suffix.endswith(files.SWAP) and found.offset == segment.base_offset:
                actions.rename(name, name.removesuffix(files.SWAP), "to finish a cleaning")


def _remove_set_aside(actions: RecoveryActions, config: LogConfig, now_ms: int) -> None:
    """Remove the files of removed or replaced segments, once readers have had time to move on."""
    for found, name in actions.names():
        if found.suffix.endswith(files.DELETED):
            stamp = actions.storage.stamp(actions.folder.file(name))
            age_ms = None if stamp is None else now_ms - stamp.modified_ns // NS_PER_MS
            if age_ms is None or not 0 <= age_ms < config.file_delete_delay_ms:
                actions.remove(name, "which a broker was about to do")


def _remove_undecided(actions: RecoveryActions, swapped: Set[int]) -> None:
    """Remove the new files of an undecided cleaning, and leftover indexes of a finished one.

    If a ``.cleaned`` file is left, the swap was not decided. That file is removed last, since it is the proof. If none
    is, and the log is in place already, missing indexes are made again from its batches.
    """
    names = [(found, name) for found, name in actions.names() if found.offset not in swapped]
    if not any(found.suffix.endswith(files.CLEANED) for found, _ in names):
        placed = {found.offset for found, _ in names if found.suffix.endswith(files.SWAP)}
        for found, name in names:
            if found.suffix in _INDEXES and found.offset in placed:
                actions.remove(name, "since a cleaning had not finished the indexes of its segment")
    for suffix in (files.SWAP, files.CLEANED):
        for found, name in names:
            if found.suffix.endswith(suffix):
                actions.remove(name, "since its cleaning was not finished")
        actions.sync()


def _sound_log(actions: RecoveryActions, *, truncate: bool, is_thorough: bool) -> SoundLog:
    """Return the log up to a torn end; if it is damaged elsewhere, raise, or with ``truncate`` cut it there."""
    while True:
        try:
            layout = actions.layout()
            _refuse_lost_log(actions, layout, truncate=truncate)
            _refuse_lost_end(actions, layout, truncate=truncate)
            return check_end(actions, layout, is_thorough=is_thorough)
        except CorruptLogError as error:
            if not truncate or error.path is None or error.position is None or actions.is_dry:
                raise
            _cut_at(actions, error.path, error.position)


def _cut_torn_tail(actions: RecoveryActions, layout: PartitionLayout) -> None:
    """Cut off the bytes after the last whole batch, keep them, and warn."""
    if not layout.segments or layout.segments[-1].size_bytes <= layout.end.position:
        return
    name, position = layout.segments[-1].file_name(), layout.end.position
    with actions.storage.open(actions.folder.file(name)) as log:
        size_bytes = log.size_bytes()
    end = size_bytes if layout.zeros_from is None else layout.zeros_from
    where = f"the end of its last whole batch, before offset {layout.end_offset}"
    if end == position:
        actions.cut(name, position, f"{where}; the {size_bytes - position} bytes behind it were zeros")
        actions.warn(
            f"{actions.folder.file(name)} was cut at position {position}, offset {layout.end_offset}: "
            f"{size_bytes - position} bytes of zeros stood behind its last whole batch"
        )
        return
    kept = actions.keep(name, position, end)
    actions.cut(name, position, f"{where}; the {size_bytes - position} bytes behind it are in {kept}, {KEPT}")
    reached = max((found.offset for found, _ in actions.names() if found.suffix == files.SNAPSHOT), default=0)
    lost = f"; a producer snapshot says that the log once reached offset {reached}" * (reached > layout.end_offset)
    actions.warn(
        f"{actions.folder.file(name)} was cut at position {position}, offset {layout.end_offset}: "
        f"{size_bytes - position} "
        f"bytes behind its last whole batch are no batch, as a crash leaves them{lost}. They are in {kept}, {KEPT}"
    )


def _lower_checkpoints(actions: RecoveryActions, layout: PartitionLayout) -> None:
    """Lower the offsets in the log directory's checkpoints that are past the end of the log, as a broker does."""
    at, directory = layout.topic_partition, actions.folder.directory
    for name in BEFORE_LOG_END:
        known = None if at is None else actions.view.offsets(name).get(at)
        if at is None or known is None or known <= layout.end_offset:
            continue
        path = directory.file(name)
        was = f"the line of {at} lowered from {known} to {layout.end_offset}, where its log ends"
        actions.done.append(Action(path, was))
        actions.warn(f"{path}: {was}; records that were there are gone")
        if not actions.is_dry:
            lower_offset(directory, name, at, layout.end_offset)


def _refuse_lost_log(actions: RecoveryActions, layout: PartitionLayout, *, truncate: bool) -> None:
    """Raise if a log lies wholly before its start offset: a broker would delete it, and so would a writer."""
    if layout.segments or not (there := actions.segments()):
        return
    if not truncate:
        raise CorruptLogError(
            f"the log ends before its start offset {layout.start_offset}, so that a broker would delete all of it",
            path=there[-1].path(),
            hint=f"Set its line in {files.LOG_START_CHECKPOINT} right, or let 'sparklog recover --truncate' delete it",
        )
    for found, name in actions.names():
        if found.offset < layout.start_offset:
            actions.remove(name, f"which is before the log start offset {layout.start_offset}")


def _cut_at(actions: RecoveryActions, path: str, position: int) -> None:
    """Cut off the rest of a segment from a damaged batch on, and every later segment. All of it is kept beside the log.

    The damaged batch is cut last: if this is interrupted, the next recovery finds it again, and ignores all after it.
    """
    segment = next(each for each in actions.segments() if each.path() == path)
    name, base_offset = segment.file_name(), segment.base_offset
    # An index is removed before its log: without the log it would prove a loss.
    for found, other in sorted(actions.names(), key=lambda each: (each[0].suffix == files.LOG, -each[0].offset)):
        if found.offset > base_offset and found.suffix == files.LOG:
            kept = next(free for free in _cut_names(found.offset) if not actions.has(free))
            actions.rename(other, kept, f"since it follows the damage, and is lost; {KEPT}")
        elif found.offset > base_offset:
            actions.remove(other, "which follows the damage, and is lost")
        elif found.offset == base_offset and found.suffix in _INDEXES:
            actions.remove(other, "since its log was cut")
    actions.sync()
    with actions.storage.open(actions.folder.file(name)) as log:
        size_bytes = log.size_bytes()
    why = f"where it is damaged, which loses the {size_bytes - position} bytes behind that"
    if size_bytes > position:
        why += f"; they are in {actions.keep(name, position, size_bytes)}, {KEPT}"
    actions.cut(name, position, why)


def _cut_names(base_offset: int) -> Iterator[str]:
    return (cut_file_name(base_offset, 0, number) for number in count())


def _remove_index_remains(actions: RecoveryActions) -> None:
    """Remove the indexes of segments whose logs were set aside: without their logs they would prove a loss."""
    names = list(actions.names())
    set_aside = {found.offset for found, _ in names if found.suffix == files.LOG + files.DELETED}
    set_aside.difference_update(found.offset for found, _ in names if found.suffix == files.LOG)
    remains = [name for found, name in names if found.suffix in _INDEXES and found.offset in set_aside]
    for name in remains:
        actions.remove(name, "since its segment was removed")
    if remains:
        actions.sync()


def _lost_bases(actions: RecoveryActions, layout: PartitionLayout) -> list[int]:
    """Return the base offsets of segments that have only indexes and that no earlier segment reaches."""
    if not orphan_bases(found for found, _ in actions.names()):
        return []
    found = LostSegments(actions.folder).within(layout.start_offset)
    if not layout.segments:
        return found
    return [base for base in found if _end_of(layout, base) <= base]


def _end_of(layout: PartitionLayout, offset: int) -> int:
    """Return the end offset of the segment that an offset belongs to, or its base offset if it is damaged."""
    segment = layout.segments[layout.segment_of(offset)]
    if segment.is_last:
        return layout.end_offset
    try:
        with segment.open() as log:
            return log.end().offset
    except CorruptBatchError:
        return segment.base_offset


def _refuse_lost_end(actions: RecoveryActions, layout: PartitionLayout, *, truncate: bool) -> None:
    """Raise if only the indexes of the last segment are left: its offsets would be used twice."""
    lost = [base for base in _lost_bases(actions, layout) if base >= layout.end_offset]
    if lost and not truncate:
        raise CorruptLogError(
            f"the indexes of segment {lost[0]} exist, but its log does not: the log ends at offset "
            f"{layout.end_offset}, and offsets that were used would be used again",
            path=actions.folder.path(lost[0], files.LOG),
            hint="Put it back; or 'sparklog recover --truncate' ends the log there. A replica may be whole",
        )
    for found, name in actions.names():
        if found.offset in lost and found.suffix in _INDEXES:
            actions.remove(name, "since its segment is lost, and the log ends before it")


def _remove_orphans(actions: RecoveryActions, layout: PartitionLayout) -> None:
    """Remove indexes without a segment, unless they prove that a segment is lost."""
    bases, lost = {segment.base_offset for segment in actions.segments()}, _lost_bases(actions, layout)
    for found, name in actions.names():
        if found.offset in lost and found.suffix in _INDEXES:
            kept = f"kept: its log, from offset {found.offset} on, is lost; a replica may have them"
            actions.done.append(Action(actions.folder.file(name), kept))
            actions.warn(f"{actions.folder.file(name)} is {kept}")
        elif found.suffix in _INDEXES and found.offset not in bases:
            actions.remove(name, "since its segment is not there")


def _leader_epochs(written: LeaderEpochs | None, layout: PartitionLayout) -> LeaderEpochs:
    """Return the leader epochs of a log, from its checkpoint up to the log's end, or else from its batches.

    Raises
    ------
    CorruptBatchError
        The epochs have to be read from the batches, and a batch is damaged.
    """
    right = tuple((epoch, offset) for epoch, offset in written or () if offset <= layout.end_offset)
    return right if right or layout.end_offset <= layout.start_offset else _epochs_of_batches(layout)


def _written_epochs(actions: RecoveryActions) -> LeaderEpochs | None:
    """Return the leader epochs in the checkpoint, empty if it is damaged; None if it does not exist."""
    path = actions.folder.file(files.LEADER_EPOCH_CHECKPOINT)
    data = actions.storage.read_small(path)
    try:
        return tuple(parse_leader_epochs(data, path)) if data else None
    except CorruptCheckpointError:
        return ()


def _write_leader_epochs(actions: RecoveryActions, written: LeaderEpochs | None, epochs: LeaderEpochs) -> None:
    """Write the leader epochs to their checkpoint, unless it has them."""
    if written is not None and not epochs:
        actions.remove(files.LEADER_EPOCH_CHECKPOINT, "since it says nothing of this log")
    elif epochs != (written or ()):
        actions.make(files.LEADER_EPOCH_CHECKPOINT, encode_leader_epochs(epochs), "to say what the batches do")


def _epochs_of_batches(layout: PartitionLayout) -> LeaderEpochs:
    epochs: list[tuple[int, int]] = []
    for segment in layout.segments:
        with segment.open() as log:
            for window in log.windows(log.start, end_position=layout.end.position if segment.is_last else None):
                of_batches = window.headers.column("leader_epoch")
                for row in np.flatnonzero(np.diff(of_batches, prepend=_NONE)).tolist():
                    if of_batches[row] > (epochs[-1][0] if epochs else _NONE):
                        epochs.append((int(of_batches[row]), int(window.headers.column("base_offset")[row])))
    return tuple(epochs)


def _snapshots(actions: RecoveryActions) -> list[int]:
    """Return the offsets of a log's snapshots, the last first."""
    return sorted((found.offset for found, _ in actions.names() if found.suffix == files.SNAPSHOT), reverse=True)


def _remove_snapshots(actions: RecoveryActions, layout: PartitionLayout, sound_offset: int | None) -> None:
    """Remove snapshots that cannot be read, that lie past the end of the log, or that nobody needs.

    ``sound_offset`` is the offset of a snapshot that has been read already.
    """
    bases = {segment.base_offset for segment in actions.segments()}
    offsets = _snapshots(actions)
    latest = max((offset for offset in offsets if offset <= layout.end_offset), default=_NONE)
    has_sound = False
    for offset in offsets:
        name = offset_file_name(offset, files.SNAPSHOT)
        # Nobody reads a snapshot before a sound one, except recovery, if the sound one vanishes some day.
        is_sound = has_sound or offset == sound_offset or _is_sound_snapshot(actions, name)
        has_sound = is_sound and offset <= layout.end_offset
        if not is_sound:
            actions.remove(name, "since it cannot be read: what producers have in flight is read from the log instead")
        elif offset > layout.end_offset:
            actions.remove(name, f"since the log ends at offset {layout.end_offset}")
        elif offset not in bases and offset != latest:
            actions.remove(name, "since a later one is there")


def _is_sound_snapshot(actions: RecoveryActions, name: str) -> bool:
    path = actions.folder.file(name)
    try:
        parse_snapshot(actions.storage.read_small(path) or b"", path)
    except CorruptCheckpointError:
        return False
    return True
