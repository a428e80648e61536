"""Fetches records for a consumer from logs that others write to, with a position and read-ahead rows per partition.

While no records come, a fetch polls the stamps of each partition's folder and last segment
file, which is cheap, and reads the logs only when one has changed.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sparklog.errors import DataLossError, InvalidOptionError, NoOffsetForPartitionError, OffsetOutOfRangeError
from sparklog.log.clock import Time, to_ms
from sparklog.log.files import TopicPartition
from sparklog.log.log_identity import LogIdentity, end_batch
from sparklog.log.places import PartitionFolder
from sparklog.log.reader import LogReader
from sparklog.storage.base import Stamp
from sparklog.storage.process import files_max
from sparklog.topic.places.live import LiveLog, LiveLogs, stamps_of

_log = logging.getLogger("sparklog")

Sizes = tuple[int, int, int]
"""The bytes of a record's key, value and headers, `_NO_SIZE` where there is none."""
_NO_SIZE: Final = -1

_COLUMNS: Final = ("offset", "timestamp", "timestampType", "key", "value", "headers", "leader_epoch")
_SLEEP_SECONDS_MIN: Final = 0.001
_SLEEP_SECONDS_MAX: Final = 0.1
_READS_MAX: Final = 10
_SLEEP_SHARE: Final = 20
"""Polling stamps takes at most one part in this many of the waiting time."""
_SHARE_OF_FILES: Final = 8
"""Partitions with a backlog keep a file open, at most one in this many of all files that the process may have open."""
_LOOK_SECONDS: Final = 1.0
"""The logs are read this often even if no stamp changes."""


@dataclass
class Fetched:
    """A partition being fetched.

    Attributes
    ----------
    position : int or None
        The offset of the consumer's next record; None until it is known.
    is_paused : bool
    rows : deque
        Records read ahead, as tuples of `_COLUMNS`.
    batches : iterator or None
        The batches after those records.
    end : int
        The end of their read.
    is_other : bool
        Whether the log was made anew since the position was set, and nobody has sought a new one.
    log : LiveLog or None
        The log at the last look.
    stamps : tuple of Stamp
        The stamps of the folder and of the last segment's file at that time.
    """

    folder: PartitionFolder
    position: int | None = None
    is_paused: bool = False
    rows: deque[tuple[Any, ...]] = field(default_factory=deque)
    batches: Iterator[pa.RecordBatch] | None = None
    end: int = 0
    is_other: bool = False
    log: LiveLog | None = None
    stamps: tuple[Stamp | None, ...] = ()

    @property
    def lag(self) -> int:
        """How many offsets followed the position at the last look."""
        return 0 if self.log is None or self.position is None else max(0, self.log.latest - self.position)

    def seek(self, offset: int | None) -> None:
        """Continue at an offset, and drop the rows read ahead."""
        self.position, self.batches, self.is_other = offset, None, False
        self.rows.clear()


