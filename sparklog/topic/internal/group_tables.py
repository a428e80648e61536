"""Merges the offsets committed by sparklog's consumers with those in ``__consumer_offsets`` for the same groups.

A group may commit here and in a cluster, one after the other. The later commit counts, by its own timestamp.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

import pyarrow as pa

from sparklog.log import files
from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import NO_OFFSET, GroupOffsets, OffsetCommit, latest
from sparklog.log.places import LogDirectory
from sparklog.system.consumer_offsets import GROUPS_SCHEMA, OFFSETS_SCHEMA
from sparklog.write.group_offsets import read_group_offsets

OF_GROUPS: Final = ("consumer_offsets", "consumer_groups")
"""The views that have rows of sparklog's consumers."""

# The same as for a group that has committed in a cluster and has no members.
_GROUP: Final = {"type": "classic", "state": "Empty", "members": []}


@dataclass(frozen=True)
class GroupOffsetsOf:
    """The offsets committed by groups of sparklog's consumers in some log directories."""

    groups: GroupOffsets = field(default_factory=dict)

    @classmethod
    def directories(
        cls, directories: Iterable[LogDirectory], group: str | None = None, *, with_decided: bool = False
    ) -> Self:
        """Read the offsets in directories; if several have an offset for a partition, the last commit counts.

        Parameters
        ----------
        group : str, optional
            Read the offsets of this group only.
        with_decided : bool
            See `sparklog.write.group_offsets.read_group_offsets`.

        Raises
        ------
        CorruptCheckpointError
            The offsets of a directory cannot be read.
        """
        found: dict[str, Mapping[TopicPartition, OffsetCommit]] = {}
        for directory in directories:
            for name, offsets in read_group_offsets(directory, group, with_decided=with_decided).items():
                found[name] = latest(found[name], offsets) if name in found else offsets
        return cls(found)

    def over(self, rows: pa.Table, name: str) -> Iterator[pa.RecordBatch]:
        """Return a view's rows merged with rows of sparklog's consumers: the later per group and partition."""
        of_cluster, own = self._offsets(rows) if name == "consumer_offsets" else (rows, self._groups(rows))
        return iter(pa.concat_tables([of_cluster, pa.Table.from_pylist(own, schema=rows.schema)]).to_batches())

    def _offsets(self, rows: pa.Table) -> tuple[pa.Table, list[dict[str, Any]]]:
        keys = list(zip(*(rows[name].to_pylist() for name in ("group", "topic", "partition")), strict=True))
        of_cluster = dict(zip(keys, commits_of(rows), strict=True))
        own = {(group, *at): commit for group, offsets in self.groups.items() for at, commit in offsets.items()}
        found = latest(own, of_cluster)
        empty = dict.fromkeys(OFFSETS_SCHEMA.names)
        made = [
            {
                **empty,
                **dict(zip(("group", "topic", "partition"), key, strict=True)),
                "offset": commit.offset,
                "metadata": commit.metadata,
                "commit_timestamp": commit.timestamp,
                "committed_in": files.GROUP_OFFSETS,
            }
            for key, commit in sorted(own.items())
            if found[key] is commit and commit.offset != NO_OFFSET
        ]
        is_last = [found[key] is of_cluster[key] for key in keys]
        return rows.filter(pa.array(is_last, pa.bool_())), made

    def _groups(self, rows: pa.Table) -> list[dict[str, Any]]:
        empty, known = dict.fromkeys(GROUPS_SCHEMA.names), {*rows["group"].to_pylist()}
        own = {group for group, offsets in self.groups.items() if any(each.offset >= 0 for each in offsets.values())}
        return [{**empty, **_GROUP, "group": group} for group in sorted(own - known)]


def commits_of(rows: pa.Table) -> list[OffsetCommit]:
    """Return the commits in rows of `OFFSETS_SCHEMA`."""
    times = rows["commit_timestamp"].cast(pa.int64()).to_pylist()
    columns = (rows["offset"].to_pylist(), rows["metadata"].to_pylist(), times)
    return [
        OffsetCommit(offset, metadata, NO_OFFSET if time is None else time)
        for offset, metadata, time in zip(*columns, strict=True)
    ]
