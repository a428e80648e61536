"""The view ``damage``: rows of the bytes and offsets that cannot be read, a task for each partition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from sparklog.log.layout import read_layout
from sparklog.log.places import PartitionFolder
from sparklog.log.reader import IsolationLevel, LogReader
from sparklog.spark.options.read import SeglogOptions
from sparklog.spark.read.plan import select


@dataclass(frozen=True)
class DamageOfLog:
    """The damage of one partition; a part of the view that a task reads."""

    folder: PartitionFolder
    isolation_level: IsolationLevel

    def batches(self) -> Iterator[pa.RecordBatch]:
        with LogReader(read_layout(self.folder, "skip")) as log:
            yield from log.damage(isolation_level=self.isolation_level).to_batches()


@dataclass(frozen=True)
class DamageView:
    """The view of the partitions that options select."""

    options: SeglogOptions

    def parts(self) -> list[DamageOfLog]:
        return [DamageOfLog(folder, self.options.isolation_level) for folder in select(self.options)]
