"""The open files of the segment that a log is appended to."""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.storage.base import WritableFile
from sparklog.write.active_segment import ActiveSegmentState


@dataclass
class ActiveFiles:
    """The open files of the active segment."""

    log: WritableFile
    offset_index: WritableFile
    time_index: WritableFile

    def all(self) -> tuple[WritableFile, ...]:
        return self.log, self.offset_index, self.time_index

    def cut(self, tail: ActiveSegmentState) -> None:
        """Cut the files to the sizes that the state of the segment says."""
        for file, size_bytes in zip(
            self.all(), (tail.segment.size_bytes, tail.offset_index_bytes, tail.time_index_bytes), strict=True
        ):
            file.truncate(size_bytes)

    def sync(self) -> None:
        for file in self.all():
            file.sync()

    def close(self) -> None:
        for file in self.all():
            file.close()
