"""Finds the offsets that consumer groups have committed, and the logs that hold them.

A group's offsets are in one partition of ``__consumer_offsets``: Java's string hash of its id, modulo the number of
partitions. A log directory of a cluster with several brokers may hold only some of the partitions.

Source: apache/kafka, GroupCoordinatorService.java (partitionFor), Utils.java (abs); java.lang.String.hashCode.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidOptionError, did_you_mean
from sparklog.log.files import TopicPartition
from sparklog.log.folders import listed
from sparklog.log.group_offsets import NO_OFFSET, OffsetCommit, latest
from sparklog.log.layout import read_layout
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.storage.registry import PathText
from sparklog.system import consumer_offsets
from sparklog.system.records import InternalLog, Undecodable
from sparklog.topic.internal.group_tables import GroupOffsetsOf, commits_of
from sparklog.topic.places.discovery import discover, is_same, log_directories, named, partitions_in

CONSUMER_OFFSETS: Final = consumer_offsets.TOPIC
_INT_BITS: Final = 32
_INT_MIN: Final = 1 << (_INT_BITS - 1)


def partition_of_group(group: str, partitions: int) -> int:
    """Return which of the ``partitions`` of ``__consumer_offsets`` has a group's records."""
    value = 0
    for (unit,) in struct.iter_unpack(">H", group.encode("utf-16-be")):
        value = (31 * value + unit) % (1 << _INT_BITS)
    # A negative number in Java. The smallest int has no absolute value, and Kafka takes 0 for it.
    distance = (1 << _INT_BITS) - value if value > _INT_MIN else value % _INT_MIN
    return distance % partitions


@dataclass(frozen=True)
class GroupLogs:
    """The partitions of ``__consumer_offsets`` that some log directories hold.

    Attributes
    ----------
    folders : mapping of int to PartitionFolder
        The folders of the partitions, by partition number.
    paths : tuple of str
        The paths where the partitions were looked for.
    """

    folders: Mapping[int, PartitionFolder]
    paths: tuple[str, ...]

    @property
    def partitions(self) -> int | None:
        """How many partitions the topic seems to have; None if some are certainly not here."""
        count = len(self.folders)
        return count if count and set(self.folders) == set(range(count)) else None

    def commits(self, group: str) -> dict[TopicPartition, OffsetCommit]:
        """Return the offsets that a group has committed here; empty if it has none."""
        if self.partitions is not None:
            # Most likely the group is there; all partitions are read only if it is not.
            found = _of_group(self.offsets({partition_of_group(group, self.partitions)}), group)
            if found:
                return found
        return _of_group(self.offsets(self.folders), group)

    def offsets(self, numbers: Iterable[int]) -> pa.Table:
        """Read the committed offsets in some of the partitions, in the columns of the view."""
        unreadable = Undecodable()
        tables = [
            consumer_offsets.current_offsets(InternalLog(read_layout(self.folders[number])), unreadable)
            for number in sorted(numbers)
        ]
        unreadable.warn(is_history=False)
        return pa.concat_tables([consumer_offsets.OFFSETS_SCHEMA.empty_table(), *tables])


def group_logs(directories: Iterable[LogDirectory], offsets_path: Sequence[PathText] = ()) -> GroupLogs:
    """Find the logs of ``__consumer_offsets``; there may be none.

    Parameters
    ----------
    directories : iterable of LogDirectory
        The log directories to look in by default.
    offsets_path : sequence of str or os.PathLike
        The log directories to look in instead.

    Raises
    ------
    InvalidOptionError
        A partition is in two places.
    PathNotFoundError
        A path does not exist.
    """
    if offsets_path:
        found = discover(offsets_path)
        folders, paths = list(found.partitions), found.paths
    else:
        known = sorted(set(directories), key=lambda each: each.path)
        folders = [folder for each in known for folder in partitions_in(each, CONSUMER_OFFSETS)]
        paths = tuple(each.path for each in known)
    by_number: dict[int, PartitionFolder] = {}
    for folder in folders:
        at = named(folder)
        if at.topic != CONSUMER_OFFSETS:
            continue
        other = by_number.setdefault(at.partition, folder)
        if other != folder and not is_same(other, folder):
            raise InvalidOptionError(
                f"{folder.name} is in two places, {other.location} and {folder.location}: say by consumerOffsetsPath, "
                f"which is offsets_path in Python and --offsets-path at the terminal, which of them counts"
            )
    return GroupLogs(by_number, paths)


def committed(
    directories: LogDirectory | Iterable[LogDirectory],
    group: str,
    *,
    of_cluster: Mapping[TopicPartition, OffsetCommit] | None = None,
    with_decided: bool = False,
) -> dict[TopicPartition, OffsetCommit]:
    """Return a group's committed offsets by partition: the later of ``seglog.offsets`` and ``__consumer_offsets``.

    Parameters
    ----------
    of_cluster : mapping of TopicPartition to OffsetCommit, optional
        The group's offsets in ``__consumer_offsets``; by default they are read, for errors see `group_logs`.
    with_decided : bool
        See `sparklog.write.group_offsets.read_group_offsets`, also for errors.
    """
    known = [directories] if isinstance(directories, LogDirectory) else list(directories)
    own = GroupOffsetsOf.directories(known, group, with_decided=with_decided).groups.get(group, {})
    found = latest(own, group_logs(known).commits(group) if of_cluster is None else of_cluster)
    return {at: each for at, each in found.items() if each.offset != NO_OFFSET}


def committed_by_groups(
    groups: Iterable[str], directories: Iterable[LogDirectory], offsets_path: Sequence[PathText] = ()
) -> dict[str, dict[TopicPartition, int]]:
    """Return the offsets committed by groups, as `committed` does; refuse a group without any.

    Parameters
    ----------
    offsets_path : sequence of str or os.PathLike
        The only log directories to look in, instead of ``directories``.

    Raises
    ------
    InvalidOptionError
        A group has committed nothing here; for other errors see `committed`.
    """
    known = sorted(set(directories), key=lambda each: each.path)
    logs = group_logs(known, offsets_path)
    homes = log_directories(offsets_path) if offsets_path else known
    found: dict[str, dict[TopicPartition, int]] = {}
    for group in groups:
        commits = committed(homes, group, of_cluster=logs.commits(group))
        if not commits:
            _refuse_unknown(group, logs, GroupOffsetsOf.directories(homes).groups)
        found[group] = {at: each.offset for at, each in commits.items()}
    return found


def _refuse_unknown(group: str, logs: GroupLogs, own: Iterable[str]) -> NoReturn:
    where, known = listed(list(logs.paths)), sorted({*own, *logs.offsets(logs.folders)["group"].to_pylist()})
    if not known:
        raise InvalidOptionError(
            f"no group has committed offsets in {where}: there is no {CONSUMER_OFFSETS}, or nothing in it. Give the "
            "directories that have it by consumerOffsetsPath, offsets_path in Python, --offsets-path at the terminal"
        )
    hint = did_you_mean(group, known, f"groups are {listed(known)}")
    raise InvalidOptionError(f"no group {group!r} has committed offsets in {where}: {hint}")


def _of_group(offsets: pa.Table, group: str) -> dict[TopicPartition, OffsetCommit]:
    rows = offsets.filter(pc.equal(offsets["group"], group))
    at = map(TopicPartition, rows["topic"].to_pylist(), rows["partition"].to_pylist())
    return dict(zip(at, commits_of(rows), strict=True))
