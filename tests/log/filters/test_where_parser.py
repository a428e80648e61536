"""The language of filters: what is read, and what is said of what cannot be."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidOptionError
from sparklog.log.filters.where_parser import DEPTH_MAX, LENGTH_MAX, parse_where
from sparklog.record.decode.where import (
    INT64_MAX,
    INT64_MIN,
    Bounds,
    BytesTest,
    Constant,
    Junction,
    Node,
    NumberTest,
    Where,
)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("key = 'it''s'", BytesTest("key", "IN", (b"it's",))),
        ('KEY == "say ""so"""', BytesTest("key", "IN", (b'say "so"',))),
        ("value<>X'00FF'", BytesTest("value", "IN", (b"\x00\xff",), True)),
        ("Value is not Null", BytesTest("value", "IS NOT NULL")),
        ("not value is not null", BytesTest("value", "IS NOT NULL", is_negated=True)),
        ("headers['ä'] not startswith 'b'", BytesTest("headers", "startsWith", (b"b",), True, "ä".encode())),
        ("offset in (3, 5, 4, 9, 3)", NumberTest("offset", ((3, 5), (9, 9)))),
        ("offset not in (3)", NumberTest("offset", ((INT64_MIN, 2), (4, INT64_MAX)))),
        ("timestampTYPE >= 1", NumberTest("timestampType", ((1, INT64_MAX),))),
        ("timestamp > '1970-01-01T00:00:00.0005'", NumberTest("timestamp", ((1, INT64_MAX),))),
        ("timestamp >= '1970-01-01T00:00:00.0005'", NumberTest("timestamp", ((1, INT64_MAX),))),
        ("timestamp <= '1970-01-01T00:00:00.0005'", NumberTest("timestamp", ((INT64_MIN, 0),))),
        ("timestamp < '1970-01-01T00:00:00.0005'", NumberTest("timestamp", ((INT64_MIN, 0),))),
        ("timestamp = '1970-01-01T00:00:00.0005'", NumberTest("timestamp", ())),
        ("timestamp != '1970-01-01T00:00:00.0005'", NumberTest("timestamp", ((INT64_MIN, INT64_MAX),))),
        ("timestamp = '1970-01-02'", NumberTest("timestamp", ((86_400_000, 86_400_000),))),
        ("offset > -1 AND offset IS NOT NULL", NumberTest("offset", ((0, INT64_MAX),))),
        ("offset IS NULL OR key = ''", BytesTest("key", "IN", (b"",))),
        (f"offset < {10**30}", NumberTest("offset", ((INT64_MIN, INT64_MAX),))),
    ],
)
def test_tests(text: str, tree: Node) -> None:
    assert parse_where(text).tree == tree


A, B, C = (NumberTest("offset", ((n, n),)) for n in (1, 3, 5))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("offset=1 or offset=3 and offset=5", Junction(False, (A, Junction(True, (B, C))))),
        ("(offset=1 or offset=3) and offset=5", Junction(True, (Junction(False, (A, B)), C))),
        ("offset=1 or (offset=3 or (offset=5))", Junction(False, (A, B, C))),
        ("NOT NOT offset=1", A),
        ("offset IS NULL", Constant(False)),
    ],
)
def test_and_binds_before_or(text: str, tree: Node) -> None:
    assert parse_where(text).tree == tree


def test_not_is_pushed_down_to_the_tests() -> None:
    tree = parse_where("NOT (key = 'a' AND (value IS NULL OR NOT offset < 5))").tree
    assert tree == Junction(
        False,
        (
            BytesTest("key", "IN", (b"a",), True),
            Junction(True, (BytesTest("value", "IS NOT NULL"), NumberTest("offset", ((INT64_MIN, 4),)))),
        ),
    )


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("key = 'a'", Bounds()),
        ("offset >= 5 AND offset < 9 AND key = 'a'", Bounds((5, 8))),
        ("offset = 5 OR offset = 9 AND timestamp > 3", Bounds((5, 9))),
        ("offset = 5 OR key = 'a'", Bounds()),
        ("offset > 5 AND timestamp >= 7 OR offset < 0 AND offset > 1", Bounds((6, INT64_MAX), (7, INT64_MAX))),
        ("NOT (offset < 5 OR timestamp > 9)", Bounds((5, INT64_MAX), (INT64_MIN, 9))),
        ("offset < 5 AND offset > 5", None),
        ("offset > 9223372036854775807", None),
    ],
)
def test_bounds(text: str, bounds: Bounds | None) -> None:
    assert parse_where(text).bounds() == bounds


@pytest.mark.parametrize(
    ("text", "can_pass"),
    [
        ("partition = 3", True),
        ("partition != 3", False),
        ("partition IN (1, 2) OR key = 'a'", True),
        ("topic > 'a' AND topic <= 'events'", True),
        ("topic startsWith 'orders' AND key = 'a'", False),
        ("NOT topic IN ('events', 'orders')", False),
        ("partition IS NULL OR topic IS NULL", False),
    ],
)
def test_partitions_that_cannot_pass_are_told(text: str, can_pass: bool) -> None:
    assert parse_where(text).can_pass("events", 3) == can_pass


