"""Loader of the golden directories in ``tests/data``: what brokers wrote, and what Kafka's consumer read from it."""

from __future__ import annotations

import base64
import functools
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

DATA = Path(__file__).parent / "data"
EXAMPLES = Path(__file__).parent.parent / "examples" / "data"

IsolationLevel = Literal["read_uncommitted", "read_committed"]


@dataclass(frozen=True)
class GoldenOffsets:
    """What the broker answered for a partition; `for_times` maps a timestamp in ms to an offset, or None."""

    beginning: int
    end: int
    last_stable: int
    for_times: dict[int, int | None]


@dataclass(frozen=True)
class GoldenSet:
    """One directory of ``tests/data``; its page is ``tests/data/README.md``."""

    directory: Path

    @property
    def name(self) -> str:
        """The directory's name."""
        return self.directory.name

    @property
    def log_dir(self) -> Path:
        """The log directory, as the broker left it."""
        return self.directory / "logs"

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """The (topic, partition) pairs that `records` and `offsets` know, sorted."""
        return sorted(self.offsets)

    @functools.cached_property
    def offsets(self) -> dict[tuple[str, int], GoldenOffsets]:
        """Offsets by (topic, partition)."""
        found = json.loads((self.directory / "offsets.json").read_text())
        return {
            (row["topic"], row["partition"]): GoldenOffsets(
                row["beginning"],
                row["end"],
                row["last_stable"],
                {answer["timestamp"]: answer["offset"] for answer in row["for_times"]},
            )
            for row in found
        }

    @functools.cached_property
    def dump_text(self) -> str:
        """What ``kafka-dump-log --deep-iteration`` printed over all files; names are relative to `log_dir`."""
        return gzip.decompress((self.directory / "dump.txt.gz").read_bytes()).decode()

    @property
    def transactional(self) -> bool:
        """Whether the two isolation levels were read apart; else nothing in the set is transactional."""
        return (self.directory / "read_committed.jsonl.gz").exists()

    def partition_dir(self, topic: str, partition: int) -> Path:
        """Return the directory of a partition."""
        return self.log_dir / f"{topic}-{partition}"

    def records(
        self, isolation_level: IsolationLevel, topic: str | None = None, partition: int | None = None
    ) -> list[dict[str, Any]]:
        """Return the records that Kafka's consumer read, in its order: by topic, partition, offset.

        Parameters
        ----------
        isolation_level : str
            ``read_uncommitted`` or ``read_committed``.
        topic, partition : optional
            Only of this topic, of this partition.

        Returns
        -------
        list of dict
            ``topic``, ``partition``, ``offset``, ``timestamp`` (ms), ``timestampType`` (``CreateTime``,
            ``LogAppendTime``, ``NoTimestampType``), ``key`` and ``value`` (bytes or None), ``headers`` (list of
            (str, bytes or None)), ``leaderEpoch`` (None for magic 0 and 1).
        """
        level = isolation_level if self.transactional else "read_uncommitted"
        return [
            record
            for record in self._read(level)
            if topic in (None, record["topic"]) and partition in (None, record["partition"])
        ]

    @functools.cache  # noqa: B019 - there are as many sets as directories
    def _read(self, level: str) -> list[dict[str, Any]]:
        lines = gzip.decompress((self.directory / f"{level}.jsonl.gz").read_bytes()).splitlines()
        return [decoded(json.loads(line)) for line in lines]


def golden_sets() -> list[GoldenSet]:
    """Return all sets, sorted by name."""
    return [GoldenSet(path.parent) for path in sorted(DATA.glob("*/offsets.json"))]


def golden_set(name: str) -> GoldenSet:
    """Return the set of a name."""
    return GoldenSet(DATA / name)


def decoded(row: dict[str, Any]) -> dict[str, Any]:
    """Return a record of the harness's consumer with its base64 as bytes."""
    headers = [(name, _bytes(value)) for name, value in row["headers"]]
    return {**row, "key": _bytes(row["key"]), "value": _bytes(row["value"]), "headers": headers}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
