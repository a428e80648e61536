"""Computes the lag of consumer groups from their committed offsets and the ends of the logs.

The rows are the same as in ``kafka-consumer-groups --describe``: every partition assigned to a member, with or without
a committed offset, and every other partition with an offset of the group. The log end offset is the end of the files,
which is the high watermark of a single broker, and of a broker that starts on the directory.

Source: apache/kafka, ConsumerGroupCommand.java (collectGroupsOffsets, collectConsumerAssignment),
ListGroupsOptions.java (forConsumerGroups).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from sparklog.errors import CorruptLogError, InvalidOptionError, did_you_mean
from sparklog.log.files import TopicPartition
from sparklog.log.folders import listed
from sparklog.log.layout import read_layout
from sparklog.log.places import PartitionFolder
from sparklog.storage.given_options import with_storage_options
from sparklog.storage.registry import PathText
from sparklog.topic.internal import views
from sparklog.topic.places.discovery import discover, layouts_by_partition, named, places_at

SCHEMA: Final = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("current_offset", pa.int64()),
        ("log_end_offset", pa.int64()),
        ("lag", pa.int64()),
        ("consumer_id", pa.string()),
        ("host", pa.string()),
        ("client_id", pa.string()),
        ("committed_in", pa.string()),
    ]
)
"""The columns of `lag`.

``current_offset`` is null if the group has committed none, ``log_end_offset`` if the log is missing or damaged, ``lag``
if either is null; ``consumer_id``, ``host`` and ``client_id`` are null if no member is assigned the partition.
``committed_in`` is the same as in the view ``consumer_offsets``.
"""


_SHARE, _STREAMS = "share", "streams"
_Commit: TypeAlias = tuple[int | None, str | None]
_NO_COMMIT: Final[_Commit] = (None, None)


class _Member(NamedTuple):
    """The group member to which a partition is assigned."""

    consumer_id: str | None = None
    host: str | None = None
    client_id: str | None = None


def lag(
    path: PathText | Sequence[PathText],
    groups: str | Sequence[str] = (),
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.Table:
    """Return the lag of consumer groups: how far each is behind the end of each log.

    Parameters
    ----------
    path : str, os.PathLike or a sequence of them
        Log directories, some of which hold ``__consumer_offsets``.
    groups : str or sequence of str
        The only groups to return. By default the groups that Kafka's tool shows: not streams groups, which have their
        own tool, and not groups of another protocol, such as Kafka Connect's.
    storage_options : mapping of str to str, optional
        The options of paths that are URLs, such as ``endpoint``; see `sparklog.place`.

    Returns
    -------
    pyarrow.Table
        The lags in the columns of `SCHEMA`, sorted by group, topic and partition. Share groups have no rows, because
        they commit no offsets.

    Raises
    ------
    InvalidOptionError
        A group does not exist.
    PathNotFoundError
        The path does not exist, or holds no ``__consumer_offsets``.
    CorruptLogError
        A batch of ``__consumer_offsets`` is damaged. The end of a damaged log of another topic is null.
    """
    with with_storage_options(storage_options):
        paths = places_at(path)
    of_groups, wanted = views.read(paths, "consumer_groups").to_pylist(), _names(groups)
    _refuse_unknown(wanted, [each["group"] for each in of_groups])
    offsets = views.read(paths, "consumer_offsets").select(["group", "topic", "partition", "offset", "committed_in"])
    committed = {
        (row["group"], TopicPartition(row["topic"], row["partition"])): (row["offset"], row["committed_in"])
        for row in offsets.to_pylist()
    }
    members = {
        (each["group"], at): member
        for each in of_groups
        if each["type"] != _SHARE
        for at, member in _assigned(each["members"] or ())
    }
    shown = wanted or {each["group"] for each in of_groups if _is_shown(each)}
    keys = sorted(key for key in {*committed, *members} if key[0] in shown)
    ends = _end_offsets(paths, {at for _, at in keys})
    rows = [
        _row(group, at, committed.get((group, at), _NO_COMMIT), ends.get(at), members.get((group, at)))
        for group, at in keys
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _names(groups: str | Sequence[str]) -> set[str]:
    return {groups} if isinstance(groups, str) else set(groups)


def _is_shown(group: Mapping[str, Any]) -> bool:
    """Return whether Kafka's tool describes a group by default; also True for a group that cannot be decoded."""
    return group["type"] not in (_SHARE, _STREAMS) and group["protocol_type"] in (None, "", "consumer")


def _refuse_unknown(wanted: Iterable[str], known: Sequence[str]) -> None:
    for group in sorted(wanted):
        if group not in known:
            raise InvalidOptionError(
                f"no group {group!r}: {did_you_mean(group, known, f'groups are {listed(sorted(known))}')}"
            )


def _assigned(members: Iterable[Mapping[str, Any]]) -> Iterator[tuple[TopicPartition, _Member]]:
    for member in members:
        for assigned in member["assigned_partitions"] or ():
            if assigned["topic"] is None:
                continue
            for partition in assigned["partitions"]:
                at = TopicPartition(assigned["topic"], partition)
                yield at, _Member(member["member_id"], member["client_host"], member["client_id"])


def _end_offsets(paths: Sequence[PathText], wanted: set[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the log end offsets of the wanted partitions that exist."""
    folders = [folder for folder in discover(paths).partitions if named(folder) in wanted]
    try:
        return {at: layout.end_offset for at, layout in layouts_by_partition(folders).items()}
    except CorruptLogError:
        found = ((named(folder), _end_offset(folder)) for folder in folders)
        return {at: end for at, end in found if end is not None}


def _end_offset(folder: PartitionFolder) -> int | None:
    try:
        return read_layout(folder).end_offset
    except CorruptLogError:
        return None


def _row(
    group: str, at: TopicPartition, committed: _Commit, end_offset: int | None, member: _Member | None
) -> dict[str, Any]:
    current_offset, committed_in = committed
    return {
        "group": group,
        "topic": at.topic,
        "partition": at.partition,
        "current_offset": current_offset,
        "log_end_offset": end_offset,
        "lag": None if current_offset is None or end_offset is None else end_offset - current_offset,
        **(member or _Member())._asdict(),
        "committed_in": committed_in,
    }
