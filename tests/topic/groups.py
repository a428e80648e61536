"""Directories with topics and with what groups have committed of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparklog.topic.internal.groups import partition_of_group
from tests.log.logs import write
from tests.system.logs import Put, put, write_log

PARTITIONS = 3
"""How many partitions the directory has of ``__consumer_offsets``."""

Offsets = Mapping[tuple[str, int], int]


def commits(group: str, offsets: Offsets, version: int = 3, time_ms: int = 0, **step: Any) -> list[Put]:
    return [
        put(
            "OffsetCommit",
            {"group": group, "topic": topic, "partition": partition},
            {"offset": offset, "commitTimestamp": time_ms},
            version,
            **step,
        )
        for (topic, partition), offset in offsets.items()
    ]


def classic(group: str, members: Sequence[Mapping[str, Any]] = (), since_ms: int = -1) -> Put:
    """Make the record of a classic group of consumers."""
    fields = {"protocolType": "consumer", "currentStateTimestamp": since_ms, "members": members}
    return put("GroupMetadata", {"group": group}, fields, 3)


def write_groups(directory: Path, groups: Mapping[str, Sequence[Put]], partitions: int = PARTITIONS) -> None:
    """Write ``__consumer_offsets``, each group's records where Kafka has them."""
    steps: defaultdict[int, list[Put]] = defaultdict(list)
    for group, records in groups.items():
        steps[partition_of_group(group, partitions)] += records
    for number in range(partitions):
        write_log(directory / f"__consumer_offsets-{number}", steps[number])


def write_shop(directory: Path, groups: Mapping[str, Offsets]) -> Path:
    """Write topics a (partitions of 100 and of 50 offsets) and b (30), and what groups have committed of them."""
    for name, batches in {"a-0": 10, "a-1": 5, "b-0": 3}.items():
        write(directory / name, batches)
    write_groups(directory, {group: commits(group, offsets) for group, offsets in groups.items()})
    return directory
