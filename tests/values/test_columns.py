"""Columns as text become a type, or an error that says where."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidOptionError
from sparklog.values.columns import is_columns, parse_columns

PLAIN = st.sampled_from(["boolean", "INT", "bigint", "double", "string", "date", "timestamp", "decimal(5,2)", "utf8"])
NAMES = st.from_regex(r"[a-z_][a-z0-9_.-]{0,5}", fullmatch=True)


def test_all_types_of_the_table() -> None:
    text = (
        "a bigint, `b c` string, c:array<list<int>>, d struct<x: double, y decimal(5,2)>, e timestamp, "
        "f timestamp_ntz, g numeric, h Boolean, `i``j` date"
    )
    assert is_columns(text)
    assert parse_columns(text, "schema") == pa.struct(
        [
            ("a", pa.int64()),
            ("b c", pa.string()),
            ("c", pa.list_(pa.list_(pa.int32()))),
            ("d", pa.struct([("x", pa.float64()), ("y", pa.decimal128(5, 2))])),
            ("e", pa.timestamp("us", "UTC")),
            ("f", pa.timestamp("us")),
            ("g", pa.decimal128(10, 0)),
            ("h", pa.bool_()),
            ("i`j", pa.date32()),
        ]
    )


def test_struct_of_all_columns_is_those_columns() -> None:
    assert is_columns("struct<a: int, b: string>")
    assert parse_columns("STRUCT<a: int, b: string>", "schema") == parse_columns("a int, b string", "schema")


@given(st.dictionaries(NAMES, PLAIN, min_size=1, max_size=5))
def test_columns_in_any_spelling_are_columns(columns: dict[str, str]) -> None:
    text = " ,\n".join(f"{name}  {kind}" for name, kind in columns.items())
    assert is_columns(text)
    assert [field.name for field in parse_columns(text, "schema")] == list(columns)


@pytest.mark.parametrize(
    "path", ["/schemas/a.json", "./a b/c.json", "schemas", "a.avsc", "file:///x y", "my folder/x.json", ""]
)
def test_path_is_not_taken_for_columns(path: str) -> None:
    assert not is_columns(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("id bigit", "there is no type 'bigit' here: did you mean 'bigint'"),
        ("id bigint,", "a name is missing at the end"),
        ("id bigint name string", "a comma or the end is missing before 'name string'"),
        ("id bigint, id int", "the name 'id' is there twice"),
        ("id array<int", "'>' is missing at the end"),
        ("id array int", "'<' is missing before 'int'"),
        ("id decimal(39)", "1 to 38 digits"),
        ("id decimal(x)", "a number is missing before 'x'"),
        ("id map<string, int>", "there is no type 'map' here"),
        ("id struct<>", "a name is missing before '>'"),
        ("id " + "array<" * 2000, "nested more than 64 deep"),
        ("id int ;", "a comma or the end is missing before ';'"),
    ],
)
def test_wrong_columns_are_refused_and_where(text: str, reason: str) -> None:
    with pytest.raises(InvalidOptionError, match="schema is not a list of columns: .*" + reason.replace("(", r"\(")):
        parse_columns(text, "schema")


@given(st.text(alphabet="ab <>(),:`1int;", max_size=20))
def test_any_text_is_columns_or_refused(text: str) -> None:
    try:
        found = parse_columns(text, "schema")
    except InvalidOptionError:
        return
    assert pa.types.is_struct(found)
