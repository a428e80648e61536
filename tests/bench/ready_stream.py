"""The least that a source of a stream can do: it yields batches that are in memory already, in one trigger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tests.bench.spark_read import ReadyMadeReader, seglog


class ReadyMadeStream(DataSource):
    """All rows of logs; with the option ``empty`` none, so that only the start of a query is left."""

    @classmethod
    def name(cls) -> str:
        return "ready-made-stream"

    def schema(self) -> StructType:
        return StructType(seglog({"path": self.options["path"]}).schema().fields)

    def streamReader(self, schema: StructType) -> ReadyMadeStreamReader:  # noqa: N802 - Spark's name
        reader = None if "empty" in self.options else ReadyMadeReader({"path": self.options["path"]}, schema)
        return ReadyMadeStreamReader(reader)


class ReadyMadeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads with seglog the first time, and from memory from then on."""

    def __init__(self, reader: DataSourceReader | None) -> None:
        self._reader = reader

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"trigger": 0}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: ARG002, N802
        return {"trigger": 1}

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:  # noqa: ARG002
        return [InputPartition(None)] if self._reader is None else list(self._reader.partitions())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(()) if self._reader is None else self._reader.read(partition)

    def commit(self, end: Any) -> None:
        pass

    def stop(self) -> None:
        pass
