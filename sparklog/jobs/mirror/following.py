"""Makes one log of a mirror equal to its source's, as far as the source has sound batches.

A follower of Kafka compares leader epochs with its leader to find where their logs part, because it sees nothing else
of the leader's log (KIP-101, KIP-279). Both logs are files here, so their bytes are compared: the last batch that the
mirror has of a file must be in the source's at the same position, with the same offset, leader epoch and checksum.
Otherwise the source was cut and written on, and the mirror is cut at the first batch that differs: at the end of the
last epoch that both logs share, or where the source was cut within it.

The log stays readable at every moment, and is one that the source had, up to some offset:

- New batches are appended, segment after segment, and synced. Only then does the state name them; see
  `sparklog.jobs.mirror.state`.
- A segment that the source's cleaner has rewritten is another file there. It is copied beside, and swapped with the
  segments that it replaces, by a broker's renames (`sparklog.cleaner.swap`). Until then the old segments stay.
- Segments that the source has cut off are removed from the end on, segments that it has deleted from the beginning on.

Nothing sound is given up for damage. A damaged batch is not copied, and the log is followed up to it; bytes at the end
of the source that are no batch do not cut the mirror.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sparklog.cleaner.new_segments import NewSegment
from sparklog.cleaner.swap import swap
from sparklog.errors import CorruptBatchError, PathNotFoundError
from sparklog.jobs.mirror.state import HeldBytes, MirrorState, read_state, write_state
from sparklog.jobs.mirror.taken import SoundBatches, TakenFile, TakenLog, is_of_metadata
from sparklog.jobs.run.job import Amount, Report
from sparklog.log import files
from sparklog.log.clock import wall_clock_ms
from sparklog.log.directory_view import DirectoryView
from sparklog.log.layout import topic_id_of
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.log.segment import Segment
from sparklog.log.windows import WindowScan
from sparklog.record.batches.framing import HEADER_BYTES_MAX
from sparklog.storage.base import ReadableFile, WritableFile
from sparklog.write.recovery import remove_leftovers
from sparklog.write.recovery_actions import RecoveryActions
from sparklog.write.small_files import write_atomically

_COMPARED_BYTES: Final = 1 << 20
_INDEXES: Final = (files.OFFSET_INDEX, files.TIME_INDEX, files.TRANSACTION_INDEX)


@dataclass(frozen=True)
class Mirrored:
    """A log that a mirror has brought up to its source.

    Attributes
    ----------
    start_offset, end_offset : int
        The log start offset and the end offset of both logs.
    synced_offset : int
        The base offset of the last segment: a broker makes the indexes from there on.
    copied_bytes : int
        The bytes of batches that were copied.
    """

    name: str
    start_offset: int
    end_offset: int
    synced_offset: int
    copied_bytes: int


class LogMirror:
    """Follows one log.

    Parameters
    ----------
    taken : TakenLog
        The log in the source.
    folder : PartitionFolder
        The log in the mirror, whose directory the caller has locked.
    report : callable
        Receives the bytes that were copied.
    """

    def __init__(self, taken: TakenLog, folder: PartitionFolder, report: Report) -> None:
        self._taken, self._folder, self._report = taken, folder, report
        self._storage, self._state = folder.writable, read_state(folder)
        self._logs = {segment.base_offset: file for segment, file in taken.pairs()}
        self._source, self._copied_bytes = SoundBatches(), 0

    def follow(self) -> Mirrored:
        """Follow the source up to the end that the look has found.

        Raises
        ------
        CorruptBatchError
            The source is damaged; the mirror has all batches before the damage.
        PathNotFoundError
            The source changed meanwhile: look at it again.
        """
        before = dict(self._state)
        self._storage.make_folder(self._folder.location)
        self._storage.sync_folder(self._folder.directory.path)
        self._undo_unfinished()
        self._match()
        self._remove_gone()
        for segment, file in self._taken.pairs():
            self._copy_log(segment, file)
        self._copy_others()
        if self._state != before:
            write_state(self._folder, self._state)
        layout = self._taken.layout
        last = layout.segments[-1].base_offset if layout.segments else layout.start_offset
        return Mirrored(self._folder.name, layout.start_offset, layout.end_offset, last, self._copied_bytes)

    def _bases(self) -> list[int]:
        """List the segments that the mirror has."""
        names = (files.parse_offset_file(each.name) for each in self._storage.names(self._folder.location))
        return sorted(each.offset for each in names if each is not None and each.suffix == files.LOG)

    def _held(self, base: int) -> HeldBytes | None:
        """Return what the mirror has of a segment of the source; None if it has another file, or nothing."""
        return self._state.get(self._logs[base].name) if base in self._logs else None

    def _undo_unfinished(self) -> None:
        """Finish or undo the swap of a mirror that died, and cut off what it had appended and not recorded."""
        view = DirectoryView(self._folder.directory)
        with RecoveryActions(self._folder, view, dry_run=False, is_quiet=True) as actions:
            remove_leftovers(actions)
        for each in self._storage.entries(self._folder.location, files.is_log_file):
            if each.name.endswith(files.DELETED):
                self._storage.remove(self._folder.file(each.name))
            held = self._state.get(each.name)
            if held is None or not each.name.endswith(files.LOG):
                continue
            if each.size_bytes < held.copied_bytes:
                del self._state[each.name]
            elif each.size_bytes > held.copied_bytes:
                self._truncate(each.name, held.copied_bytes)

    def _truncate(self, name: str, size_bytes: int) -> None:
        with self._storage.open_for_append(self._folder.file(name)) as file:
            file.truncate(size_bytes)
            file.sync()

    def _match(self) -> None:
        """Forget the files that are not the source's any more, and cut files that it has cut and written on."""
        here = set(self._bases())
        for segment, file in self._taken.pairs():
            held = self._state.get(file.name)
            if held is None:
                continue
            if segment.base_offset not in here or not self._is_same_file(segment, file, held):
                del self._state[file.name]
            elif (held.stamp, held.copied_bytes) != (file.stamp, file.size_bytes):
                self._cut_to_common(segment, file, held)

    def _is_same_file(self, segment: Segment, file: TakenFile, held: HeldBytes) -> bool:
        """Return whether the source's file is the one that the mirror has, or another one with the same bytes."""
        if held.stamp.identity == file.stamp.identity:
            return True
        if file.size_bytes < held.copied_bytes:
            return False
        with segment.file() as theirs, self._storage.open(self._folder.file(file.name)) as ours:
            return _first_difference(theirs, ours, held.copied_bytes) == held.copied_bytes

    def _cut_to_common(self, segment: Segment, file: TakenFile, held: HeldBytes) -> None:
        path = self._folder.file(file.name)
        with segment.file() as theirs, self._storage.open(path) as ours:
            if file.size_bytes >= held.copied_bytes and _has_batch(theirs, ours, held):
                return
            end_position = _first_difference(theirs, ours, min(file.size_bytes, held.copied_bytes))
            end_position, last_position = _boundary(ours, end_position)
        if segment.is_last and end_position == file.size_bytes < segment.size_bytes:
            raise CorruptBatchError(
                f"no batch begins here, and the mirror has {held.copied_bytes - end_position} bytes of batches from "
                f"here on, which it keeps",
                path=segment.path(),
                position=end_position,
                offset=self._taken.layout.end_offset,
                hint="Repair the source with 'sparklog recover'; the mirror then follows it",
            )
        # From the end on, and without indexes that know of more: at no time are batches missing between others.
        for base in reversed(self._bases()):
            if base > segment.base_offset:
                self._remove_segment(base)
        self._remove_files(segment.base_offset, _INDEXES)
        self._state[file.name] = HeldBytes(file.lasting, end_position, last_position)
        write_state(self._folder, self._state)
        self._truncate(file.name, end_position)

    def _remove_gone(self) -> None:
        """Remove segments after the end of one that both have, where the source was cut; and those it has deleted."""
        bases, here = sorted(self._logs), self._bases()
        for base in reversed(here):
            row = bisect_right(bases, base) - 1
            if base not in self._logs and row >= 0 and self._held(bases[row]) is not None:
                self._remove_segment(base)
        for base in here:
            if not bases or base < bases[0]:
                self._remove_segment(base)

    def _remove_segment(self, base: int) -> None:
        # The log last: an index without it would say that records were lost. And one segment after the other.
        self._remove_files(base, (*_INDEXES, files.LOG))
        self._storage.sync_folder(self._folder.location)

    def _remove_files(self, base: int, suffixes: Sequence[str]) -> None:
        for suffix in suffixes:
            self._storage.remove(self._folder.path(base, suffix))
            self._state.pop(files.offset_file_name(base, suffix), None)

    def _copy_log(self, segment: Segment, file: TakenFile) -> None:
        held, base = self._held(segment.base_offset), segment.base_offset
        if held is not None and held.copied_bytes == file.size_bytes:
            self._state[file.name] = held._replace(stamp=file.lasting)
            self._source.pass_over(segment, file)
            return
        here = self._bases()
        replaced = [row for row in here if base <= row < segment.upper_offset and self._held(row) is None]
        if held is None and (replaced or any(row > base for row in here)):
            self._replace(segment, file, replaced)
            return
        before = now = held or HeldBytes(file.lasting, 0)
        if before.copied_bytes:
            with self._storage.open(self._folder.file(file.name)) as ours:
                self._source.follow(segment, before.last_position, _last_header(ours, before))
        with self._storage.open_for_append(self._folder.file(file.name)) as out:
            try:
                for each in self._append(segment, file, before.copied_bytes, out):
                    now = each
            except PathNotFoundError:
                now = before
                raise
            finally:
                # Before a damaged batch there may be sound ones.
                if out.size_bytes() > now.copied_bytes:
                    out.truncate(now.copied_bytes)
                out.sync()
                self._record(file, now, is_new=base not in here)
        if not segment.is_last:
            self._storage.set_modified_ns(self._folder.file(file.name), file.stamp.modified_ns)

    def _append(self, segment: Segment, file: TakenFile, position: int, out: WritableFile) -> Iterator[HeldBytes]:
        """Copy the batches that the mirror lacks, and yield again and again what it has then."""
        for data in self._source.read(segment, position, file.size_bytes):
            out.append(data)
            self._copied_bytes += len(data)
            self._report(Amount(len(data)))
            yield HeldBytes(file.lasting, self._source.end_position, self._source.last_position)

    def _record(self, file: TakenFile, held: HeldBytes, *, is_new: bool) -> None:
        if is_new:
            self._storage.sync_folder(self._folder.location)
        self._state[file.name] = held
        write_state(self._folder, self._state)

    def _replace(self, segment: Segment, file: TakenFile, replaced: list[int]) -> None:
        """Copy a segment beside the log, and swap it with the segments whose records it has."""
        path, held = self._folder.path(segment.base_offset, files.LOG + files.CLEANED), HeldBytes(file.lasting, 0)
        with self._storage.create(path) as out:
            for each in self._append(segment, file, 0, out):
                held = each
            out.sync()
        self._storage.set_modified_ns(path, file.stamp.modified_ns)
        self._storage.sync_folder(self._folder.location)
        new = NewSegment(segment.base_offset, segment.upper_offset, held.copied_bytes, (files.LOG,))
        for base in replaced:
            for name in [name for name in self._state if name.startswith(files.offset_file_name(base, ""))]:
                del self._state[name]
        swap(self._folder, [new], replaced, 0, wall_clock_ms())
        self._record(file, held, is_new=False)

    def _copy_others(self) -> None:
        """Copy indexes, snapshots and small files, and remove files that the source does not have."""
        wanted = {file.name: file for file in self._taken.others}
        here = {each.name for each in self._storage.names(self._folder.location)}
        for name in sorted(here - wanted.keys()):
            at = files.parse_offset_file(name)
            is_other = name != files.LEADER_EPOCH_CHECKPOINT and (at is None or at.suffix != files.LOG)
            if is_of_metadata(name) and is_other:
                self._storage.remove(self._folder.file(name))
                self._state.pop(name, None)
        for name, file in wanted.items():
            held = self._state.get(name)
            if name not in here or held is None or held.stamp != file.stamp:
                put_small(self._folder, name, self._taken.read_small(file))
                self._state[name] = HeldBytes(file.lasting, file.size_bytes)
        put_small(self._folder, files.LEADER_EPOCH_CHECKPOINT, self._taken.epochs_taken())


