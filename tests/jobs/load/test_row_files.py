"""What is read of files of every kind, and what damage and surprises in them come to: an error that names the file."""

from __future__ import annotations

import bz2
import gzip
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.errors import InputFileError, InvalidOptionError, SeglogError
from sparklog.jobs.load import row_files
from sparklog.jobs.load.inputs import find_files
from sparklog.jobs.load.mapping import ColumnRoles
from sparklog.jobs.load.row_files import Csv, WantedColumns, open_input, read_rows
from sparklog.topic.places.discovery import places_at
from tests.jobs.loads import HEADERS, strings, write_arrow, write_parquet, write_stream

ROOT = Path(__file__).parents[3]
RECORD = ColumnRoles().wanted
ALL = WantedColumns({}, has_all=True)
WRITERS = {"parquet": write_parquet, "arrow": write_arrow, "arrows": write_stream}
Writer = Callable[[Path, pa.Table], None]


def read(
    path: Path, wanted: WantedColumns = RECORD, csv: Csv | None = None, kind: str | None = None
) -> list[dict[str, Any]]:
    (file,) = find_files(places_at(path), kind)
    with open_input(file) as source:
        return [row for rows in read_rows(source, file, None, wanted, csv or Csv()) for row in rows.to_pylist()]


def tried(path: Path) -> list[dict[str, Any]] | SeglogError:
    try:
        return read(path, ALL)
    except SeglogError as error:
        return error


