"""Keys, values and headers in easier forms, as a user of Spark meets them."""

from __future__ import annotations

import datetime
import json
import logging
from pathlib import Path

import pytest
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructField, StructType

from sparklog.errors import InvalidOptionError
from sparklog.spark.options.read import SeglogOptions
from sparklog.spark.options.warnings import warn_batch
from sparklog.spark.read.decoding import columns_of
from tests.build import Record, v2_batch, write_partition
from tests.golden import EXAMPLES
from tests.spark.test_source import load, refusal

SCHEMA = "id bigint, name string, at timestamp, tags array<string>, more struct<deep: double>"
DOCUMENTS = [
    b'{"id": 1, "name": "one", "at": "2026-03-02T09:00:00Z", "tags": ["a", null], "more": {"deep": 1.5}}',
    b'{"id": 2, "name": null}',
    None,
    b'{"name": "four", "tags": []}',
]


def write(folder: Path, values: list[bytes | None], headers: list[tuple[str, bytes | None]] | None = None) -> Path:
    records = [Record(n, 1_000 + n, b"k%d" % n, value, headers or []) for n, value in enumerate(values)]
    write_partition(folder / "events-0", [v2_batch(records, base_offset=0)])
    return folder


def test_documents_become_the_columns_that_spark_makes_of_them(spark: SparkSession, tmp_path: Path) -> None:
    logs = write(tmp_path, DOCUMENTS)
    plain = load(spark, logs).select("offset", sf.from_json(sf.col("value").cast("string"), SCHEMA).alias("value"))
    decoded = load(spark, logs, valueFormat="json", valueSchema=SCHEMA).select("offset", "value")
    assert decoded.schema["value"].dataType == plain.schema["value"].dataType
    assert sorted(decoded.collect()) == sorted(plain.collect())


def test_text_is_text_and_bytes_that_are_none_are_an_error_or_null(spark: SparkSession, tmp_path: Path) -> None:
    logs = write(tmp_path, ["é".encode(), b"", None, b"\xff"])
    frame = load(spark, logs, keyFormat="string", valueFormat="string")
    assert (frame.schema["key"].dataType, frame.schema["value"].dataType) == (StringType(), StringType())
    assert "the value of offset 3 of events-0 does not decode" in (said := refusal(frame))
    assert "Set onDecodeError to null" in said
    frame = load(spark, logs, keyFormat="string", valueFormat="string", onDecodeError="null")
    assert [(row.key, row.value) for row in frame.sort("offset").collect()] == [
        ("k0", "é"),
        ("k1", ""),
        ("k2", None),
        ("k3", None),
    ]


def test_function_of_a_users_own_decodes(spark: SparkSession, tmp_path: Path) -> None:
    logs = write(tmp_path, [b"four", None, b""])
    frame = load(spark, logs, valueFormat="tests.values.decoders:lengths")
    assert [row.value for row in frame.sort("offset").collect()] == [4, None, 0]


def test_times_of_every_unit_reach_spark_to_the_microsecond(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("fastavro")
    import io

    import fastavro

    schema = {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "ns", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
            {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
        ],
    }
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, {"ms": 1_500, "ns": 1_000_001_999, "time": 3_600_000})
    logs = write(tmp_path, [out.getvalue()])
    frame = load(spark, logs, valueFormat="avro", valueSchema=json.dumps(schema), valueWire="none")
    found = frame.select(
        sf.unix_micros("value.ms").alias("ms"), sf.unix_micros("value.ns").alias("ns"), "value.time"
    ).first()
    assert found is not None
    assert found.asDict() == {"ms": 1_500_000, "ns": 1_000_001, "time": datetime.time(1)}


def test_headers_as_a_map_are_looked_up_by_name(spark: SparkSession, tmp_path: Path) -> None:
    logs = write(tmp_path, [b"v"], [("id", b"old"), ("trace", None), ("id", b"new")])
    frame = load(spark, logs, headersAsMap="true")
    assert frame.schema["headers"].dataType == MapType(StringType(), BinaryType())
    row = frame.select("headers.id", sf.col("headers")["none"].alias("none"), sf.map_keys("headers").alias("keys"))
    assert row.first() == (b"new", None, ["trace", "id"])