def test_a_log_without_a_number_has_a_partition_of_null() -> None:
    for text, can_pass in {"partition = 3": False, "NOT partition = 3": False, "partition IS NULL": True}.items():
        assert parse_where(text).can_pass("copy", None) == can_pass


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("", 1, "expected a column, and the text ends"),
        ("kye = 'a'", 1, "no column 'kye'; did you mean 'key'?"),
        ("nothing = 1", 1, "no column 'nothing'; the columns are partition, topic,"),
        ("key 'a'", 5, "expected one of =, ==, !=, <>, <, <=, >, >=, IN, IS, startsWith, endsWith, contains after"),
        ("key = 5", 7, "expected text in quotes, or bytes as X'00ff', and there is 5"),
        ("key = NULL", 7, "nothing equals NULL: write IS NULL or IS NOT NULL"),
        ("key IN ('a', NULL)", 14, "nothing equals NULL"),
        ("key = 'a", 7, "expected text in quotes"),
        ("key = X'0'", 7, "expected pairs of hexadecimal digits"),
        ("topic = X'00'", 9, "expected text in quotes, and there is X'00'"),
        ("offset = '5'", 10, "expected a whole number, as offset is, and there is '5'"),
        ("offset = 5.0", 10, "expected a whole number, and there is 5.0"),
        (f"offset = {'9' * 5000}", 10, "expected a whole number"),
        ("timestamp > 'yesterday'", 13, "expected a time in ISO 8601"),
        ("timestamp > yesterday", 13, "expected a time: ms since 1970, or ISO 8601 in quotes"),
        ("offset startsWith 'a'", 8, "expected a comparison, since offset is a number"),
        ("headers = 'a'", 9, "expected the name of a header, as in headers['name']"),
        ("headers[name] = 'a'", 9, "expected the name of a header"),
        ("headers['a' = 'a'", 13, "expected ']'"),
        ("(key = 'a'", 11, "expected AND, OR or ')', and the text ends"),
        ("key = 'a' key = 'b'", 11, "expected AND, OR or the end, and there is key"),
        ("key IN 'a'", 8, "expected '(' after IN"),
        ("key IN ('a' 'b')", 13, "expected ',' or ')'"),
        ("key IN ()", 9, "expected text in quotes"),
        ("key IS 'a'", 8, "expected NULL or NOT NULL"),
        ("key NOT = 'a'", 9, "expected IN or one of startsWith, endsWith, contains after the column key"),
        ("__import__('os').system('true')", 1, "no column '__import__'"),
        ("key = 'a'; DROP", 10, "expected AND, OR or the end, and there is ;"),
        ("key = '\ud800'", 7, "expected text that UTF-8 can hold"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, at: int, said: str) -> None:
    with pytest.raises(InvalidOptionError) as raised:
        parse_where(text)
    first, line, caret = str(raised.value).rsplit("\n", 2)
    assert f"where, at character {at}: {said}" in first
    assert line == "    " + text[: at - 1 + 40]
    assert caret == "    " + " " * (at - 1) + "^"


def test_long_text_is_shown_around_the_place() -> None:
    text = "key = 'a' AND " * 50 + "kye\n= 'b'" + " OR key = 'c'" * 50
    with pytest.raises(InvalidOptionError) as raised:
        parse_where(text)
    _, line, caret = str(raised.value).split("\n")
    assert line[caret.index("^") :].startswith("kye = 'b' OR")
    assert len(line) < 100


@pytest.mark.parametrize("opening", ["(", "NOT ", "NOT ("])
def test_depth_is_bounded(opening: str) -> None:
    closing = ")" if "(" in opening else ""
    deep = DEPTH_MAX // len(opening.split()) if " (" in opening else DEPTH_MAX
    assert isinstance(parse_where(opening * deep + "offset = 1" + closing * deep), Where)
    with pytest.raises(InvalidOptionError, match="nested deeper than 64 levels"):
        parse_where(opening * 100_000 + "offset = 1" + closing * 100_000)


def test_length_is_bounded() -> None:
    with pytest.raises(InvalidOptionError, match="characters, and may have"):
        parse_where("key = '" + "a" * LENGTH_MAX + "'")
    with pytest.raises(InvalidOptionError, match="must be text"):
        parse_where(5)  # type: ignore[arg-type]


def test_long_chains_are_read() -> None:
    text = " OR ".join(f"offset = {2 * n}" for n in range(5000))
    tree = parse_where(text).tree
    assert isinstance(tree, Junction)
    assert len(tree.parts) == 5000


@given(st.text(max_size=60) | st.text("key='\"()[]<>=!, notandrix0ff59X", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(InvalidOptionError):
        assert parse_where(text).text == text
