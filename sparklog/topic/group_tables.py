"""What consumers of ours have committed, as rows of the views of consumer groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Self

import pyarrow as pa

from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import GroupOffsets, OffsetCommit
from sparklog.log.places import LogDirectory
from sparklog.system.consumer_offsets import GROUPS_SCHEMA, OFFSETS_SCHEMA
from sparklog.write.group_offsets import read_group_offsets

OF_GROUPS: Final = ("consumer_offsets", "consumer_groups")
"""The views that have rows of consumers of ours."""

# As of a group that has committed in a cluster, and has no members there.
_GROUP: Final = {"type": "classic", "state": "Empty", "members": []}
_KEY: Final = ("group", "topic", "partition")


@dataclass(frozen=True)
class GroupOffsetsOf:
    """What the groups of consumers of ours have committed in some log directories."""

    groups: GroupOffsets = field(default_factory=dict)

    @classmethod
    def directories(cls, directories: Iterable[LogDirectory]) -> Self:
        """Read the offsets of directories.

        Raises
        ------
        CorruptCheckpointError
            Those of one cannot be read.
        """
        found: dict[str, dict[TopicPartition, OffsetCommit]] = {}
        for directory in directories:
            for group, offsets in read_group_offsets(directory).items():
                found.setdefault(group, {}).update(offsets)
        return cls(found)

    def over(self, rows: pa.Table, name: str) -> Iterator[pa.RecordBatch]:
        """Return the rows of a view, and over them those of consumers of ours."""
        own = self._offsets() if name == "consumer_offsets" else self._groups({*rows["group"].to_pylist()})
        key = _KEY if name == "consumer_offsets" else _KEY[:1]
        known = {tuple(row[each] for each in key) for row in own}
        kept = [row for row in rows.to_pylist() if tuple(row[each] for each in key) not in known]
        return iter(pa.Table.from_pylist([*kept, *own], schema=rows.schema).to_batches())

    def _offsets(self) -> list[dict[str, Any]]:
        empty = dict.fromkeys(OFFSETS_SCHEMA.names)
        return [
            {
                **empty,
                "group": group,
                **at._asdict(),
                "offset": commit.offset,
                "metadata": commit.metadata,
                "commit_timestamp": commit.timestamp,
            }
            for group, offsets in sorted(self.groups.items())
            for at, commit in sorted(offsets.items())
        ]

    def _groups(self, known: set[str]) -> list[dict[str, Any]]:
        empty = dict.fromkeys(GROUPS_SCHEMA.names)
        return [{**empty, **_GROUP, "group": group} for group in sorted(self.groups) if group not in known]
