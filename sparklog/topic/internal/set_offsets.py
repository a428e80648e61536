"""Sets the committed offsets of a consumer group in the log directory of a stopped cluster.

It is ``kafka-consumer-groups --reset-offsets`` without a broker. The records that a broker would write are appended to
the group's partition of ``__consumer_offsets``, in one batch: all offsets are set, or none. Meanwhile Kafka's lock of
the directory is held, so that no broker runs there. The records get later timestamps than the group's commits in
``seglog.offsets``, so that they count for sparklog's readers and for a broker alike. If there is no such log, the
offsets are set in that file.

The files do not show whether a member of the group would commit again: members that the log still has when the cluster
starts again continue from their own positions, and overwrite the offsets. So the offsets of such a group are set only
if forced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final, NamedTuple

from sparklog.errors import NOTHING_VISIBLE, InvalidOptionError, PathNotFoundError, outcome
from sparklog.log import files
from sparklog.log.clock import wall_clock_ms
from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition
from sparklog.log.folders import listed
from sparklog.log.group_offsets import NO_OFFSET, OffsetCommit, latest
from sparklog.log.layout import PartitionLayout, read_layout
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.log.reader import LogReader
from sparklog.storage.registry import PathText
from sparklog.system.consumer_offsets import current_groups
from sparklog.system.group_commits import GroupRecords, commit_records, read_group
from sparklog.system.records import InternalLog, Undecodable
from sparklog.topic.internal.group_tables import GroupOffsetsOf
from sparklog.topic.internal.groups import CONSUMER_OFFSETS, GroupLogs, group_logs, partition_of_group
from sparklog.topic.places.discovery import Discovery, discover, layouts_by_partition, log_directories
from sparklog.topic.selection import Selection
from sparklog.write.group_offsets import commit_group_offsets
from sparklog.write.locking import hold
from sparklog.write.partition import LogWriter

_log = logging.getLogger("sparklog")

_ONE_BATCH_BYTES: Final = 1 << 30


@dataclass(frozen=True)
class Goal:
    """The offsets to set, by the one attribute that is given, or by ``word`` if none is.

    Attributes
    ----------
    offset : int, optional
        The offset for every partition.
    time_ms : int, optional
        A time, ms since the epoch: the offset of the first record at or after it, or the end if there is none.
    shift : int, optional
        The distance from the committed offset, backwards if negative.
    offsets : mapping of TopicPartition to int, optional
        The offset for each partition.
    word : str
        "earliest" or "latest".
    """

    offset: int | None = None
    time_ms: int | None = None
    shift: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    word: str = "latest"


@dataclass(frozen=True)
class OffsetRequest:
    """A request to set the offsets of a group.

    Attributes
    ----------
    group : str
        The group, which may be new.
    topics : mapping of str to tuple of int
        The partitions of each topic, all if the tuple is empty. Without topics, the partitions for which the goal has
        an offset, or else those for which the group has committed one.
    goal : Goal
    offsets_partitions : int or None
        The number of partitions of ``__consumer_offsets`` in its cluster, if not all are here.
    is_forced : bool
        Set the offsets even if the group has members.
    lock_timeout_seconds : float
        How long to wait for other writers.
    """

    group: str
    topics: Mapping[str, tuple[int, ...]]
    goal: Goal
    offsets_partitions: int | None = None
    is_forced: bool = False
    lock_timeout_seconds: float = 60.0


class OffsetChange(NamedTuple):
    """The present committed offset of a partition, if it has one, and its new one."""

    topic_partition: TopicPartition
    current_offset: int | None
    new_offset: int


@dataclass(frozen=True)
class OffsetChanges:
    """The offsets that were set, or would be.

    Attributes
    ----------
    location : str
        The path of the group's log of ``__consumer_offsets``, or of a file ``seglog.offsets``.
    log_offset : int or None
        The offset in that log of the first appended record; None for a dry run, and for a file.
    """

    changes: tuple[OffsetChange, ...]
    location: str
    log_offset: int | None = None


def set_group_offsets(
    paths: Sequence[PathText],
    request: OffsetRequest,
    *,
    executes: bool,
    clock: Callable[[], int] = wall_clock_ms,
) -> OffsetChanges:
    """Set the committed offsets of a group.

    Parameters
    ----------
    paths : sequence of str or os.PathLike
        The log directories of a stopped broker.
    executes : bool
        Whether to write the offsets; if not, nothing is changed, and the planned changes are returned.

    Raises
    ------
    InvalidOptionError
        The group has members, or is a share group; its partition of ``__consumer_offsets`` is not here or unknown; or
        an offset to shift does not exist.
    PathNotFoundError
        A path or a partition does not exist.
    LockedError
        A broker runs there, or another writer is at work.
    CorruptLogError
        A log is damaged.
    """
    found = discover(paths)
    of_logs = [each.directory for each in found.partitions]
    logs = group_logs(of_logs)
    directories = list(dict.fromkeys([*log_directories(paths), *of_logs]))
    own = GroupOffsetsOf.directories(directories, request.group).groups.get(request.group, {})
    folder = _folder_of(logs, request, own)
    location = directories[0].file(files.GROUP_OFFSETS) if folder is None else folder.location
    with _held(folder.directory, request) if executes and folder is not None else nullcontext():
        before = None if folder is None else _checked(logs, folder, request)
        known = latest(own, before.offsets if before else {})
        changes = _changes(found, {at: each.offset for at, each in known.items() if each.offset != NO_OFFSET}, request)
        if not executes or not changes:
            return OffsetChanges(changes, location)
        offsets = {each.topic_partition: each.new_offset for each in changes}
        # Later than every existing commit, whatever the clocks of their writers showed.
        time_ms = max([clock(), *(known[at].timestamp + 1 for at in offsets if at in known)])
        if folder is not None and before is not None:
            return OffsetChanges(changes, location, _append(folder, request, before, offsets, time_ms, clock))
        commits = {at: OffsetCommit(offset, "", time_ms) for at, offset in offsets.items()}
        commit_group_offsets(directories[0], request.group, commits, lock_timeout_seconds=request.lock_timeout_seconds)
        return OffsetChanges(changes, location)


@contextmanager
def _held(directory: LogDirectory, request: OffsetRequest) -> Iterator[None]:
    """Keep brokers out; an error without an outcome was raised before anything was written."""
    with outcome(NOTHING_VISIBLE), hold(directory, request.lock_timeout_seconds, is_shared=True):
        yield


def _folder_of(
    logs: GroupLogs, request: OffsetRequest, own: Mapping[TopicPartition, OffsetCommit]
) -> PartitionFolder | None:
    """Return the log of ``__consumer_offsets`` that has the group, or will have it; None if it is not here.

    None is returned only if no such log is here at all, or the group has committed in ``seglog.offsets``.
    """
    if not logs.folders:
        return None
    count = request.offsets_partitions or logs.partitions
    there = listed([str(number) for number in sorted(logs.folders)])
    if count is None:
        raise InvalidOptionError(
            f"{listed(list(logs.paths))} has partitions {there} of {CONSUMER_OFFSETS}, and so not all of them: which "
            f"has the group cannot be told. Say by --offsets-partitions how many there are in the cluster"
        )
    number = partition_of_group(request.group, count)
    if number not in logs.folders and not own:
        raise InvalidOptionError(
            f"group {request.group!r} is in partition {number} of {count} of {CONSUMER_OFFSETS}, and "
            f"{listed(list(logs.paths))} has partitions {there}: give the log directories that have it"
        )
    return logs.folders.get(number)


def _checked(logs: GroupLogs, folder: PartitionFolder, request: OffsetRequest) -> GroupRecords:
    """Read the group's records; raise if its offsets may not be set."""
    count, group = request.offsets_partitions or logs.partitions or 0, request.group
    before = None
    for number, each in logs.folders.items():
        records = read_group(InternalLog(read_layout(each)), group)
        for other in sorted(records.groups):
            if partition_of_group(other, count) != number:
                raise InvalidOptionError(
                    f"group {other!r} is in {each.location}, and would be in partition "
                    f"{partition_of_group(other, count)} if there were {count}: some partitions of {CONSUMER_OFFSETS} "
                    f"are not here. Say by --offsets-partitions how many there are in the cluster"
                )
        before = records if each == folder else before
    _refuse_members(folder, request)
    assert before is not None
    return before