def put_small(place: LogDirectory | PartitionFolder, name: str, data: bytes | None) -> None:
    """Make a small file of a mirror have some bytes, or remove it if they are None; an equal one is not written."""
    if data is None:
        place.writable.remove(place.file(name))
    elif place.storage.read_small(place.file(name)) != data:
        write_atomically(place, name, data)


def is_other_log(taken: TakenLog, folder: PartitionFolder) -> bool:
    """Return whether a log of a mirror is of another topic of that name, which was deleted in the source."""
    here, there = topic_id_of(folder), topic_id_of(taken.folder)
    return here is not None and there is not None and here != there


def may_be_cut(taken: TakenLog, folder: PartitionFolder, state: MirrorState) -> bool:
    """Return whether the last segment that a mirror has of a log is not, or not so far, in the source any more."""
    segments = dict(zip((file.name for file in taken.logs), taken.layout.segments, strict=True))
    held = {name: each for name, each in state.items() if name.endswith(files.LOG)}
    last = max(held, default="")
    if not last:
        return False
    file = next((each for each in taken.logs if each.name == last), None)
    if file is None or file.size_bytes < held[last].copied_bytes:
        return True
    if file.stamp == held[last].stamp:
        return False
    # A mirror that died has removed the file, or the source has just removed its own.
    with suppress(PathNotFoundError), segments[last].file() as theirs, folder.storage.open(folder.file(last)) as ours:
        return not _has_batch(theirs, ours, held[last])
    return True