class Fetcher:
    """The partitions of a consumer, and their new records.

    Parameters
    ----------
    isolation_level : str
        ``read_uncommitted`` or ``read_committed``.
    begin : callable
        Returns the committed positions of partitions, without partitions that have none.
    reset : str
        ``earliest``, ``latest`` or ``none``: the first position in a partition without a committed one.
    """

    def __init__(
        self,
        isolation_level: Any,
        begin: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]],
        reset: str,
    ) -> None:
        self._isolation_level, self._begin, self._reset = isolation_level, begin, reset
        self._live = LiveLogs(is_committed=isolation_level == "read_committed")
        self.partitions: dict[TopicPartition, Fetched] = {}
        # The identity of each log at an offset, kept after the log is gone, since it may be made anew.
        self._identities: dict[PartitionFolder, tuple[int, LogIdentity]] = {}
        # Reads that have begun, each with an open file until it has ended; the latest is last.
        self._reads: dict[TopicPartition, Fetched] = {}
        self._turn = 0
        self._looked_seconds = float("-inf")

    def assign(self, folders: Mapping[TopicPartition, PartitionFolder]) -> None:
        """Fetch from these partitions. Known ones keep their positions."""
        self.partitions = {
            at: known if (known := self.partitions.get(at)) and known.folder == folder else Fetched(folder)
            for at, folder in folders.items()
        }
        self._reads = {at: each for at, each in self._reads.items() if self.partitions.get(at) is each}
        self._looked_seconds = float("-inf")

    def fetch(self, records_max: int, bytes_max: int) -> Iterator[tuple[TopicPartition, tuple[Any, ...], Sizes]]:
        """Yield available rows and their sizes. The position moves past a row when the next one is requested.

        They end before they exceed ``bytes_max``, but include one row at least.

        Partitions take turns, each first once.
        """
        names = [at for at, each in self.partitions.items() if not each.is_paused]
        self._turn = (self._turn + 1) % max(1, len(names))
        if self._is_stale(names):
            self.look()
        self._locate_all()
        left = bytes_max
        for at in names[self._turn :] + names[: self._turn]:
            each = self.partitions[at]
            while records_max and self._has_rows(at, each):
                row = each.rows[0]
                sizes = _sizes_of(row)
                row_bytes = sum(size for size in sizes if size > 0)
                if row_bytes > left and left < bytes_max:
                    return
                left -= row_bytes
                yield at, row, sizes
                each.rows.popleft()
                each.position = row[0] + 1
                records_max -= 1

    def look(self) -> None:
        """Look at all logs, as they were at one time."""
        stamps = {at: stamps_of(each.log.layout) for at, each in self.partitions.items() if each.log is not None}
        found = self._live.look(each.folder for each in self.partitions.values())
        self._looked_seconds = time.monotonic()
        for at, each in self.partitions.items():
            before, each.log = each.log, found.get(at)
            if each.log is None:
                # A log that comes back may be another one.
                each.seek(None)
            elif each.log is not before:
                self._compare(at, each, each.log)
            is_same = each.log is not None and before is not None and _file_of(before) == _file_of(each.log)
            # The stamp of a new file was not taken before its log was read: the file may have changed meanwhile.
            each.stamps = stamps[at] if is_same else ()

    def forget_gone(self) -> None:
        """Forget the positions in logs that are gone: they must not be committed for later logs of the same names."""
        for each in self.partitions.values():
            if not each.folder.storage.is_folder(each.folder.location):
                each.seek(None)

    def _compare(self, at: TopicPartition, each: Fetched, log: LiveLog) -> None:
        """Start again if a log is not the same as before: if it was deleted and made anew, or cut.

        Its records have all come since, so a consumer of the latest records continues at its beginning, too.
        """
        offset, known = self._identities.get(each.folder, (0, LogIdentity()))
        change = known.difference(_identity_at(log, offset))
        if change is not None:
            _log.warning("%s is another log than before, or was cut: the %s is not the same", at, change)
            each.seek(log.layout.start_offset)
            each.is_other = True
        offset = log.latest if each.position is None else each.position
        self._identities[each.folder] = offset, _identity_at(log, offset)

    def wait(self, deadline: float) -> None:
        """Wait until a log has changed, or until a time of the monotonic clock."""
        names = [at for at, each in self.partitions.items() if not each.is_paused]
        while (now := time.monotonic()) < deadline:
            if names and self._is_stale(names):
                return
            taken_seconds = time.monotonic() - now
            sleep_seconds = min(max(taken_seconds * _SLEEP_SHARE, _SLEEP_SECONDS_MIN), _SLEEP_SECONDS_MAX)
            time.sleep(min(sleep_seconds, max(0.0, deadline - time.monotonic())))

    def locate(self, at: TopicPartition) -> int | None:
        """Return the position in a partition, finding it first if it is unknown; None if there is no log."""
        each = self.partitions[at]
        if each.position is None and each.log is None:
            self.look()
        if each.position is None:
            self._locate_all()
        if each.position is None and each.log is not None:
            each.seek(self._reset_to(at, each.log))
        return each.position

    def _locate_all(self) -> None:
        """Give every partition a position, including partitions not yet fetched from.

        A partition that is reset to its end later than others would lose the records of the meantime, and without a
        position it is in no commit.
        """
        new = [at for at, each in self.partitions.items() if each.position is None and each.log is not None]
        begun = self._begin(new) if new else {}
        for at in new:
            each = self.partitions[at]
            if at in begun:
                each.seek(begun[at])
            elif each.log is not None and self._reset != "none":
                each.seek(self._reset_to(at, each.log))

    def logs_of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LiveLog | None]:
        """Return the current logs; None for one that does not exist."""
        self.look()
        return {at: self.partitions[at].log for at in partitions}

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The known positions."""
        return {at: each.position for at, each in self.partitions.items() if each.position is not None}

    @property
    def lag_max(self) -> int:
        """The largest lag of a partition at the last look."""
        return max((each.lag for each in self.partitions.values()), default=0)

    def _is_stale(self, names: Iterable[TopicPartition]) -> bool:
        if time.monotonic() - self._looked_seconds > _LOOK_SECONDS:
            return True
        for at in names:
            each = self.partitions[at]
            if each.log is not None and stamps_of(each.log.layout) != each.stamps:
                return True
        return False

    def _has_rows(self, at: TopicPartition, each: Fetched) -> bool:
        """Read ahead if no rows are left; return whether there is a row."""
        reads = 0
        while not each.rows:
            if each.batches is None and not self._begin_read(at, each):
                return False
            assert each.batches is not None
            try:
                batch = next(each.batches, None)
            except DataLossError:
                # Retention was faster: the log now begins after the position.
                each.batches, reads = None, reads + 1
                if reads == _READS_MAX:
                    raise
                self.look()
                continue
            except BaseException:
                # A failed iterator yields no more, which must not count as the end of its range.
                each.batches = None
                raise
            if batch is None:
                # Also past markers, and past records removed by compaction.
                each.position, each.batches = max(each.position or 0, each.end), None
                continue
            columns = [batch.column(name).to_pylist() for name in _COLUMNS if name != "timestamp"]
            columns.insert(1, batch.column("timestamp").cast(pa.int64()).to_pylist())
            each.rows.extend(zip(*columns, strict=True))
        return True

    def _begin_read(self, at: TopicPartition, each: Fetched) -> bool:
        """Start reading a log from the position on; return False if there is nothing to read."""
        log, position = each.log, self.locate(at)
        if log is None or position is None:
            return False
        if each.is_other and self._reset == "none":
            raise OffsetOutOfRangeError(
                f"{at} was made anew or cut since it was read, its log has [{log.layout.start_offset}, "
                f"{log.layout.end_offset}), and auto_offset_reset is none: seek, or set it to earliest or latest"
            )
        if not log.layout.start_offset <= position <= log.layout.end_offset:
            each.seek(self._out_of_range(at, log, position))
            position = each.position or 0
        if position >= log.latest:
            return False
        self._reads.pop(at, None)
        if len(self._reads) >= files_max() // _SHARE_OF_FILES:
            # Its rows stay, and the next read begins after them.
            self._reads.pop(next(iter(self._reads))).batches = None
        self._reads[at] = each
        reader = LogReader(log.layout, log.latest if self._isolation_level == "read_committed" else None)
        each.end = log.latest
        each.batches = reader.batches(position, log.latest, _COLUMNS, self._isolation_level)
        return True

    def _reset_to(self, at: TopicPartition, log: LiveLog) -> int:
        if self._reset == "none":
            raise NoOffsetForPartitionError(
                f"no offset is committed for {at}, and auto_offset_reset is none: seek, or set it to earliest or latest"
            )
        return log.layout.start_offset if self._reset == "earliest" else log.latest

    def _out_of_range(self, at: TopicPartition, log: LiveLog, position: int) -> int:
        if self._reset == "none":
            raise OffsetOutOfRangeError(
                f"the position {position} in {at} is not in the log, which has [{log.layout.start_offset}, "
                f"{log.layout.end_offset}), and auto_offset_reset is none: seek, or set it to earliest or latest"
            )
        return self._reset_to(at, log)


def _sizes_of(row: tuple[Any, ...]) -> Sizes:
    _, _, _, key, value, headers, _ = row
    return (
        _NO_SIZE if key is None else len(key),
        _NO_SIZE if value is None else len(value),
        sum(len(pair["key"].encode()) + len(pair["value"] or b"") for pair in headers) if headers else _NO_SIZE,
    )


def _identity_at(log: LiveLog, offset: int) -> LogIdentity:
    return LogIdentity(log.topic_id, log.log_id, end_batch(log.layout, offset))


def _file_of(log: LiveLog) -> str | None:
    return log.layout.segments[-1].path() if log.layout.segments else None


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time: its offset, and its own time in ms."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


def first_from(log: LogReader, time: Time) -> OffsetAndTimestamp | None:
    """Return the first record at or after a time, ms since the epoch; None if there is none.

    Raises
    ------
    InvalidOptionError
        The time is before 1970, or not valid.
    """
    if to_ms(time) < 0:
        raise InvalidOptionError(f"a time is in ms since 1970, and not {time!r}")
    offset = log.offset_for_time(time)
    if offset is None:
        return None
    columns = log.read(offset, offset + 1, ["timestamp", "leader_epoch"])
    # Python has no datetimes after the year 9999.
    (timestamp,), (leader_epoch,) = (column.cast(pa.int64()).to_pylist() for column in columns.columns)
    return OffsetAndTimestamp(offset, timestamp, leader_epoch)