def _refuse_members(folder: PartitionFolder, request: OffsetRequest) -> None:
    groups = current_groups(InternalLog(read_layout(folder)), Undecodable()).to_pylist()
    found = next((each for each in groups if each["group"] == request.group), None)
    if found is None:
        _log.warning("there is no group %s yet: it is made by its first offsets", request.group)
    elif found["type"] == "share":
        raise InvalidOptionError(f"{request.group!r} is a share group, which commits no offsets")
    elif found["members"] != [] and not request.is_forced:
        there = found["members"]
        members = "that cannot be decoded" if there is None else listed([each["member_id"] for each in there])
        raise InvalidOptionError(
            f"group {request.group!r} has members in {folder.location}: {members}. If they still run when the cluster "
            f"is started, they continue from their own positions, and overwrite these offsets. Stop them, and force it "
            f"with --force"
        )


def _changes(
    found: Discovery, committed: Mapping[TopicPartition, int], request: OffsetRequest
) -> tuple[OffsetChange, ...]:
    layouts = layouts_by_partition(_selected(found, committed, request))
    return tuple(
        OffsetChange(at, committed.get(at), _new_offset(at, layout, committed.get(at), request.goal))
        for at, layout in sorted(layouts.items())
    )


def _selected(
    found: Discovery, committed: Mapping[TopicPartition, int], request: OffsetRequest
) -> list[PartitionFolder]:
    """Return the partitions whose offsets are to be set."""
    if not request.topics:
        wanted = request.goal.offsets if request.goal.offsets is not None else committed
        if not wanted:
            raise InvalidOptionError(f"group {request.group!r} has committed no offsets: say which topics to set")
        return found.select(Selection(partitions=tuple(wanted)))
    numbered = tuple(TopicPartition(topic, n) for topic, numbers in request.topics.items() for n in numbers)
    whole = tuple(topic for topic, numbers in request.topics.items() if not numbers)
    chosen = (Selection(partitions=numbered), Selection(topics=whole))
    return [folder for each in chosen if each != Selection() for folder in found.select(each)]


