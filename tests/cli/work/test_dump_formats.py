"""JSON lines that are written column by column are those that the library writes row by row."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.cli.work.dump_formats import record_lines
from sparklog.inspect.dump import RowDict, log_of_folder, record_batches, record_rows
from sparklog.inspect.dump_range import DumpedLog, DumpRange
from sparklog.values.json_text import base64_of
from tests.build import Record, v2_batch, write_partition
from tests.golden import GoldenSet, golden_set, golden_sets
from tests.places import folder_at

SHORT_BYTES = st.none() | st.binary(max_size=8) | st.text(max_size=8).map(str.encode)
DUMP = """
import sys
from sparklog.cli.commands.main import run
sys.argv = ["sparklog", *sys.argv[1:]]
try:
    run()
finally:
    assert "pandas" not in sys.modules
"""
PARTITIONS = [
    pytest.param(golden, topic, partition, id=f"{golden.name}/{topic}-{partition}")
    for golden in golden_sets()
    for topic, partition in golden.partitions
]


def jsonable(row: RowDict) -> RowDict:
    """Write bytes as text, or as base64 under another name."""
    written: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, bytes):
            try:
                written[name] = value.decode()
            except UnicodeDecodeError:
                written[f"{name}_base64"] = base64.b64encode(value).decode()
        else:
            written[name] = [jsonable(each) for each in value] if isinstance(value, list) else value
    return written


def expected(log: DumpedLog, batch: pa.RecordBatch) -> list[str]:
    rows = record_rows(log, batch)
    return [json.dumps(jsonable(row), ensure_ascii=False, separators=(",", ":")) for row in rows]


def all_batches(log: DumpedLog) -> list[pa.RecordBatch]:
    return list(record_batches(log, *log.record_span(DumpRange()), "read_uncommitted"))


@pytest.mark.parametrize(("golden", "topic", "partition"), PARTITIONS)
def test_golden_records_are_written_as_the_library_writes_them(golden: GoldenSet, topic: str, partition: int) -> None:
    log = log_of_folder(folder_at(golden.partition_dir(topic, partition)))
    for batch in all_batches(log):
        assert bytes(record_lines(log, batch)).decode().splitlines() == expected(log, batch)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(SHORT_BYTES, SHORT_BYTES, st.lists(st.tuples(st.text(max_size=3), SHORT_BYTES), max_size=3)),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 8),
)
def test_any_records_and_any_slice_of_them_are_written_as_the_library_writes_them(
    tmp_path_factory: pytest.TempPathFactory, contents: list[Any], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("logs") / "quoted-0"
    records = [Record(n, n, key, value, headers) for n, (key, value, headers) in enumerate(contents)]
    half = len(records) // 2
    later = [Record(n, n, each.key, each.value, each.headers) for n, each in enumerate(records[half:])]
    write_partition(folder, [v2_batch(records[:half]), v2_batch(later, base_offset=half)][half == 0 :])
    log = log_of_folder(folder_at(folder))
    (batch,) = [pa.Table.from_batches(all_batches(log)).combine_chunks().to_batches()[0]]
    for part in (batch, batch[cut:], batch[:cut]):
        assert bytes(record_lines(log, part)).decode().split("\n")[:-1] == expected(log, part)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.none() | st.binary(max_size=9), max_size=6), st.integers(0, 6))
def test_base64_is_the_librarys(data: list[bytes | None], cut: int) -> None:
    written = base64_of(pa.array(data, pa.binary())[cut:]).to_pylist()
    assert written == [None if each is None else base64.b64encode(each) for each in data[cut:]]


@pytest.mark.parametrize("command", [("dump", "--json"), ("dump", "--json", "--last", "2"), ("verify", "--json")])
def test_pandas_is_not_imported(command: tuple[str, ...]) -> None:
    """It takes longer to import than all of a command."""
    (name, *options), logs = command, golden_set("v2-records").log_dir
    subprocess.run([sys.executable, "-c", DUMP, name, str(logs), *options], stdout=subprocess.DEVNULL, check=True)
