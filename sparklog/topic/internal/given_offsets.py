"""Checks the offsets of consumer groups that callers give, and where the groups commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sparklog.errors import InvalidOptionError, UnknownTopicOrPartitionError
from sparklog.log.files import TopicPartition, checked_partition
from sparklog.log.places import LogDirectory
from sparklog.record.format.v2 import OFFSET_MAX

_NO_EPOCH: Final = -1


class OffsetAndMetadata(NamedTuple):
    """An offset to commit: the offset of the next record to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = _NO_EPOCH


class ConsumerGroupMetadata(NamedTuple):
    """A consumer group, the log directory where it commits, and its last commit at a broker, ms since the epoch."""

    group_id: str
    log_directory: LogDirectory
    broker_commit_ms: int = 0


def named_partition(partition: Any) -> TopicPartition:
    """Return the partition given as a pair, such as a TopicPartition of kafka-python."""
    if not isinstance(partition, tuple) or len(partition) != 2:
        raise InvalidOptionError(f"a partition is a TopicPartition, or (topic, number), and not {partition!r}")
    return checked_partition(*partition)


def committable(given: Any) -> OffsetAndMetadata:
    """Return the offset to commit, given as a number or a tuple such as an OffsetAndMetadata of kafka-python."""
    values = given if isinstance(given, tuple) else (given,)
    found = OffsetAndMetadata(*values[:2])
    if isinstance(found.offset, bool) or not isinstance(found.offset, int) or not 0 <= found.offset <= OFFSET_MAX:
        raise InvalidOptionError(f"an offset is a whole number, at least 0, and not {found.offset!r}")
    if found.metadata is not None and not isinstance(found.metadata, str):
        raise InvalidOptionError(f"the metadata of an offset are a text, and not {found.metadata!r}")
    return found._replace(metadata=found.metadata or "")


def offsets_of_group(
    directory: LogDirectory, offsets: Mapping[tuple[str, int], Any], group: Any
) -> tuple[str, dict[TopicPartition, OffsetAndMetadata]]:
    """Return a group's name, and the offsets that it is to commit in a log directory.

    Parameters
    ----------
    offsets : mapping of TopicPartition to OffsetAndMetadata or int
    group : str or an object with ``group_id``
        The group. A `ConsumerGroupMetadata` says where the group commits. For any other value only the partitions show
        it: if one is elsewhere, the group most likely commits there.

    Raises
    ------
    InvalidOptionError
        An offset or the group is not valid, or the group commits in another log directory.
    UnknownTopicOrPartitionError
        A partition is not in the log directory.
    """
    name = getattr(group, "group_id", group)
    if not isinstance(name, str) or not name:
        raise InvalidOptionError(f"a group is given by its id, a text, or as an object with group_id, not as {group!r}")
    found = {named_partition(at): committable(each) for at, each in offsets.items()}
    if isinstance(group, ConsumerGroupMetadata):
        home = group.log_directory
        if home.storage.real(home.path) != directory.storage.real(directory.path):
            raise InvalidOptionError(
                f"group {name!r} commits in {home.path}, and the transaction is one of {directory.path}: only groups "
                f"that commit in the same log directory can be part of it"
            )
        return name, found
    for at in found:
        if not directory.storage.is_folder(directory.folder(str(at)).location):
            raise UnknownTopicOrPartitionError(
                f"{at} is not in {directory.path}, where group {name!r} would commit its offset with the transaction: "
                f"if its consumers commit elsewhere, they would not see it. If they commit here, give the consumer's "
                f"group_metadata()"
            )
    return name, found
