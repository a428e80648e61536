"""Opens a log for cleaning: recovered and under its directory's lock, or as it is for a dry run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparklog.cleaner.descriptions import describe_log
from sparklog.cleaner.retention import LogDescription
from sparklog.errors import InvalidOptionError
from sparklog.log.config import LogConfig
from sparklog.log.directory_view import DirectoryView
from sparklog.log.files import TopicPartition
from sparklog.log.layout import PartitionLayout, layout_in, read_layout
from sparklog.log.places import PartitionFolder
from sparklog.log.segment import Segment
from sparklog.record.decode.columns import LIMITS, DecodeLimits
from sparklog.write.locking import refuse_claimed
from sparklog.write.recovery import Recovered, recover_log
from sparklog.write.rolling import roll


@dataclass(frozen=True)
class OpenedLog:
    """A log opened for cleaning.

    Attributes
    ----------
    recovered : Recovered or None
        The state that recovery left, for a writer to go on with; None in a dry run, which changes nothing.
    now_ms : int
        Wall-clock time, ms since the epoch.
    """

    folder: PartitionFolder
    config: LogConfig
    layout: PartitionLayout
    recovered: Recovered | None
    now_ms: int

    @property
    def sealed(self) -> tuple[Segment, ...]:
        """The segments that may be rewritten: all but the active one."""
        return self.layout.segments[:-1]

    @property
    def rewritable(self) -> tuple[Segment, ...]:
        """The segments for a pass that needs the whole log: all but the active one, which was rolled and is empty.

        A dry run rolls nothing, and looks at the active segment as well.
        """
        return self.layout.segments if self.recovered is None else self.sealed

    @property
    def limits(self) -> DecodeLimits:
        """How many bytes of a batch are decompressed at a time, and how many it may have."""
        return replace(LIMITS, decompressed_bytes_max=self.config.max_decompressed_message_bytes)

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the log. Only logs of partitions are cleaned."""
        at = self.folder.topic_partition
        if at is None:
            raise InvalidOptionError(f"{self.folder.location} is not named as a partition's folder")
        return at

    def describe(self) -> LogDescription:
        """Describe the log for a retention policy."""
        return describe_log(self.layout, self.config, self.now_ms)

    def roll(self) -> OpenedLog:
        """Seal the active segment and begin another, so that the whole log so far can be cleaned."""
        if self.recovered is None or not self.recovered.state.segment.size_bytes:
            return self
        state = roll(self.folder, self.recovered.state, self.recovered.producers, self.now_ms)
        return replace(self, recovered=replace(self.recovered, state=state)).relisted()

    def relisted(self) -> OpenedLog:
        """Return the log with its segments listed again after a swap; in a dry run there was none."""
        if self.recovered is None:
            return self
        listed = layout_in(DirectoryView(self.folder.directory), self.folder)
        return replace(self, layout=listed).from_offset(self.layout.start_offset)

    def from_offset(self, start_offset: int) -> OpenedLog:
        """Return the log without segments wholly before an offset, the new log start offset."""
        segments = tuple(each for each in self.layout.segments if each.upper_offset > start_offset)
        start = max(start_offset, self.layout.start_offset)
        return replace(self, layout=replace(self.layout, segments=segments, start_offset=start))


def open_to_clean(folder: PartitionFolder, config: LogConfig, now_ms: int) -> OpenedLog:
    """Recover a log whose directory the caller has locked.

    Raises
    ------
    CorruptLogError
        The log is damaged where no crash can have torn it.
    LockedError
        A `PartitionLog` of this process has it open.
    """
    refuse_claimed(folder)
    view = DirectoryView(folder.directory)
    recovered = recover_log(folder, config, now_ms, view=view)
    return OpenedLog(folder, config, layout_in(view, folder), recovered, now_ms)


def open_to_look(folder: PartitionFolder, config: LogConfig, now_ms: int) -> OpenedLog:
    """Look at a log for a dry run, without a lock and without changing it."""
    return OpenedLog(folder, config, read_layout(folder), None, now_ms)
