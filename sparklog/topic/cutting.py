"""Cuts logs for users, obeying the properties that are stored for the topic.

`sparklog.cleaner` knows single folders and no topics, and obeys only the configuration that it is given. A user who
cuts a log by its path expects the topic's properties to count, as in every other cleaning. A cut can be planned, and
made later.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Protocol

from sparklog.cleaner import truncation
from sparklog.cleaner.cuts import Cut, Extent
from sparklog.log.clock import Time
from sparklog.log.config import LogConfig
from sparklog.log.places import PartitionFolder
from sparklog.storage.registry import PathText
from sparklog.topic.places.discovery import place_at
from sparklog.topic.write.configs import folder_config


def delete_records(
    path: PathText,
    *,
    before_offset: int | None = None,
    before_time: Time | None = None,
    config: LogConfig | None = None,
    lock_timeout_seconds: float = 60.0,
) -> Extent:
    """Delete a partition's records before an offset, or before the first record at or after a time.

    The log start offset is raised. Segments wholly before it are removed; in the first remaining segment, every reader
    skips the records before it.

    Parameters
    ----------
    path : str or os.PathLike
        The partition's folder, ``<topic>-<partition>``.
    before_offset : int, optional
        The new log start offset; -1 is the log end offset, as in Kafka's admin client.
    before_time : int or datetime, optional
        ms since the epoch, or a datetime with a time zone. If no record is at or after it, all are deleted.
    config : LogConfig, optional
        The configuration with ``file.delete.delay.ms``; it overrides the topic's stored properties.
    lock_timeout_seconds : float
        How long to wait for other writers; a running broker is not waited for.

    Returns
    -------
    Extent
        The offsets that the log has now.

    Raises
    ------
    InvalidOptionError
        Both or none of offset and time are given, the path is no partition's folder, or a stored property is wrong.
    OffsetOutOfRangeError
        The offset is past the end of the log.
    LockedError
        A broker runs on the directory, or another writer holds it.
    """
    folder = _folder_at(path)
    return truncation.cut_start(
        folder,
        before_offset=before_offset,
        before_time=before_time,
        config=_config_of(folder, config),
        lock_timeout_seconds=lock_timeout_seconds,
    )


def truncate_to(
    path: PathText, offset: int, *, config: LogConfig | None = None, lock_timeout_seconds: float = 60.0
) -> Extent:
    """Cut off the end of a partition's log, from an offset on.

    Only whole batches are cut off, so the log may end before the offset: at the end of the last batch that is wholly
    before it. The records are lost: there is no ``.cut`` file, and the files of segments that are removed whole stay
    for ``file.delete.delay.ms``. If it is killed halfway, the log is sound and ends later; run it again.

    Parameters
    ----------
    path, config, lock_timeout_seconds
        See `delete_records`.
    offset : int
        The first offset to cut off.

    Returns
    -------
    Extent
        The offsets that the log has now.

    Raises
    ------
    OffsetOutOfRangeError
        The offset is before the log start offset.
    InvalidOptionError, LockedError
        See `delete_records`.
    """
    folder = _folder_at(path)
    return truncation.cut_end(
        folder, offset, config=_config_of(folder, config), lock_timeout_seconds=lock_timeout_seconds
    )


class _Act(Protocol):
    def __call__(self, *, config: LogConfig, lock_timeout_seconds: float) -> Extent: ...


@dataclass(frozen=True)
class PlannedCut:
    """A planned cut, which `make` carries out. Made by `plan_deletion` or `plan_truncation`.

    Attributes
    ----------
    folder : PartitionFolder
        The folder of the log.
    cut : Cut
        The offsets, segments and bytes that would be removed.
    """

    folder: PartitionFolder
    cut: Cut
    _act: _Act

    def make(self, *, config: LogConfig | None = None, lock_timeout_seconds: float = 60.0) -> Extent:
        """Make the cut, and return the log's new offsets; for parameters and errors see `delete_records`.

        Raise `InvalidOptionError` instead of truncating if the log's offsets have changed since the cut was planned.
        """
        return self._act(config=_config_of(self.folder, config), lock_timeout_seconds=lock_timeout_seconds)


def plan_deletion(path: PathText, *, before_offset: int | None = None, before_time: Time | None = None) -> PlannedCut:
    """Plan what `delete_records` would do, without locks or changes; for parameters and errors see there."""
    folder = _folder_at(path)
    cut = truncation.look_at_deletion(folder, before_offset=before_offset, before_time=before_time)
    # Delete up to the planned offset, even if the log has grown since.
    return PlannedCut(folder, cut, partial(truncation.cut_start, folder, before_offset=cut.after.start_offset))


def plan_truncation(path: PathText, offset: int) -> PlannedCut:
    """Plan what `truncate_to` would do, without locks or changes; for parameters and errors see there."""
    folder = _folder_at(path)
    cut = truncation.look_at_truncation(folder, offset)
    return PlannedCut(folder, cut, partial(truncation.cut_end, folder, offset, seen=cut.before))


def _folder_at(path: PathText) -> PartitionFolder:
    return PartitionFolder.at(*place_at(path))


def _config_of(folder: PartitionFolder, given: LogConfig | None) -> LogConfig:
    return folder_config(folder, given or LogConfig())
