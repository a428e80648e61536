"""Reads have their kernels compiled as soon as their options are known; nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, StructType

from sparklog.errors import InvalidOptionError
from sparklog.spark import source
from sparklog.spark.source import SeglogDataSource
from tests.golden import EXAMPLES


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    monkeypatch.setattr(source, "compile_for_reading", lambda: calls.append("reading"))
    return calls


def test_schema_batch_and_stream_begin_to_compile(begun: list[str]) -> None:
    data = SeglogDataSource({"path": str(EXAMPLES)})
    schema = data.schema()
    assert len(begun) == 1, "a read without a schema asks for one first"
    data.reader(schema)
    assert len(begun) == 2, "and a read with one does not"
    SeglogDataSource({"path": str(EXAMPLES)}).streamReader(schema)
    assert len(begun) == 3


def test_write_and_mistaken_options_compile_nothing_ahead(begun: list[str], tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "events"), "numPartitions": "1"}
    SeglogDataSource(options).writer(StructType().add("value", BinaryType()), overwrite=False)
    with pytest.raises(InvalidOptionError):
        SeglogDataSource({"path": str(EXAMPLES), "startingOffsets": "somewhere"}).schema()
    assert begun == []
