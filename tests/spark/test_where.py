"""The option ``where``: the same rows as WHERE on a full read, and a wrong one is told by the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.build import Record, v2_batch, write_partition
from tests.golden import EXAMPLES

HEADER_IS = "exists(filter(headers, h -> h.key = 'kind' AND h.value IS NOT NULL), h -> h.value = X'61')"
HAS_HEADER = "exists(headers, h -> h.key = 'kind' AND h.value IS NOT NULL)"
CASES = [
    ("key = 'k3'", "key = X'6b33'"),
    ("NOT (key = 'k3' OR offset > 50)", "NOT (key = X'6b33' OR offset > 50)"),
    ("key IS NULL AND partition = 1", "key IS NULL AND partition = 1"),
    ("key != 'k3' OR value IS NULL", "key != X'6b33' OR value IS NULL"),
    ("key NOT IN ('k1', X'6b32') AND offset < 40", "key NOT IN (X'6b31', X'6b32') AND offset < 40"),
    ("timestamp >= '1970-01-01T00:00:50.0005Z'", "timestamp >= '1970-01-01T00:00:50.0005Z'"),
    ("timestamp <= '1970-01-01T00:00:50.0005Z'", "timestamp <= '1970-01-01T00:00:50.0005Z'"),
    ("timestamp < 50000 AND timestampType = 0", "timestamp < timestamp_millis(50000) AND timestampType = 0"),
    ("value startsWith 'v1' AND NOT value endsWith '2'", "startswith(value, X'7631') AND NOT endswith(value, X'32')"),
    ("value contains '3' OR value < 'v2'", "contains(value, X'33') OR value < X'7632'"),
    ("headers['kind'] = 'a'", HEADER_IS),
    ("headers['kind'] IS NULL", f"NOT coalesce({HAS_HEADER}, false)"),
    ("topic = 'other'", "topic = 'other'"),
]


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """Two partitions of 100 records with nulls, headers, two codecs and three segments each."""
    for partition, codec in enumerate(("lz4", "none")):
        write_partition(
            tmp_path / f"events-{partition}",
            [v2_batch([record(10 * n + m) for m in range(10)], base_offset=10 * n, codec=codec) for n in range(10)],
            segment_bytes=1200,
            index_interval_bytes=300,
        )
    return tmp_path


def record(offset: int) -> Record:
    kinds: list[list[tuple[str, bytes | None]]] = [
        [],
        [("kind", b"a")],
        [("kind", None), ("kind", b"b")],
        [("x", b"a")],
    ]
    key = None if offset % 5 == 0 else b"k%d" % (offset % 7)
    value = None if offset % 11 == 0 else b"v%d" % offset
    return Record(offset % 10, 1000 * offset, key, value, kinds[offset % 4])


def load(spark: SparkSession, path: Path | str, **options: Any) -> DataFrame:
    return spark.read.format("seglog").options(includeHeaders=True, **options).load(str(path))


def sorted_rows(frame: DataFrame) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: (row["topic"], row["partition"], row["offset"]))


@pytest.mark.parametrize(("where", "in_spark"), CASES)
def test_filtered_read_equals_where_on_a_full_read(
    spark: SparkSession, events: Path, where: str, in_spark: str
) -> None:
    expected = sorted_rows(load(spark, events).where(in_spark))
    assert len(expected) < 200
    assert sorted_rows(load(spark, events, where=where)) == expected


def test_count_counts_what_passes(spark: SparkSession, events: Path) -> None:
    filtered = load(spark, events, where="key = 'k3'", columns="offset")
    expected = load(spark, events).where("key = X'6b33'").count()
    assert 0 < filtered.count() == expected
    assert filtered.columns == ["offset"]
    assert load(spark, events, where="offset > 1000").count() == 0


def test_filtered_frames_and_full_ones_are_used_side_by_side(spark: SparkSession, events: Path) -> None:
    """What a filter of Spark's own that is pushed down would get wrong: each load has its own."""
    full, filtered = load(spark, events), load(spark, events, where="offset >= 90")
    assert filtered.count() == 20
    assert full.union(filtered).count() == 220
    assert filtered.where("offset >= 95").union(filtered).count() == 30
    assert full.count() == 200


def test_filter_splits_with_minimum_partitions_and_isolation(spark: SparkSession) -> None:
    options = {"isolationLevel": "read_committed", "minPartitions": 7}
    whole = sorted_rows(load(spark, EXAMPLES, **options).where("offset % 3 >= 0 AND timestampType = 0"))
    assert sorted_rows(load(spark, EXAMPLES, where="timestampType = 0", **options)) == whole


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("kye = 'a'", "no column 'kye'; did you mean 'key'?"),
        ("key = ", "expected text in quotes, or bytes as X'00ff', and the text ends"),
        ("", "expected a column, and the text ends; the columns are partition, topic, offset"),
    ],
)
def test_wrong_filter_is_told_when_it_is_loaded(spark: SparkSession, events: Path, where: str, said: str) -> None:
    with pytest.raises(PySparkException) as raised:
        load(spark, events, where=where)
    assert said in str(raised.value)
