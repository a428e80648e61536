"""Proves that records are gone: searches for them in every file of a partition that holds batches, read or not.

Segments are read from the first byte to the last, regardless of indexes, offsets and isolation levels. So are the files
that a cleaning has set aside or not finished, the bytes that recovery has cut off a segment, and staged files of
writes. Bytes that are no whole batch prove nothing, and are a finding. So is a folder of the partition that Kafka has
set aside, unless the whole log directory is searched with all such folders.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sparklog.errors import CorruptBatchError, PathNotFoundError, SeglogError
from sparklog.inspect.verify_segment import Finding, Severity, VerifyProgress, unreadable
from sparklog.log import files
from sparklog.log.damage import DamageScanner, data_end, is_zero
from sparklog.log.places import LogDirectory, PartitionFolder, join_path
from sparklog.log.windows import Window, WindowScan
from sparklog.record.kernels.spans import OFFSET
from sparklog.record.rewrite.matching import Matcher, is_data
from sparklog.record.rewrite.spans import RecordSpans, record_spans
from sparklog.storage.base import ReadableFile, Storage

_PRESENT: Final = "present"
_SET_ASIDE: Final = {
    files.LOG: "",
    files.LOG + files.DELETED: ", a file that was set aside and is no part of the log any more",
    files.LOG + files.CLEANED: ", a file of a cleaning that was not finished",
    files.LOG + files.SWAP: ", a file of a cleaning that is being finished",
}


def verify_absent(
    matcher: Matcher, folder: PartitionFolder, *, looks_aside: bool = True
) -> Iterator[Finding | VerifyProgress]:
    """Search for records in all files of a partition's folder that hold batches.

    Parameters
    ----------
    matcher : Matcher
        Matches the records that must be absent.
    folder : PartitionFolder
    looks_aside : bool
        Whether a folder of the partition that Kafka has set aside is a finding, because it is not searched.

    Yields
    ------
    Finding or Progress
        ``present`` for each file that holds such records, ``not-proven`` for bytes that could not be read as batches,
        ``unreadable`` for a folder that cannot be listed.
    """
    yield from _in_folder(folder.storage, folder.location, matcher)
    if looks_aside:
        yield from _set_aside(folder)


def verify_absent_beside(matcher: Matcher, directory: LogDirectory) -> Iterator[Finding | VerifyProgress]:
    """Search a log directory outside its partitions: its staged files, and the folders that were set aside.

    See `verify_absent` for the findings.
    """
    yield from _in_folder(directory.storage, directory.path, matcher)
    for entry in directory.storage.entries(directory.path):
        if entry.is_folder and files.is_set_aside(entry.name):
            yield from _in_folder(directory.storage, directory.file(entry.name), matcher)


def holds_records(matcher: Matcher, storage: Storage, path: str) -> bool:
    """Return whether a file has whole batches with records that match."""
    found = _in_file(storage, path, "", matcher)
    return any(isinstance(each, Finding) and each.code == _PRESENT for each in found)


def _in_folder(storage: Storage, folder: str, matcher: Matcher) -> Iterator[Finding | VerifyProgress]:
    try:
        entries = storage.entries(folder)
    except SeglogError as error:
        yield unreadable(error, folder)
        return
    for entry in entries:
        what = _what(entry.name) if entry.is_file else None
        if what is not None:
            yield from _in_file(storage, join_path(folder, entry.name), what, matcher)


def _what(name: str) -> str | None:
    """Return a description of the kind of file that has this name; None if the file holds no batches."""
    found = files.parse_offset_file(name)
    if found is not None:
        return _SET_ASIDE.get(found.suffix)
    if files.is_cut_file(name):
        return ", bytes that recovery cut off a segment: 'sparklog recover --drop-cut' removes it"
    if files.is_staged_log(name):
        return ", which a write has staged and not committed"
    return None


def _set_aside(folder: PartitionFolder) -> Iterator[Finding]:
    """Find the partition's folders that Kafka has set aside beside it, which are not searched."""
    directory, name = folder.directory, folder.name
    try:
        entries = directory.storage.entries(directory.path)
    except SeglogError:
        return
    for entry in entries:
        if entry.is_folder and entry.name.startswith(f"{name}.") and files.is_set_aside(entry.name):
            message = f"a folder of {name} that Kafka has set aside may hold such records: verify it by its own path"
            yield Finding(Severity.ERROR, "not-proven", directory.file(entry.name), message)


def _in_file(storage: Storage, path: str, what: str, matcher: Matcher) -> Iterator[Finding | VerifyProgress]:
    try:
        with storage.open(path) as file:
            yield from _Search(file, path, what, matcher).run()
    except PathNotFoundError:
        yield Finding(Severity.NOTE, "gone", path, "it went away before it was searched")
    except SeglogError as error:
        yield unreadable(error, path)


class _Search:
    """Searches one file."""

    def __init__(self, file: ReadableFile, path: str, what: str, matcher: Matcher) -> None:
        self._file, self._path, self._what, self._matcher = file, path, what, matcher
        self._records = 0
        self._first: tuple[int, int] | None = None

    def run(self) -> Iterator[Finding | VerifyProgress]:
        position = 0
        while position < self._file.size_bytes():
            scan = WindowScan(self._file, position)
            for window in scan:
                yield from self._in_window(window)
                yield VerifyProgress(self._path, scan.position - position)
                position = scan.position
            position = scan.position
            following = self._next_batch(position, scan.size_bytes)
            end_position = scan.size_bytes if following is None else following
            data_ends = data_end(self._file, position, end_position)
            if data_ends > position:
                yield self._unread(position, data_ends - position, scan.fault or "they are the beginning of a batch")
            yield VerifyProgress(self._path, end_position - position)
            position = end_position
        if self._first is not None:
            place, offset = self._first
            message = f"holds {self._records} records that must be absent, the first at offset {offset}{self._what}"
            yield Finding(Severity.ERROR, _PRESENT, self._path, message, place, offset)

    def _next_batch(self, position: int, end_position: int) -> int | None:
        if is_zero(self._file, position, end_position):
            return None
        scanner = DamageScanner(self._file, is_last=False)
        return next(scanner.whole_batches(position + 1, end_position), None)

    def _in_window(self, window: Window) -> Iterator[Finding]:
        """Search batches, including those after a damaged one."""
        first = 0
        while first < len(window.headers):
            headers = window.headers[first:]
            try:
                for spans in record_spans(window.buffer, headers):
                    self._note(spans)
                    first += len(spans)
            except CorruptBatchError as error:
                row = window.headers.table[first]
                yield self._unread(int(row["position"]), int(row["batch_bytes"]), error.reason)
                first += 1

    def _note(self, spans: RecordSpans) -> None:
        mask = self._matcher.matches(spans)
        if mask is None:
            return
        mask = mask & is_data(spans)
        found = int(mask.sum())
        if found and self._first is None:
            row = int(mask.argmax())
            batch = int((spans.batch_ends <= row).sum())
            self._first = int(spans.headers.column("position")[batch]), int(spans.table[row, OFFSET])
        self._records += found

    def _unread(self, position: int, length_bytes: int, reason: str) -> Finding:
        message = f"{length_bytes} bytes cannot be read as records, and may hold any: {reason}"
        return Finding(Severity.ERROR, "not-proven", self._path, message, position)
