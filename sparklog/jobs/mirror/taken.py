"""Says which files and bytes of a log directory a mirror and a backup take, and reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from sparklog.errors import CorruptLogError, PathNotFoundError, SeglogError
from sparklog.jobs.run.job import OF_ONE_PARTITION
from sparklog.log import files
from sparklog.log.checkpoints import encode_leader_epochs, parse_leader_epochs
from sparklog.log.clock import wall_clock_ns
from sparklog.log.directory_view import DirectoryView
from sparklog.log.kept_by_stamp import is_settled, names_in
from sparklog.log.layout import PartitionLayout, layout_in
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.log.scans.of_range import refuse_damaged_window
from sparklog.log.segment import OffsetPosition, Segment
from sparklog.log.windows import Window
from sparklog.record.batches.checksums import first_wrong
from sparklog.record.batches.framing import HEADER_BYTES_MAX
from sparklog.storage.base import Entry, Stamp

_SUFFIXES: Final = (files.LOG, files.OFFSET_INDEX, files.TIME_INDEX, files.TRANSACTION_INDEX, files.SNAPSHOT)
IN_PARTITION: Final = (files.LEADER_EPOCH_CHECKPOINT, files.PARTITION_METADATA, files.LOG_IDENTITY)
"""The files of a partition that are not named by an offset."""
BESIDE_LOGS: Final = (
    files.META_PROPERTIES,
    files.BOOTSTRAP_CHECKPOINT,
    files.TOPICS_PROPERTIES,
    files.GROUP_OFFSETS,
    files.GROUP_OFFSETS_JOURNAL,
    files.TXN_VERSIONS,
    files.TRANSACTIONAL_IDS,
    files.ADDED_PARTITIONS,
    files.JOBS_LEDGER,
)
"""The files of a log directory that belong to its state, and are neither logs nor checkpoints of offsets."""


def is_of_partition(name: str) -> bool:
    """Return whether a file in the folder of a partition belongs to its state, by its name."""
    found = files.parse_offset_file(name)
    return name in IN_PARTITION or (found is not None and found.suffix in _SUFFIXES)


def is_of_metadata(name: str) -> bool:
    """Return whether a file in the folder of the cluster's metadata belongs to its state, by its name."""
    return is_of_partition(name) or files.is_metadata_snapshot(name) or name == files.QUORUM_STATE


def logs_of(directory: LogDirectory) -> list[PartitionFolder]:
    """Return the folders of all logs, that of the cluster's metadata last."""
    names = names_in(directory)
    metadata = [directory.folder(files.METADATA_FOLDER)] if files.METADATA_FOLDER in names.others else []
    return [*(folder for partitions in names.topics.values() for folder in partitions.values()), *metadata]


class TakenFile(NamedTuple):
    """A file to take.

    Attributes
    ----------
    stamp : Stamp
        Its stamp when it was listed.
    size_bytes : int
        How many of its first bytes are taken.
    lasting : Stamp
        The stamp to remember: if every later change will show, the same one; otherwise one that the file never has.
    """

    name: str
    stamp: Stamp
    size_bytes: int
    lasting: Stamp


@dataclass(frozen=True)
class TakenLog:
    """A log at one time: what a mirror or a backup takes of it.

    Attributes
    ----------
    layout : PartitionLayout
        Its segments, start and end.
    logs : tuple of TakenFile
        The ``.log`` file of each segment. Of the last one, all whole batches are taken.
    others : tuple of TakenFile
        The other files, without the leader epochs, and without the indexes of the last segment: a broker that runs
        keeps them open, and fills them up with zeros.
    epochs : bytes or None
        The content of ``leader-epoch-checkpoint`` before the log was looked at.
    """

    layout: PartitionLayout
    logs: tuple[TakenFile, ...]
    others: tuple[TakenFile, ...]
    epochs: bytes | None

    @property
    def folder(self) -> PartitionFolder:
        return self.layout.folder

    def pairs(self) -> list[tuple[Segment, TakenFile]]:
        """Return the segments with their ``.log`` files."""
        return list(zip(self.layout.segments, self.logs, strict=True))

    def epochs_taken(self) -> bytes | None:
        """Return the leader epochs up to the end of the log; raise `PathNotFoundError` if it has got others since."""
        path = self.folder.file(files.LEADER_EPOCH_CHECKPOINT)
        if self.folder.storage.read_small(path) != self.epochs:
            raise _changed(path)
        if self.epochs is None:
            return None
        known = parse_leader_epochs(self.epochs, path)
        return encode_leader_epochs([each for each in known if each[1] <= self.layout.end_offset])

    def read_small(self, file: TakenFile) -> bytes:
        """Return the contents of a small file; raise `PathNotFoundError` if it has another size by now."""
        path = self.folder.file(file.name)
        data = self.folder.storage.read_small(path)
        if data is None or len(data) != file.size_bytes:
            raise _changed(path)
        return data