def test_headers_of_the_example_are_the_same_as_a_list_and_as_a_map(spark: SparkSession) -> None:
    lists = load(spark, EXAMPLES, includeHeaders="true").sort("topic", "partition", "offset").collect()
    maps = load(spark, EXAMPLES, headersAsMap="true").sort("topic", "partition", "offset").collect()
    assert any(row.headers for row in lists)
    assert [None if row.headers is None else {key: bytes(value) for key, value in row.headers} for row in lists] == [
        None if row.headers is None else {key: bytes(value) for key, value in row.headers.items()} for row in maps
    ]


def test_schema_of_a_users_own_names_the_decoded_types(spark: SparkSession, tmp_path: Path) -> None:
    logs = write(tmp_path, [b'{"id": 7}'])
    right = StructType([StructField("value", StructType([StructField("id", LongType())]))])
    options = {"valueFormat": "json", "valueSchema": "id bigint"}
    frame = spark.read.format("seglog").schema(right).options(**options).load(str(logs))
    assert [row.value.id for row in frame.collect()] == [7]
    wrong = StructType([StructField("value", StringType())])
    with pytest.raises(PySparkException, match="column 'value' is struct<id:bigint>"):
        spark.read.format("seglog").schema(wrong).options(**options).load(str(logs)).collect()
    as_map = StructType([StructField("headers", MapType(StringType(), BinaryType()))])
    with pytest.raises(PySparkException, match="map<string,binary> with headersAsMap"):
        spark.read.format("seglog").schema(as_map).load(str(logs)).collect()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"valueFormat": "jsno"}, "no valueFormat 'jsno': did you mean 'json'"),
        ({"valueFormat": "json"}, "valueFormat json needs a schema"),
        ({"keySchema": "id bigint"}, "keyFormat raw takes no schema"),
        ({"keyWire": "confluent"}, "keyFormat raw takes no wire"),
        ({"valueFormat": "json", "valueSchema": "id bigint", "valueWire": "confluence"}, "no wire 'confluence'"),
        ({"valueFormat": "tests.values.decoders:missing"}, "missing"),
    ],
)
def test_form_that_is_wrong_is_refused_on_the_driver(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        columns_of(SeglogOptions.parse({"path": "/logs", **given}))


def test_raw_is_what_is_read_without_a_format() -> None:
    assert columns_of(SeglogOptions.parse({"path": "/logs", "keyFormat": "raw"})).decoders == {}


def test_form_of_a_column_that_is_not_read_is_warned_of(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = write(tmp_path, [b"v"])
    with caplog.at_level(logging.WARNING, "sparklog"):
        warn_batch({"valueFormat": "string", "headersAsMap": "true"}, ["offset"])
        warn_batch({"onDecodeError": "null"}, ["value"])
    assert [record.getMessage() for record in caplog.records] == [
        "the option headersAsMap does nothing here: the columns are chosen, and headers is not among them",
        "the option valueFormat does nothing here: the columns are chosen, and value is not among them",
        "the option onDecodeError does nothing here: neither keyFormat nor valueFormat is given",
    ]
    assert load(spark, logs, valueFormat="string", columns="offset").collect()[0].offset == 0


def test_key_and_value_take_the_same_options(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"{number}.proto").write_text(
            f'syntax = "proto3"; message A {{ int32 a{number} = 1; }} message B {{ int64 b{number} = 1; }}'
        )
    for column in ("key", "value"):
        asked = {f"{column}Format": "protobuf", f"{column}Schema": str(tmp_path)}
        found = columns_of(SeglogOptions.parse({"path": "/logs", **asked}))
        assert found.types[column].simpleString() == "struct<a2:int>"
        assert found.decoders[column].has_prefix
        asked |= {f"{column}SchemaId": "1", f"{column}Message": "B", f"{column}Wire": "none"}
        found = columns_of(SeglogOptions.parse({"path": "/logs", **asked}))
        assert found.types[column].simpleString() == "struct<b1:bigint>"
        assert not found.decoders[column].has_prefix