def _new_offset(at: TopicPartition, layout: PartitionLayout, current: int | None, goal: Goal) -> int:
    """Return the offset that a goal means in a partition, within its log."""
    if goal.time_ms is not None:
        found = LogReader(layout).offset_for_time(goal.time_ms)
        return layout.end_offset if found is None else found
    if goal.shift is not None:
        if current is None:
            raise InvalidOptionError(f"the offset of {at} cannot be shifted: the group has committed none")
        return _inside(at, layout, current + goal.shift)
    if goal.offsets is not None:
        if at not in goal.offsets:
            raise PathNotFoundError(f"no offset of {at} is given")
        return _inside(at, layout, goal.offsets[at])
    if goal.offset is not None:
        return _inside(at, layout, goal.offset)
    return layout.start_offset if goal.word == "earliest" else layout.end_offset


def _inside(at: TopicPartition, layout: PartitionLayout, offset: int) -> int:
    """Return the offset nearest to a given one within the log, its end included."""
    inside = min(max(offset, layout.start_offset), layout.end_offset)
    if inside != offset:
        _log.warning(
            "%s has offsets [%d, %d), and %d is none of them: its offset is set to %d",
            at, layout.start_offset, layout.end_offset, offset, inside,
        )  # fmt: skip
    return inside


def _append(
    folder: PartitionFolder,
    request: OffsetRequest,
    before: GroupRecords,
    offsets: Mapping[TopicPartition, int],
    time_ms: int,
    clock: Callable[[], int],
) -> int:
    """Append the records to the group's log; return the offset of the first."""
    records = commit_records(request.group, offsets, before, time_ms)
    columns = {"key": [each.key for each in records], "value": [each.value for each in records]}
    # Like a coordinator: in one batch, not compressed.
    config = LogConfig.from_properties(
        {
            "compression.type": "uncompressed",
            "batch.size": str(_ONE_BATCH_BYTES),
            "max.message.bytes": str(_ONE_BATCH_BYTES),
        }
    )
    with LogWriter.open(
        folder.location,
        config,
        storage=folder.storage,
        lock_timeout_seconds=request.lock_timeout_seconds,
        clock=clock,
    ) as log:
        first_offset, _ = log.append(columns)
    return first_offset
