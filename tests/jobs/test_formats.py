"""The encodings of columns in Parquet files, and whether others read them."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog.jobs.formats import ParquetFormat, RowGroups

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
