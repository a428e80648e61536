"""Finds proof that batches of a log are lost: traces in its folder of batches that are missing.

Offsets without a batch prove nothing by themselves, since compaction removes batches. These do:

- An index entry of a sealed segment for a batch between the end of its log and the next segment.
- An index with entries whose log is missing in every form. A broker or writer that removes or replaces a segment
  renames its log first, and the log stays as a ``.deleted`` file until the indexes have gone the same way.
- Offsets missing before a segment, in a log that was never compacted: the stored properties say so, no cleaner has
  touched it, and no job has copied batches from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from sparklog.errors import CorruptBatchError, DataLossError, InvalidOptionError, PathNotFoundError
from sparklog.log import files
from sparklog.log.directory_view import DirectoryView
from sparklog.log.files import OffsetFile, TopicPartition, parse_offset_file
from sparklog.log.index import OFFSET_ENTRY, TIME_ENTRY, read_entries
from sparklog.log.kept_by_stamp import StampedFile
from sparklog.log.places import PartitionFolder
from sparklog.log.properties import properties_in
from sparklog.log.segment import READ_AROUND, OpenSegment, Segment
from sparklog.record.format.v2 import OFFSET_MAX

_INDEXES: Final = ((files.TIME_INDEX, TIME_ENTRY), (files.OFFSET_INDEX, OFFSET_ENTRY))
_POLICY: Final = "/cleanup.policy"
"""The end of a key in ``topics.properties``, after the topic's name; see `sparklog.topic.write.configs`."""
_UNDECIDED: Final = files.LOG + files.CLEANED

_topics_properties: Final = StampedFile(properties_in)


class LostSegments:
    """Decides whether offsets that no batch of a log has were lost. The folder is listed at the first question.

    Parameters
    ----------
    folder : PartitionFolder
        The folder of the log.
    """

    def __init__(self, folder: PartitionFolder) -> None:
        self._folder = folder
        self._bases: list[int] | None = None

    def within(self, start_offset: int, end_offset: int = OFFSET_MAX) -> list[int]:
        """Return the base offsets of the segments with only indexes left, in a range without batches."""
        if self._bases is None:
            # Listed twice: a removal may be between a segment's log and its indexes.
            found = self._listed()
            found = found and found & self._listed()
            self._bases = sorted(base for base in found if _has_entries(self._folder, base))
        return [base for base in self._bases if start_offset <= base < end_offset]

    def reason(self, start_offset: int, end_offset: int, *, magic: int) -> str | None:
        """Return why the missing offsets between two segments are lost; None if they may have been removed.

        ``magic`` is the magic of the batch before them: an erasure leaves an empty batch if it is 2, otherwise none.
        """
        bases = self.within(start_offset, end_offset)
        if bases:
            return f"the indexes of segment {bases[0]} exist, but its log does not"
        if magic == 2 and never_compacted(self._folder):
            return (
                f"no segment before {end_offset} has them, and by its stored cleanup.policy the topic is not compacted"
            )
        return None

    def refuse_end(self, end_offset: int) -> None:
        """Raise `DataLossError` if a log ends before a segment with only indexes left."""
        bases = self.within(end_offset)
        if bases:
            raise DataLossError(
                f"{self._folder.location} ends at offset {end_offset}, and the indexes of segment {bases[0]} exist, "
                f"but its log does not: records are lost"
            )

    def _listed(self) -> set[int]:
        try:
            names = self._folder.storage.names(self._folder.location)
        except PathNotFoundError:
            return set()
        return orphan_bases(found for each in names if (found := parse_offset_file(each.name)) is not None)


def orphan_bases(names: Iterable[OffsetFile]) -> set[int]:
    """Return the base offsets of the indexes whose log is missing in every form, even as a removed one."""
    bases, logs = set[int](), set[int]()
    for found in names:
        if found.suffix in (files.OFFSET_INDEX, files.TIME_INDEX):
            bases.add(found.offset)
        elif found.suffix.startswith(files.LOG) and found.suffix != _UNDECIDED:
            logs.add(found.offset)
    return bases - logs


