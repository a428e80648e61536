"""Writes the segments that replace a group, beside the old ones, as ``.cleaned`` files with all indexes.

A group becomes one segment, or several if the new batches do not fit into one: where another codec makes batches
longer, for example. They follow each other without a gap, so that a broker which finishes the swap removes every
source; see `sparklog.cleaner.swap`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from sparklog.errors import SeglogError
from sparklog.log import files
from sparklog.log.config import LogConfig
from sparklog.log.index import POSITION_MAX
from sparklog.log.places import PartitionFolder
from sparklog.log.producer_state import AbortedTransaction, encode_aborted
from sparklog.log.properties import LONG_MAX
from sparklog.log.segment import RELATIVE_OFFSET_MAX
from sparklog.record.batches.framing import scan_headers
from sparklog.record.format.headers import BatchHeaders
from sparklog.storage.base import WritableFile
from sparklog.write.active_segment import ActiveSegmentState, BatchRun, append_run, new_segment, rows_before_roll, seal

_BUFFERED_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class NewSegment:
    """A segment that is written but not yet in place.

    Attributes
    ----------
    end_offset : int
        The offset after its last batch; the base offset of an empty one.
    suffixes : tuple of str
        Which files it has, the log first.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    suffixes: tuple[str, ...]


@dataclass
class _Growing:
    """The new segment that batches are appended to."""

    state: ActiveSegmentState
    offsets: bytearray = field(default_factory=bytearray)
    times: bytearray = field(default_factory=bytearray)
    buffer: bytearray = field(default_factory=bytearray)
    log: WritableFile | None = None


