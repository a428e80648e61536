"""Fills, seals and replaces the active segment: of an open log, and of a log that nobody has open."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from sparklog.errors import StorageError
from sparklog.log import files
from sparklog.log.config import LogConfig
from sparklog.log.files import OffsetFile, offset_file_name, parse_offset_file
from sparklog.log.places import PartitionFolder
from sparklog.log.producer_state import Producers, producer_batches
from sparklog.record.encode.batches import EncodedBatches
from sparklog.write.active_segment import (
    ActiveFiles,
    ActiveSegmentState,
    BatchRun,
    append_run,
    new_segment,
    rows_before_roll,
    seal,
)
from sparklog.write.policy import roll_jitter_ms
from sparklog.write.recovery import FIRST_SEGMENT, Recovered
from sparklog.write.small_files import write_atomically


def seal_active(folder: PartitionFolder, state: ActiveSegmentState, producers: Producers) -> ActiveSegmentState:
    """Complete the active segment's indexes, sync it, and write a snapshot of the producers at its end.

    Parameters
    ----------
    state, producers
        The log's state and producers from `sparklog.write.recovery.recover_log`: its indexes end as in the state.
    """
    sealed, last_entry = seal(state)
    base_offset, storage = state.segment.base_offset, folder.writable
    if last_entry:
        with storage.open_for_append(folder.path(base_offset, files.TIME_INDEX)) as index:
            index.append(last_entry)
    storage.sync_files([folder.path(base_offset, suffix) for suffix in FIRST_SEGMENT])
    write_atomically(folder, offset_file_name(state.end_offset, files.SNAPSHOT), producers.encode())
    return sealed


def roll(folder: PartitionFolder, state: ActiveSegmentState, producers: Producers, now_ms: int) -> ActiveSegmentState:
    """Seal the active segment, and begin an empty one at the end of the log; keep it if it is empty already."""
    if not state.segment.size_bytes:
        return state
    seal_active(folder, state, producers)
    for suffix in FIRST_SEGMENT:
        like = folder.path(state.segment.base_offset, suffix)
        folder.writable.create(folder.path(state.end_offset, suffix), like).close()
    folder.writable.sync_folder(folder.location)
    return new_segment(state.end_offset, now_ms)


class OpenEnd:
    """The end of an open log: its active segment, which grows and is rolled.

    Its state is ``tail``, and its files are ``files``. They may be closed by `let_go` and opened again by `take_up`, as
    long as the directory is locked. The producers that recovery found change with the log; ``rng`` is for
    ``segment.jitter.ms``.
    """

    def __init__(self, folder: PartitionFolder, config: LogConfig, found: Recovered, rng: Callable[[], int]) -> None:
        self._folder, self._storage = folder, folder.writable
        self._config, self._producers, self._rng = config, found.producers, rng
        self.tail = replace(found.state, segment=replace(found.state.segment, roll_jitter_ms=self._jitter_ms()))
        self.files = self._opened(self.tail)
        self._preallocate()

    def let_go(self) -> None:
        """Close the files, which the caller has synced."""
        if self._config.preallocate:
            self.files.cut(self.tail)
        self.files.close()

    def take_up(self) -> None:
        """Open files that were let go; raise `StorageError` if another program has changed them since."""
        if self.files.are_open:
            return
        for path, size_bytes in zip(self._paths(self.tail), self.tail.file_bytes, strict=True):
            found = self._storage.stamp(path)
            if found is None or found.size_bytes != size_bytes:
                is_there = "is gone" if found is None else f"has {found.size_bytes} bytes and not {size_bytes}"
                raise StorageError(
                    f"{path} {is_there}: another program has changed it while the log was open. Close the log; to open "
                    f"it again checks its end"
                )
        self.files = self._opened(self.tail, is_cut=False)
        self._preallocate()

    def write(self, encoded: EncodedBatches, producer_id: int, now_ms: int) -> None:
        """Append batches of a producer, -1 for none, and roll when it is due."""
        headers, data = encoded.headers, encoded.data
        while len(headers):
            run = BatchRun.from_headers(headers)
            rows = rows_before_roll(self.tail, run, self._config, now_ms)
            if rows:
                fitting = run if rows == len(run) else run[:rows]
                tail, offset_entries, time_entries = append_run(self.tail, fitting, self._config)
                written_bytes = tail.segment.size_bytes - self.tail.segment.size_bytes
                self.files.log.append(data[:written_bytes])
                data = data[written_bytes:]
                if offset_entries:
                    self.files.offset_index.append(offset_entries)
                    self.files.time_index.append(time_entries)
                self.tail = tail
            if producer_id >= 0:
                # Before the roll, which writes a snapshot of the producers.
                for batch in producer_batches(headers.table[:rows]):
                    self._producers.fold_batch(batch)
            if rows == len(headers):
                return
            headers = headers[rows:]
            self._roll(now_ms)

    def _roll(self, now_ms: int) -> None:
        """Seal the active segment and begin another; empty ones give way to it."""
        self.seal()
        self.files.close()
        if not self.tail.segment.size_bytes:
            for suffix in FIRST_SEGMENT:
                self._storage.remove(self._folder.path(self.tail.segment.base_offset, suffix))
        self.tail = new_segment(self.tail.end_offset, now_ms, self._jitter_ms())
        self.files = self._opened(self.tail)
        self._preallocate()
        self._storage.sync_folder(self._folder.location)

    def seal(self) -> None:
        """Complete the active segment, sync it, and write a snapshot of the producers at its end."""
        self.files.cut(self.tail)
        self.tail, last_entry = seal(self.tail)
        self.files.time_index.append(last_entry)
        self.files.sync()
        snapshot = offset_file_name(self.tail.end_offset, files.SNAPSHOT)
        write_atomically(self._folder, snapshot, self._producers.encode())

    def undo(self, before: ActiveSegmentState) -> None:
        """Restore the log as it was before an append that failed."""
        self.files.close()
        # An index without its log would prove a loss: logs go last.
        entries = self._storage.entries(self._folder.location)
        for entry in sorted(entries, key=lambda entry: entry.name.endswith(files.LOG)):
            found = parse_offset_file(entry.name)
            if found is not None and _is_behind(found, before):
                self._storage.remove(self._folder.file(entry.name))
        # Not preallocated again: on a full disk this would fail, although the append is already undone.
        self.tail, self.files = before, self._opened(before)

    def _opened(self, tail: ActiveSegmentState, *, is_cut: bool = True) -> ActiveFiles:
        """Open the files of a segment, and cut them to the sizes that its state says unless they have these."""
        with ExitStack() as opened:
            paths = self._paths(tail)
            active = ActiveFiles(*(opened.enter_context(self._storage.open_for_append(path)) for path in paths))
            if is_cut:
                active.cut(tail)
            opened.pop_all()
        return active

    def _paths(self, tail: ActiveSegmentState) -> list[str]:
        return [self._folder.path(tail.segment.base_offset, suffix) for suffix in FIRST_SEGMENT]

    def _preallocate(self) -> None:
        if self._config.preallocate:
            self.files.log.preallocate(self._config.segment_bytes)

    def _jitter_ms(self) -> int:
        return roll_jitter_ms(self._config, self._rng())


def _is_behind(file: OffsetFile, tail: ActiveSegmentState) -> bool:
    """Return whether a file belongs to a segment, or an end of one, that was begun after the log had a given end."""
    if file.suffix == files.SNAPSHOT:
        return file.offset > tail.end_offset
    return file.offset > tail.segment.base_offset and file.offset >= tail.end_offset