def _has_entries(folder: PartitionFolder, base_offset: int) -> bool:
    """Return whether an index without a log has an entry for a batch; one that was never written to has none."""
    segment = Segment(folder, base_offset, OFFSET_MAX, 0, is_last=False)
    for suffix, layout in _INDEXES:
        try:
            with segment.file(suffix) as index:
                first = np.frombuffer(index.read(0, layout.itemsize).tobytes().ljust(layout.itemsize, b"\0"), layout)
        except PathNotFoundError:
            continue
        if first.tobytes().strip(b"\0") and all((first[name] >= 0).all() for name in layout.names or ()):
            return True
    return False


def never_compacted(folder: PartitionFolder) -> bool:
    """Return whether only a loss can explain a segment that is missing between others of a log."""
    at, directory = folder.topic_partition, folder.directory
    if at is None or directory.storage.identity(directory.file(files.JOBS_LEDGER)) is not None:
        return False
    policy = _stored_policy(folder, at)
    if not policy or "compact" in policy:
        return False
    return at not in DirectoryView(directory).offsets(files.CLEANER_CHECKPOINT)


def _stored_policy(folder: PartitionFolder, at: TopicPartition) -> str:
    """Return the stored ``cleanup.policy`` of a topic; an empty string if it is missing or cannot be read."""
    try:
        return (_topics_properties.read(folder.directory, files.TOPICS_PROPERTIES) or {}).get(at.topic + _POLICY, "")
    except InvalidOptionError:
        # Writers of the log report it.
        return ""


def refuse_cut_after_times(log: OpenSegment) -> None:
    """Check the end of a sealed segment after a search for a time has passed it, and keep what the search has found.

    Missing batches at its end may have been late enough; see `refuse_cut_end`.
    """
    if not log.segment.is_last:
        end = log.end() if log.passed is None else log.passed[1]
        refuse_cut_end(log, end.offset)
        log.learn()


def refuse_cut_end(log: OpenSegment, end_offset: int) -> None:
    """Raise if an index of a sealed segment proves that batches are missing at the end of its log.

    The last entry of an index is for an offset that was once in the log. Between the end of the log and the next
    segment, it proves that batches are missing. The first or last entry before the end must agree with the log.

    Parameters
    ----------
    log : OpenSegment
        The segment.
    end_offset : int
        The offset after its last batch.
    """
    segment = log.segment
    if segment.is_last or end_offset >= segment.upper_offset:
        return
    for suffix, layout in _INDEXES:
        known_offset = _known_offset(log, suffix, layout, end_offset)
        if known_offset is not None:
            raise CorruptBatchError(
                f"the log of the segment ends before offset {end_offset}, and its {suffix[1:]} file has an entry "
                f"for offset {known_offset}: batches are missing at its end",
                path=segment.path(),
                position=log.size_bytes,
                offset=end_offset,
                hint=f"{READ_AROUND}; a replica may have them",
            )


def _known_offset(log: OpenSegment, suffix: str, layout: np.dtype[Any], end_offset: int) -> int | None:
    """Return the offset of an index's last entry if it proves that the log reached it."""
    with log.index(suffix) as index:
        if index is None:
            return None
        entries = read_entries(index, layout)
    offsets = log.segment.base_offset + entries["relative_offset"].astype(np.int64)
    first_field = entries[layout.names[0]].astype(np.int64) if layout.names else offsets
    if not len(entries) or not end_offset <= offsets[-1] < log.segment.upper_offset:
        return None
    if (np.diff(first_field) <= 0).any() or (np.diff(offsets) < 0).any():
        return None
    inside = np.flatnonzero(offsets < end_offset)
    # The entry before the end may be for a batch that the damage has changed.
    nearest = {int(row) for row in inside[[0, -1]]} if len(inside) else set[int]()
    if nearest and not any(_agrees(log, layout, entries[row], int(offsets[row])) for row in nearest):
        return None
    return int(offsets[-1])


def _agrees(log: OpenSegment, layout: np.dtype[Any], entry: Any, offset: int) -> bool:
    """Return whether an index entry is for the batch that holds an offset."""
    header = log.first_batch_from(offset)
    if header is None:
        return False
    if layout == TIME_ENTRY:
        return int(header.column("max_timestamp")[0]) == int(entry["timestamp"])
    # Older brokers wrote one entry for each append: the batch at the position is then the first of several.
    return int(entry["position"]) <= int(header.column("position")[0])