def look_to_copy(folder: PartitionFolder, view: DirectoryView) -> TakenLog | SeglogError:
    """Look at a log, as of the time of the view; return the error of one that has changed meanwhile or is damaged."""
    try:
        return _taken_in(view, folder)
    except (*OF_ONE_PARTITION, PathNotFoundError) as error:
        error.add_note(f"in {folder.name}")
        return error


def _taken_in(view: DirectoryView, folder: PartitionFolder) -> TakenLog:
    now_ns, epochs = wall_clock_ns(), folder.storage.read_small(folder.file(files.LEADER_EPOCH_CHECKPOINT))
    layout = layout_in(view, folder)
    is_wanted = is_of_metadata if folder.name == files.METADATA_FOLDER else is_of_partition
    found = {each.name: each for each in folder.storage.entries(folder.location)}
    missing = next((each.path() for each in layout.segments if each.file_name() not in found), None)
    if missing is not None:
        # A cleaner puts a segment in place.
        raise _changed(missing)

    def taken(entry: Entry, name: str, size_bytes: int) -> TakenFile:
        # A state that is read again has no tags, and the identity tells versions of an object apart as well.
        stamp = (entry.stamp or Stamp((0, 0), 0, entry.size_bytes))._replace(tag="")
        lasting = stamp if is_settled(stamp, now_ns) else stamp._replace(size_bytes=0)
        return TakenFile(name, stamp, size_bytes, lasting)

    logs = [
        taken(
            found[each.file_name()],
            files.offset_file_name(each.base_offset, files.LOG),
            layout.end.position if each.is_last else each.size_bytes,
        )
        for each in layout.segments
    ]
    wanted = {name: each for name, each in found.items() if is_wanted(name) and _is_beside_logs(name, layout)}
    others = [taken(each, name, each.size_bytes) for name, each in wanted.items()]
    return TakenLog(layout, tuple(logs), tuple(others), epochs)


def _is_beside_logs(name: str, layout: PartitionLayout) -> bool:
    at = files.parse_offset_file(name)
    if at is None:
        return name != files.LEADER_EPOCH_CHECKPOINT
    if at.suffix == files.SNAPSHOT:
        return at.offset <= layout.end_offset
    return at.suffix != files.LOG and any(each.base_offset == at.offset for each in layout.segments[:-1])


def _changed(path: str) -> PathNotFoundError:
    return PathNotFoundError(f"{path} has changed while it was copied: repeat it")


class SoundBatches:
    """Reads the batches of a log for a copy, segment after segment, and notices if the source is cut meanwhile.

    A part is yielded only while the source still has the part before it. Otherwise the two may be of different logs:
    who cuts a log and writes on replaces all batches behind the cut.

    Attributes
    ----------
    end_position, last_position : int
        Where the last batch that was yielded ends and begins.
    """

    def __init__(self) -> None:
        self.end_position = self.last_position = 0
        self._is_there: Callable[[], bool] = lambda: True

    def follow(self, segment: Segment, position: int, data: bytes) -> None:
        """Begin behind bytes that the copy has."""

        def is_there() -> bool:
            with segment.file() as file:
                return bytes(file.read(position, len(data))) == data

        self._is_there = is_there

    def pass_over(self, segment: Segment, file: TakenFile) -> None:
        """Begin behind a segment that the copy has, and that has not changed since it was listed."""
        self._is_there = lambda: segment.storage.stamp(segment.path()) == file.stamp

    def read(self, segment: Segment, position: int, end_position: int) -> Iterator[memoryview]:
        """Yield the batches of a segment from a boundary on.

        Raises
        ------
        CorruptLogError
            A batch is damaged; all before it have been yielded.
        PathNotFoundError
            The source was cut: forget the batches.
        """
        self.end_position = position
        with segment.open() as log:
            try:
                for window in log.windows(OffsetPosition(position, segment.base_offset), end_position):
                    row, _ = first_wrong(np.frombuffer(window.buffer, dtype=np.uint8), window.headers)
                    self._refuse_cut(segment)
                    if row:
                        yield self._part(segment, window, row)
                    if row < len(window.headers):
                        refuse_damaged_window(segment, window)
            except CorruptLogError:
                self._refuse_cut(segment)
                raise
        self._refuse_cut(segment)
        if self.end_position != end_position:
            raise _changed(segment.path())

    def _part(self, segment: Segment, window: Window, rows: int) -> memoryview:
        last, origin = window.headers.table[rows - 1], window.headers.origin
        self.last_position = int(last["position"])
        self.end_position = self.last_position + int(last["batch_bytes"])
        data = window.buffer[: self.end_position - origin]
        start = self.last_position - origin
        self.follow(segment, self.last_position, bytes(data[start : start + HEADER_BYTES_MAX]))
        return data

    def _refuse_cut(self, segment: Segment) -> None:
        if not self._is_there():
            raise _changed(segment.path())
