"""The encodings of columns in Parquet files, and whether others read them."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from sparklog.errors import ValueDecodeError
from sparklog.jobs.files.formats import CsvFormat, ParquetFormat, RowGroups

LINES = pa.csv.ParseOptions(newlines_in_values=True)
RNG = random.Random(1)
RANDOM = [RNG.randbytes(RNG.randrange(40, 160)) if at % 7 else None for at in range(5000)]
LIKE = [
    b'{"user": "user-%d", "currency": "EUR", "amount": %d}' % (at % 999, RNG.randrange(10**6)) for at in range(5000)
]
REPEATED = [b"one of %d" % (at % 5) for at in range(5000)]


def written(values: list[bytes | None], kind: pa.DataType | None = None, *, has_deltas: bool = True) -> bytes:
    """Return a file of a column of offsets and one of values, in two row groups."""
    table = pa.table({"offset": range(len(values)), "value": pa.array(values, kind or pa.binary())})
    sink = io.BytesIO()
    groups = RowGroups(ParquetFormat(has_deltas=has_deltas).open(sink, table.schema), table.schema, rows_max=3000)
    for batch in table.to_batches(max_chunksize=1500):
        groups.append(batch)
    groups.close()
    return sink.getvalue()


def encodings(file: bytes) -> list[set[str]]:
    """Return the encodings of each column, without those of nulls."""
    metadata = pq.read_metadata(io.BytesIO(file))
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [{each for group in groups for each in group.column(at).encodings} - {"RLE"} for at in range(2)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (RANDOM, {"DELTA_LENGTH_BYTE_ARRAY"}),
        (LIKE, {"PLAIN"}),
        (REPEATED, {"PLAIN", "RLE_DICTIONARY"}),
        (RANDOM[:100], {"PLAIN"}),
        ([None] * 5000, {"PLAIN", "RLE_DICTIONARY"}),
    ],
    ids=["random", "alike", "repeated", "few", "null"],
)
def test_lengths_are_apart_from_values_that_compress_better_without(
    values: list[bytes | None], expected: set[str]
) -> None:
    file = written(values)
    assert encodings(file) == [{"DELTA_BINARY_PACKED"}, expected]
    assert pq.read_table(io.BytesIO(file)).column("value").to_pylist() == values


def test_nothing_is_delta_encoded_where_it_is_not_to_be() -> None:
    assert encodings(written(RANDOM, has_deltas=False)) == [{"PLAIN"}, {"PLAIN"}]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_lengths_are_apart_from_text_too(kind: pa.DataType) -> None:
    texts = [None if each is None else each.hex().encode() for each in RANDOM]
    file = written(texts, kind)
    assert encodings(file)[1] == {"DELTA_LENGTH_BYTE_ARRAY"}
    found = pq.read_table(io.BytesIO(file)).column("value")
    assert found.type == kind
    assert found.cast(pa.binary()).to_pylist() == texts


def values_in_duckdb(path: Path) -> list[bytes | None]:
    with duckdb.connect() as connection:
        found = connection.execute(f"select value from read_parquet('{path}') order by \"offset\"").fetchall()
    return [value for (value,) in found]


def values_in_polars(path: Path) -> list[bytes | None]:
    return pl.read_parquet(path)["value"].to_list()


@pytest.mark.parametrize("reader", [values_in_duckdb, values_in_polars])
def test_others_read_values_whose_lengths_are_apart(
    tmp_path: Path, reader: Callable[[Path], list[bytes | None]]
) -> None:
    path = tmp_path / "random.parquet"
    path.write_bytes(written(RANDOM))
    assert reader(path) == RANDOM


def csv_of(table: pa.Table, wanted: CsvFormat | None = None) -> str:
    sink = io.BytesIO()
    writer = (wanted or CsvFormat()).open(sink, table.schema)
    writer.write(table)
    writer.close()
    return sink.getvalue().decode()


def test_csv_of_years_that_arrow_has_no_text_of_has_these_years() -> None:
    last, far, latest = 971_890_963_199_999, 971_890_963_200_000, (1 << 63) - 1
    times = pa.array([last, far, None, latest, 0], pa.int64()).view(pa.timestamp("ms", "UTC"))
    days = pa.array([11_248_737, 11_248_738, None, -12_687_794, 0], pa.int32()).view(pa.date32())
    assert csv_of(pa.table({"time": times, "day": days})).splitlines()[1:] == [
        '"32767-12-31 23:59:59.999Z","32767-12-31"',
        '"32768-01-01 00:00:00.000Z","32768-01-01"',
        ",",
        '"292278994-08-17 07:12:55.807Z","-32768-01-01"',
        '"1970-01-01 00:00:00.000Z","1970-01-01"',
    ]
    assert csv_of(pa.table({"time": times[:1], "day": days[:1]})).splitlines() == [
        '"time","day"',
        "32767-12-31 23:59:59.999Z,32767-12-31",
    ]


def test_csv_of_one_column_with_nulls_is_refused() -> None:
    assert csv_of(pa.table({"value": ["a", "", "b"]})) == '"value"\n"a"\n""\n"b"\n'
    with pytest.raises(
        ValueDecodeError, match="the column 'value' has nulls, and in a CSV file of one column these are"
    ):
        csv_of(pa.table({"value": ["a", None]}))


def test_csv_may_have_no_formulas() -> None:
    texts = ["=1+1", "+1", "-1", "@x", "\t=1", "\r", "\n", "\uff1d1", "'=1", "a=1", "", None]
    table = pa.table({"text": texts, "number": range(-6, 6)})
    found = pa.csv.read_csv(io.BytesIO(csv_of(table, CsvFormat(escapes_formulas=True)).encode()), parse_options=LINES)
    assert found["text"].to_pylist() == [*(f"'{each}" for each in texts[:8]), *texts[8:11], ""]
    assert found["number"].to_pylist() == list(range(-6, 6))
    assert csv_of(table) != csv_of(table, CsvFormat(escapes_formulas=True))