def _has_batch(theirs: ReadableFile, ours: ReadableFile, held: HeldBytes) -> bool:
    """Return whether the last batch that the mirror has is in the source, by its offset, epoch and checksum."""
    return _last_header(theirs, held) == _last_header(ours, held)


def _last_header(file: ReadableFile, held: HeldBytes) -> bytes:
    return bytes(file.read(held.last_position, min(HEADER_BYTES_MAX, held.copied_bytes - held.last_position)))


def _first_difference(theirs: ReadableFile, ours: ReadableFile, size_bytes: int) -> int:
    """Return the position of the first byte that differs."""
    for position in range(0, size_bytes, _COMPARED_BYTES):
        length_bytes = min(_COMPARED_BYTES, size_bytes - position)
        one, other = bytes(theirs.read(position, length_bytes)), bytes(ours.read(position, length_bytes))
        if one != other:
            same = next((row for row, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
            return position + (min(len(one), len(other)) if same is None else same)
    return size_bytes


def _boundary(file: ReadableFile, position: int) -> tuple[int, int]:
    """Return the last end of a batch up to a position, and where that batch begins."""
    end_position = last_position = 0
    for window in WindowScan(file, 0, position):
        last = window.headers.table[-1]
        last_position = int(last["position"])
        end_position = last_position + int(last["batch_bytes"])
    return end_position, last_position