def text(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@pytest.mark.parametrize("ending", WRITERS)
def test_only_what_is_asked_for_is_read(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    WRITERS[ending](path, pa.table({"x": [1, 2], "value": ["a", "b"], "y": [[1], None]}))
    assert read(path) == [{"value": "a"}, {"value": "b"}]
    assert read(path, ALL) == [{"x": 1, "value": "a", "y": [1]}, {"x": 2, "value": "b", "y": None}]


@pytest.mark.parametrize("ending", WRITERS)
def test_rows_come_some_at_a_time_in_their_order(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    WRITERS[ending](path, strings([f"{n:01000d}" for n in range(5000)]))
    (file,) = find_files(places_at(path))
    with open_input(file) as source:
        found = list(read_rows(source, file, None, RECORD, Csv()))
    assert [int(each) for rows in found for each in rows["value"].to_pylist()] == list(range(5000))
    assert max(rows.num_rows for rows in found) <= 1100


@pytest.mark.parametrize("ending", WRITERS)
def test_files_without_rows_have_none(tmp_path: Path, ending: str) -> None:
    WRITERS[ending](tmp_path / f"a.{ending}", strings([]).cast(pa.schema([("value", pa.string())])))
    assert read(tmp_path / f"a.{ending}") == []


@pytest.mark.parametrize("ending", ["csv", "json", "csv.gz"])
def test_empty_files_of_text_have_no_rows(tmp_path: Path, ending: str) -> None:
    assert read(text(tmp_path / f"a.{ending}", gzip.compress(b"") if ending.endswith("gz") else b"")) == []


@pytest.mark.parametrize("ending", WRITERS)
def test_empty_files_of_other_formats_are_damaged(tmp_path: Path, ending: str) -> None:
    with pytest.raises(InputFileError, match=rf"a\.{ending} cannot be read as"):
        read(text(tmp_path / f"a.{ending}", b""))


@pytest.mark.parametrize("ending", WRITERS)
def test_a_file_cut_anywhere_is_refused_or_read_whole_or_to_a_whole_batch(tmp_path: Path, ending: str) -> None:
    table = strings([f"v{n}" for n in range(100)], key=[f"k{n}" for n in range(100)])
    path = tmp_path / f"a.{ending}"
    WRITERS[ending](path, table)
    whole, data = read(path, ALL), path.read_bytes()
    for cut in range(0, len(data), 7):
        text(path, data[:cut])
        found = tried(path)
        if isinstance(found, SeglogError):
            assert isinstance(found, InputFileError)
            assert str(path) in found.message
        else:
            # A stream may end without saying so.
            assert ending == "arrows"
            assert found in ([], whole)


@pytest.mark.parametrize("ending", WRITERS)
def test_flipped_bits_raise_no_error_of_others(tmp_path: Path, ending: str) -> None:
    path, rng = tmp_path / f"a.{ending}", random.Random(7)
    WRITERS[ending](path, strings([f"v{n}" for n in range(50)], headers=pa.array([[("h", b"x")]] * 50, HEADERS)))
    data = path.read_bytes()
    for _ in range(300):
        flipped = bytearray(data)
        flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        text(path, bytes(flipped))
        found = tried(path)
        if isinstance(found, SeglogError):
            assert isinstance(found, InputFileError)
            assert str(path) in found.message


def test_csv_is_text_and_only_an_unquoted_empty_field_is_null(tmp_path: Path) -> None:
    path = text(tmp_path / "a.csv", 'key,value,n\n007,"a\nb,""c""",1\n,"",\n')
    assert read(path) == [{"key": b"007", "value": b'a\nb,"c"'}, {"key": None, "value": b""}]
    assert read(path, ALL) == [{"key": "007", "value": 'a\nb,"c"', "n": "1"}, {"key": None, "value": "", "n": None}]
    typed = Csv(types={"n": pa.int32()})
    assert [row["n"] for row in read(path, ALL, typed)] == [1, None]


def test_csv_says_its_columns_and_delimiter_where_it_is_told_to(tmp_path: Path) -> None:
    path = text(tmp_path / "a.csv", "a|1\nb|2\n")
    csv = Csv("|", ("value", "n"))
    assert read(path, ALL, csv) == [{"value": "a", "n": "1"}, {"value": "b", "n": "2"}]
    with pytest.raises(InvalidOptionError, match="csv_delimiter must be one character"):
        Csv("||")


def test_csv_with_another_type_in_its_third_block_names_the_column(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(row_files, "_CSV_BLOCK_BYTES", 1000)
    lines = [f"{n:03d},v" for n in range(1000)]
    lines[700] = "seven,v"
    path = text(tmp_path / "a.csv", "\n".join(["n,value", *lines]))
    assert read(path, ALL)[700] == {"n": "seven", "value": "v"}
    with pytest.raises(InputFileError, match=r"a.csv cannot be read as csv: In CSV column #0.*int64.*'seven'"):
        read(path, ALL, Csv(types={"n": pa.int64()}))


def test_a_row_longer_than_a_block_is_read_and_none_twice(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(row_files, "_CSV_BLOCK_BYTES", 1000)
    given = ["a", "b" * 300, "c" * 900, "d" * 40_000, "e", "f" * 90_000, "g"] * 3
    path = text(tmp_path / "a.csv", "\n\n".join(["value", *given]))
    assert [row["value"].decode() for row in read(path)] == given


def test_csv_with_a_field_too_few_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=r"Row #3: Expected 2 columns, got 1"):
        read(text(tmp_path / "a.csv", "key,value\n1,2\n3\n"))


def test_lines_of_json_are_taken_as_they_are(tmp_path: Path) -> None:
    lines = ['{"b":1,  "a":"é"}', "{}", '{"id":123456789012345678901}']
    path = text(tmp_path / "a.jsonl", "\ufeff" + "\r\n".join(["", lines[0], lines[1], "  ", lines[2]]))
    assert [row[row_files.LINE] for row in read(path, ALL)] == lines


def test_json_columns_are_those_of_records(tmp_path: Path) -> None:
    path = text(
        tmp_path / "a.json",
        '{"value":"1","timestamp":17,"partition":1,"headers":[{"key":"h","value_base64":"eA=="}],"more":{"a":[]}}\n'
        '{"value":null,"headers":null}\n',
    )
    assert read(path) == [
        {
            "value": "1",
            "headers": [{"key": "h", "value": None, "value_base64": "eA=="}],
            "timestamp": 17,
            "partition": 1,
        },
        {"value": None, "headers": None, "timestamp": None, "partition": None},
    ]
    path = text(tmp_path / "a.json", '{"value":"2020-01-01","timestamp":"2020-01-01T00:00:00Z","partition":"1"}')
    assert read(path) == [{"value": "2020-01-01", "timestamp": "2020-01-01T00:00:00Z", "partition": "1"}]


@pytest.mark.parametrize(
    "at_end", ['{"value":"b"', '{"value":"b', '{"value":', "{", '{"value":"b"}}', '["b"]', '"b"', "x"]
)
@pytest.mark.parametrize("wanted", [RECORD, ALL], ids=["columns", "lines"])
def test_a_line_of_json_that_is_broken_at_the_end_is_refused(
    tmp_path: Path, at_end: str, wanted: WantedColumns
) -> None:
    path = text(tmp_path / "a.jsonl", '{"value":"a"}\n' * 3 + at_end)
    with pytest.raises(InputFileError, match=r"a.jsonl cannot be read as json: from line 4 on, where row 0 is"):
        read(path, wanted)


def test_value_of_a_header_is_not_taken_for_that_of_a_record(tmp_path: Path) -> None:
    header = '"headers":[{"key":"h","value":"x"}]'
    path = text(tmp_path / "a.json", f'{{"payload":"1",{header}}}\n{{{header}}}\n')
    assert [sorted(row) for row in read(path)] == [["headers"]] * 2
    path = text(tmp_path / "a.json", f'{{{header}}}\n{{"value":null,{header}}}\n')
    assert [row["value"] for row in read(path)] == [None, None]


def test_lines_of_json_that_are_none_say_where(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("sparklog.jobs.files.lines.BLOCK_BYTES", 1000)
    path = text(tmp_path / "a.jsonl", '{"value":"a"}\n' * 500 + '{"value":"a"} {"value":"b"}\n')
    with pytest.raises(InputFileError, match=r"1 lines from line 501 on have 2 objects, and each is to have one"):
        read(path)
    path = text(tmp_path / "a.jsonl", '{"value":"a"}\n' * 500 + '{"value":7}\n')
    with pytest.raises(InputFileError, match=r"from line 501 on.*Column\(/value\) changed from string to number"):
        read(path)


def test_json_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=r"a.jsonl cannot be read.*UTF8"):
        read(text(tmp_path / "a.jsonl", b'{"value":"\xff"}\n'), ALL)


def test_lines_longer_than_a_block_are_read(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("sparklog.jobs.files.lines.BLOCK_BYTES", 100)
    given = ["a", "b" * 1000, "c" * 99, "d"]
    path = text(tmp_path / "a.jsonl", "\n".join(f'{{"value":"{each}"}}' for each in given))
    assert [row["value"] for row in read(path)] == given


@pytest.mark.parametrize(("ending", "compress"), [("gz", gzip.compress), ("bz2", bz2.compress)])
def test_compressed_text_is_read_and_not_when_it_is_cut(
    tmp_path: Path, ending: str, compress: Callable[[bytes], bytes]
) -> None:
    lines = "".join(f'{{"value":"{n}"}}\n' for n in range(2000))
    data = compress(lines.encode())
    assert len(read(text(tmp_path / f"a.jsonl.{ending}", data))) == 2000
    with pytest.raises(InputFileError, match=rf"a.jsonl.{ending} cannot be read"):
        read(text(tmp_path / f"a.jsonl.{ending}", data[:-5]))
    csv = compress(("value\n" + "1\n" * 2000).encode())
    assert len(read(text(tmp_path / f"a.csv.{ending}", csv))) == 2000
    with pytest.raises(InputFileError, match=rf"a.csv.{ending} cannot be read"):
        read(text(tmp_path / f"a.csv.{ending}", csv[:-5]))


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_arrow(path, strings(["a"]))
    with pytest.raises(InputFileError, match=r"a.parquet cannot be read as parquet.*say its format"):
        read(path)
    assert read(path, kind="arrow") == [{"value": "a"}]


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = text(tmp_path / "a.csv", "value\na\n")
    (file,) = find_files(places_at(path))

    def grow() -> None:
        with open_input(file) as source, path.open("a") as end:
            assert len(list(read_rows(source, file, None, RECORD, Csv()))) == 1
            end.write("b\n")

    with pytest.raises(InputFileError, match="was changed while it was loaded"):
        grow()
    with pytest.raises(InputFileError, match="was changed while it was loaded"), open_input(file):
        pass


READ_ALL = """
import resource, sys
from sparklog.jobs.load.inputs import find_files
from sparklog.jobs.load.row_files import Csv, WantedColumns, open_input, read_rows
from sparklog.topic.places.discovery import places_at
(file,) = find_files(places_at(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with open_input(file) as source:
    rows = sum(rows.num_rows for rows in read_rows(source, file, None, WantedColumns({"value": "value"}, False), Csv()))
print(rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.parametrize("ending", ["parquet", "csv", "json"])
def test_memory_does_not_grow_with_a_row_group_or_a_file(tmp_path: Path, ending: str) -> None:
    path, value = tmp_path / f"a.{ending}", "v" * 1000
    if ending == "parquet":
        table = pa.table({"value": pa.repeat(value, 1 << 18)})
        write_parquet(path, table, row_group_size=1 << 20, use_dictionary=False, compression="none")
    else:
        line = value if ending == "csv" else f'{{"value":"{value}"}}'
        path.write_text("\n".join(["value"] * (ending == "csv") + [line] * (1 << 18)))
    command = [sys.executable, "-c", READ_ALL, str(path)]
    rows, grown_mib = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert int(rows) == 1 << 18
    assert path.stat().st_size > 250 << 20
    assert int(grown_mib) < 120


def a_value_in_every_row(path: Path, rows: int, **options: Any) -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["a" * (1 << 20)]))
    write_parquet(path, pa.table({"value": values}), compression="zstd", dictionary_pagesize_limit=1 << 30, **options)


@pytest.mark.parametrize("has_schema", [True, False])
def test_value_that_is_in_many_rows_and_in_the_file_once_is_not_in_memory_for_all(
    tmp_path: Path, has_schema: bool
) -> None:
    path = tmp_path / "a.parquet"
    a_value_in_every_row(path, 1000, store_schema=has_schema)
    assert path.stat().st_size < 2000
    (file,) = find_files(places_at(path))
    sizes, rows = [], 0
    with open_input(file) as source:
        for batch in read_rows(source, file, None, RECORD, Csv()):
            taken = ColumnRoles(topic=None).rows(batch, file, rows)
            sizes.append(taken.nbytes)
            rows += taken.num_rows
    assert (rows, max(sizes) < 80 << 20, sum(sizes) > 1000 << 20) == (1000, True, True)
    with pytest.raises(InputFileError, match="a row has more than 1000000 bytes, the most that row_bytes_max lets it"):
        read(path, WantedColumns(RECORD.roles, has_all=False, row_bytes_max=1_000_000))


def test_parquet_of_encodings_without_dictionaries_is_read(tmp_path: Path) -> None:
    texts = [f"{n:0100d}" for n in range(1000)]
    for encoding in ("PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"):
        path = tmp_path / f"{encoding}.parquet"
        write_parquet(path, strings(texts), use_dictionary=False, column_encoding={"value": encoding})
        assert [row["value"] for row in read(path)] == texts


def test_nulls_of_a_wide_type_are_not_in_memory_for_all_rows(tmp_path: Path) -> None:
    nulls = pa.record_batch({"value": pa.nulls(16, pa.binary(4_000_000))})
    with pa.parquet.ParquetWriter(tmp_path / "a.parquet", nulls.schema) as writer:
        for _ in range(8):
            writer.write_batch(nulls)
    (file,) = find_files(places_at(tmp_path / "a.parquet"))
    with open_input(file) as source:
        found = [rows.num_rows for rows in read_rows(source, file, None, RECORD, Csv())]
    assert (sum(found), max(found) <= 16) == (128, True)


@pytest.mark.parametrize(("name", "line"), [("a.jsonl.gz", b'{"value":"%s"}\n'), ("a.csv.gz", b'value\n"%s"\n')])
def test_row_of_compressed_text_that_comes_to_too_much_is_refused(tmp_path: Path, name: str, line: bytes) -> None:
    path = text(tmp_path / name, gzip.compress(line % (b"a" * 30_000_000)))
    assert path.stat().st_size < 100_000
    assert [len(row["value"]) for row in read(path)] == [30_000_000]
    with pytest.raises(
        InputFileError, match=rf"{name} cannot be read.*a row has more than 10000000 bytes, the most that"
    ):
        read(path, WantedColumns(RECORD.roles, has_all=False, row_bytes_max=10_000_000))


def test_arrow_file_whose_dictionary_has_a_long_value_is_read_in_parts(tmp_path: Path) -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0] * 500, pa.int32()), pa.array(["a" * (1 << 20)]))
    ends = pa.RunEndEncodedArray.from_arrays(pa.array([500], pa.int32()), pa.array(["b" * (1 << 20)]))
    for number, column in enumerate((values, ends)):
        write_arrow(tmp_path / f"{number}.arrow", pa.table({"value": column}))
        (file,) = find_files(places_at(tmp_path / f"{number}.arrow"))
        with open_input(file) as source:
            found = [rows.num_rows for rows in read_rows(source, file, None, RECORD, Csv())]
        assert (sum(found), max(found)) == (500, 64)