class NewSegments:
    """The segments that replace a group. Nothing is written while they equal the group's only source.

    Parameters
    ----------
    folder : PartitionFolder
        The folder of the log.
    base_offset : int
        The base offset of the first source.
    config : LogConfig
        Sets how far apart index entries are, and when a segment is full.
    source_path, source_bytes
        The path of the group's only log (None if it has several), and the size of all its logs.
    dry_run : bool
        Whether to count only and write nothing.
    """

    def __init__(
        self,
        folder: PartitionFolder,
        base_offset: int,
        config: LogConfig,
        *,
        source_path: str | None,
        source_bytes: int,
        dry_run: bool = False,
    ) -> None:
        self._folder, self._dry_run = folder, dry_run
        self._source_path, self._source_bytes = source_path, source_bytes
        self._old_path = folder.path(base_offset, files.LOG)
        # A segment larger than today's limit of the topic stays whole, unless no broker starts on it.
        self._config = replace(
            config,
            segment_bytes=min(max(config.segment_bytes, source_bytes), POSITION_MAX),
            segment_index_bytes=RELATIVE_OFFSET_MAX,
            segment_ms=LONG_MAX,
            cleanup_policy=("delete",),
        )
        self._growing = _Growing(new_segment(base_offset, 0))
        self._done: list[NewSegment] = []
        self._aborted: list[AbortedTransaction] = []
        self.batches = self.size_bytes = 0

    @property
    def end_offset(self) -> int:
        """The offset after the last batch so far."""
        return self._growing.state.end_offset

    @property
    def is_unchanged(self) -> bool:
        """Whether all batches so far are the first ones of the only source, byte by byte."""
        return self._source_path is not None

    def append(self, batches: memoryview, source_position: int | None = None) -> None:
        """Append whole batches.

        Parameters
        ----------
        source_position : int, optional
            Their position in the only source, if they are copied from there unchanged.
        """
        headers = scan_headers(batches)
        self._check(headers, len(batches))
        self.batches += len(headers)
        self.size_bytes += len(batches)
        run = BatchRun.from_headers(headers)
        while len(run):
            rows = rows_before_roll(self._growing.state, run, self._config, 0)
            if rows:
                run_bytes = run[:rows].size_bytes
                self._take(batches[:run_bytes], run[:rows], source_position)
                batches, run = batches[run_bytes:], run[rows:]
                source_position = None if source_position is None else source_position + run_bytes
            if len(run):
                self._next()

    def add_aborted(self, transactions: Sequence[AbortedTransaction]) -> None:
        """Add entries for the transaction index."""
        self._aborted += transactions

    def _check(self, headers: BatchHeaders, size_bytes: int) -> None:
        """Refuse anything but whole batches in order, which would damage the log."""
        last_offsets = headers.column("last_offset")
        lowest = np.concatenate(([self.end_offset], last_offsets[:-1] + 1)) if len(headers) else last_offsets
        if headers.valid_bytes != size_bytes or (headers.column("base_offset") < lowest).any():
            raise SeglogError(
                f"the bytes to write after offset {self.end_offset} of {self._folder.location} are not whole batches "
                f"in the order of their offsets: the log is left as it is"
            )

    def _take(self, batches: memoryview, run: BatchRun, source_position: int | None) -> None:
        growing = self._growing
        if self.is_unchanged and source_position != growing.state.segment.size_bytes:
            self._write_what_was_unchanged()
        growing.state, offsets, times = append_run(growing.state, run, self._config)
        growing.offsets += offsets
        growing.times += times
        if not self.is_unchanged and not self._dry_run:
            growing.buffer += batches
            if len(growing.buffer) > _BUFFERED_BYTES_MAX:
                self._flush()

    def _write_what_was_unchanged(self) -> None:
        source_path, self._source_path = self._source_path, None
        size_bytes = self._growing.state.segment.size_bytes
        if size_bytes and source_path is not None and not self._dry_run:
            self._log().append_from(source_path, 0, size_bytes)

    def _log(self) -> WritableFile:
        if self._growing.log is None:
            path = self._folder.path(self._growing.state.segment.base_offset, files.LOG + files.CLEANED)
            self._growing.log = self._folder.writable.create(path, like=self._old_path)
        return self._growing.log

    def _flush(self) -> None:
        if self._growing.buffer:
            self._log().append(self._growing.buffer)
            self._growing.buffer = bytearray()

    def _next(self) -> None:
        """End a segment, and begin another where it ends."""
        if self.is_unchanged:
            self._write_what_was_unchanged()
        end_offset = self.end_offset
        self._end_segment()
        self._growing = _Growing(new_segment(end_offset, 0))

    def _end_segment(self) -> None:
        growing = self._growing
        growing.state, last_entry = seal(growing.state)
        growing.times += last_entry
        base_offset, end_offset = growing.state.segment.base_offset, growing.state.end_offset
        indexes = {files.OFFSET_INDEX: bytes(growing.offsets), files.TIME_INDEX: bytes(growing.times)}
        if not self._dry_run:
            self._flush()
            with self._log():
                pass
            growing.log = None
            for suffix, data in indexes.items():
                self._write(base_offset, suffix, data)
        self._done.append(NewSegment(base_offset, end_offset, growing.state.segment.size_bytes, (files.LOG, *indexes)))

    def _write(self, base_offset: int, suffix: str, data: bytes) -> None:
        with self._folder.writable.create(self._path(base_offset, suffix), like=self._old_path) as file:
            file.append(data)

    def _with_transactions(self, segment: NewSegment) -> NewSegment:
        """Write the transaction index of a segment, if it needs one.

        This comes last: the aborted transactions are known at the end of a source, and a source may reach into
        several new segments.
        """
        aborted = [each for each in self._aborted if segment.base_offset <= each.last_offset < segment.end_offset]
        if not aborted:
            return segment
        if not self._dry_run:
            self._write(segment.base_offset, files.TRANSACTION_INDEX, encode_aborted(aborted))
        return replace(segment, suffixes=(*segment.suffixes, files.TRANSACTION_INDEX))

    def _path(self, base_offset: int, suffix: str) -> str:
        return self._folder.path(base_offset, suffix + files.CLEANED)

    def finish(self, modified_ns: int) -> tuple[NewSegment, ...]:
        """End the last segment and sync all files. Return no segments if the only source stays as it is.

        Parameters
        ----------
        modified_ns : int
            The modification time to give to the logs: retention goes by it if records have no timestamps.
        """
        if self.is_unchanged and self._growing.state.segment.size_bytes == self._source_bytes:
            return ()
        if self.is_unchanged:
            self._write_what_was_unchanged()
        self._end_segment()
        self._done = [self._with_transactions(each) for each in self._done]
        if not self._dry_run:
            storage = self._folder.writable
            for each in self._done:
                storage.set_modified_ns(self._path(each.base_offset, files.LOG), modified_ns)
            storage.sync_files(
                [self._path(each.base_offset, suffix) for each in self._done for suffix in each.suffixes]
            )
            storage.sync_folder(self._folder.location)
        return tuple(self._done)

    def discard(self) -> None:
        """Remove the new files as far as possible. The next process that opens the log removes the rest."""
        if self._dry_run:
            return
        growing = self._growing
        if growing.log is not None:
            growing.log.close()
        bases = {each.base_offset for each in self._done} | {growing.state.segment.base_offset}
        with suppress(SeglogError):
            for base_offset in bases:
                for suffix in (files.LOG, files.OFFSET_INDEX, files.TIME_INDEX, files.TRANSACTION_INDEX):
                    self._folder.writable.remove(self._path(base_offset, suffix))
