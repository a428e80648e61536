"""``dump --follow``: prints the records of logs, and then new records, until interrupted."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from sparklog.cli.output import render
from sparklog.cli.work.dump import CountedOutput, DumpOptions, refuse_outside
from sparklog.errors import (
    CorruptLogError,
    DataLossError,
    InvalidOptionError,
    PathNotFoundError,
)
from sparklog.inspect.dump import log_of_folder
from sparklog.inspect.dump_range import DumpedLog
from sparklog.log.layout import read_layout, topic_id_of
from sparklog.log.places import PartitionFolder
from sparklog.log.reader import LogReader

_LOOKED_EVERY_SECONDS: Final = 0.2


def follow(options: DumpOptions) -> None:
    """Print the rows that the options select, and then new ones, also of partitions that are created meanwhile.

    It ends when the limit of rows is reached, or when it is interrupted.

    Raises
    ------
    CorruptLogError
        A log is damaged, and still damaged when it is read again.
    """
    if options.file() is not None:
        raise InvalidOptionError("--follow is for a folder, and the path is that of a file")
    if options.wanted.end_offset is not None:
        raise InvalidOptionError("--follow has no end, and --end-offset sets one: give only one of them")
    refuse_outside([log_of_folder(folder) for folder in options.folders()], options.wanted)
    output = CountedOutput.of(options)
    follower = _Follower(options, output)
    try:
        while not output.is_full:
            follower.look()
            if not render.flushed():
                raise BrokenPipeError
            time.sleep(0 if output.is_full else _LOOKED_EVERY_SECONDS)
    except KeyboardInterrupt:
        return


class _Mark(NamedTuple):
    """The identity of a log, which a new log in its place does not share.

    A replica may be removed and fetched again, so that its folder is another one: then the topic's id, if it has one,
    shows that the records are the same.
    """

    topic_id: str | None
    folder_id: tuple[int, int] | None

    @classmethod
    def of(cls, folder: PartitionFolder) -> _Mark:
        return cls(topic_id_of(folder), folder.storage.identity(folder.location))

    def is_same(self, other: _Mark) -> bool:
        if self.topic_id and other.topic_id:
            return self.topic_id == other.topic_id
        return self.folder_id == other.folder_id


class _Follower:
    """The offset up to which each log was printed, and the state of each log then.

    Parameters
    ----------
    options : DumpOptions
    output : CountedOutput
        Prints the rows.
    """

    def __init__(self, options: DumpOptions, output: CountedOutput) -> None:
        self._options = options
        self._output = output
        self._next: dict[PartitionFolder, int] = {}
        self._log_end: dict[PartitionFolder, int] = {}
        self._mark: dict[PartitionFolder, _Mark] = {}
        self._failure: dict[PartitionFolder, tuple[int | None, str]] = {}
        self._is_first_look = True

    def look(self) -> None:
        """Print the rows that are new since the last look."""
        folders = self._options.folders()
        for folder in self._next.keys() - set(folders):
            render.complain("note", f"{folder.name} is gone")
            self._forget(folder)
        for folder in folders:
            if self._output.is_full:
                return
            try:
                self._take(folder)
            except PathNotFoundError:
                # The next look will find that the folder is gone.
                continue
            except (CorruptLogError, DataLossError) as error:
                # A broker may have removed or cut a file while it was read: then the next look succeeds.
                failure = self._next.get(folder), str(error)
                if self._failure.get(folder) == failure:
                    raise
                self._failure[folder] = failure
        self._is_first_look = False

    def _forget(self, folder: PartitionFolder) -> None:
        for each in (self._next, self._log_end, self._mark):
            each.pop(folder, None)

    def _take(self, folder: PartitionFolder) -> None:
        # Read before the log: if a new log is made between the two, the next look notices, and no record is skipped.
        mark = _Mark.of(folder)
        if folder in self._next and mark.folder_id and not mark.is_same(self._mark[folder]):
            render.complain("warning", f"{folder.name} was deleted and made again, and is printed from its beginning")
            self._forget(folder)
        self._mark[folder] = mark
        log = DumpedLog(read_layout(folder), folder.topic, folder.partition)
        end = log.layout.end_offset
        if end == self._log_end.get(folder):
            return
        start = self._next[folder] = self._start(folder, log)
        stop = end
        if self._options.wanted.isolation_level == "read_committed":
            with LogReader(log.layout) as reader:
                stop = min(stop, reader.last_stable_offset)
        if start < stop:
            for chunk, next_offset in self._options.chunks(log, start, stop):
                self._output.put(log, chunk)
                self._next[folder] = next_offset
                if self._output.is_full:
                    return
        self._next[folder] = max(start, stop)
        self._log_end[folder] = end

    def _start(self, folder: PartitionFolder, log: DumpedLog) -> int:
        layout = log.layout
        if folder not in self._next:
            if not self._is_first_look:
                return layout.start_offset
            return max(self._options.span(log)[0], self._options.wanted.start_offset or 0)
        start, log_end = self._next[folder], self._log_end.get(folder, 0)
        if layout.end_offset < log_end:
            render.complain("warning", f"{folder.name} was cut from offset {log_end} to {layout.end_offset}")
            start = min(start, layout.end_offset)
        if start < layout.start_offset:
            lost = f"offsets {start} to {layout.start_offset - 1} were removed before they were read"
            render.complain("warning", f"{folder.name}: {lost}")
            start = layout.start_offset
        return start
