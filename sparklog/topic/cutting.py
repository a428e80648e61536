"""Cuts logs by hand as users know it: by the properties that are stored for the topic.

`sparklog.cleaner` knows one folder and nothing of topics, and cuts by what it is given. Who cuts a log by its path
expects of it what every other cleaning does. A cut can be looked at before it is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Protocol

from sparklog.cleaner import truncation
from sparklog.cleaner.cuts import Cut, Extent
from sparklog.log.config import LogConfig
from sparklog.log.places import PartitionFolder
from sparklog.log.times import Time
from sparklog.storage.registry import PathText
from sparklog.topic.places.discovery import place_at
from sparklog.topic.write.configs import stored_configs, topic_config


def delete_records(
    path: PathText,
    *,
    before_offset: int | None = None,
    before_time: Time | None = None,
    config: LogConfig | None = None,
    lock_timeout_seconds: float = 60.0,
) -> Extent:
    """Delete the records of a partition before an offset, or those before the first that is as late as a time.

    The log start offset is raised. Segments of which nothing is left go; in the one that is left, the records before
    the start are passed over by every reader.

    Parameters
    ----------
    path : str or os.PathLike
        The partition's folder, ``<topic>-<partition>``.
    before_offset : int, optional
        -1 is the log end offset, as of Kafka's admin client.
    before_time : int or datetime, optional
        ms since the epoch, or a datetime that has a time zone. Where no record is as late, all are deleted.
    config : LogConfig, optional
        For ``file.delete.delay.ms``. It is over what is stored for the topic.
    lock_timeout_seconds : float
        How long to wait for other writers; a running broker is not waited for.

    Returns
    -------
    Extent
        What the log has now.

    Raises
    ------
    InvalidOptionError
        Both or none of offset and time are given, no partition has such a folder, or a stored property is wrong.
    OffsetOutOfRangeError
        The offset is past the end of the log.
    LockedError
        A broker runs on the directory, or another writer has it.
    """
    folder = _folder_at(path)
    return truncation.delete_records(
        folder,
        before_offset=before_offset,
        before_time=before_time,
        config=_config_of(folder, config),
        lock_timeout_seconds=lock_timeout_seconds,
    )


def truncate_to(
    path: PathText, offset: int, *, config: LogConfig | None = None, lock_timeout_seconds: float = 60.0
) -> Extent:
    """Cut the end of a partition's log off, from an offset on.

    A batch is cut off whole, so that the log may end before the offset: at the end of the last batch that is wholly
    before it. What is cut off is gone for good: there is no ``.cut`` file, and of the segments that go whole the files
    stay for ``file.delete.delay.ms``. Killed on the way, it leaves a sound log that ends later; run it again.

    Parameters
    ----------
    path, config, lock_timeout_seconds
        As of `delete_records`.
    offset : int
        The first that is not to stay.

    Returns
    -------
    Extent
        What the log has now.

    Raises
    ------
    OffsetOutOfRangeError
        The offset is before the log start offset.
    InvalidOptionError, LockedError
        As of `delete_records`.
    """
    folder = _folder_at(path)
    return truncation.truncate_to(
        folder, offset, config=_config_of(folder, config), lock_timeout_seconds=lock_timeout_seconds
    )


class _Act(Protocol):
    def __call__(self, *, config: LogConfig, lock_timeout_seconds: float) -> Extent: ...


@dataclass(frozen=True)
class PlannedCut:
    """A cut that was looked at and can be made. From `plan_deletion` or `plan_truncation`.

    Attributes
    ----------
    folder : PartitionFolder
        Of the log.
    cut : Cut
        What would go.
    """

    folder: PartitionFolder
    cut: Cut
    _act: _Act

    def make(self, *, config: LogConfig | None = None, lock_timeout_seconds: float = 60.0) -> Extent:
        """Make the cut, and return what the log has then; parameters and errors as of `delete_records`.

        A log that has other offsets by now than when it was looked at is not truncated: `InvalidOptionError`.
        """
        return self._act(config=_config_of(self.folder, config), lock_timeout_seconds=lock_timeout_seconds)


def plan_deletion(path: PathText, *, before_offset: int | None = None, before_time: Time | None = None) -> PlannedCut:
    """Say what `delete_records` would take; nothing is locked or changed. Parameters and errors as there."""
    folder = _folder_at(path)
    cut = truncation.look_at_deletion(folder, before_offset=before_offset, before_time=before_time)
    # By the offset that was said, also where the log has grown since.
    return PlannedCut(folder, cut, partial(truncation.delete_records, folder, before_offset=cut.after.start_offset))


def plan_truncation(path: PathText, offset: int) -> PlannedCut:
    """Say what `truncate_to` would take; nothing is locked or changed. Parameters and errors as there."""
    folder = _folder_at(path)
    cut = truncation.look_at_truncation(folder, offset)
    return PlannedCut(folder, cut, partial(truncation.truncate_to, folder, offset, seen=cut.before))


def _folder_at(path: PathText) -> PartitionFolder:
    return PartitionFolder.at(*place_at(path))


def _config_of(folder: PartitionFolder, given: LogConfig | None) -> LogConfig:
    return topic_config(folder.topic, given or LogConfig(), stored_configs(folder.directory))
