"""Parses the language of filters, such as ``key = 'user-1' AND timestamp >= '2026-03-02'``, into a tree.

    filter      conjunction {OR conjunction}
    conjunction inversion {AND inversion}
    inversion   NOT inversion | test
    test        '(' filter ')'
                | column IS [NOT] NULL
                | column [NOT] IN '(' literal {',' literal} ')'
                | column ('=' | '==' | '!=' | '<>' | '<' | '<=' | '>' | '>=') literal
                | column [NOT] (startsWith | endsWith | contains) literal
    column      partition | topic | offset | timestamp | timestampType | key | value | headers '[' string ']'
    literal     a whole number | string | bytes
    string      '...' or "...", the quote itself written twice
    bytes       X'00ff'

Words may be in any case. Nothing is evaluated; the length and depth of a text are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sparklog.errors import InvalidOptionError, did_you_mean
from sparklog.log.clock import iso_milliseconds_around
from sparklog.record.decode.where import (
    ABOVE,
    AT_LEAST,
    AT_MOST,
    BELOW,
    CONTAINS,
    ENDS_WITH,
    HEADERS,
    IN,
    INT64_MAX,
    INT64_MIN,
    IS_THERE,
    NUMBER_COLUMNS,
    PARTITION,
    STARTS_WITH,
    TIMESTAMP,
    TOPIC,
    WHERE_COLUMNS,
    BytesTest,
    Constant,
    Node,
    NumberTest,
    Range,
    Where,
    all_of,
    any_of,
    complement,
    negated,
)

LENGTH_MAX: Final = 1 << 20
"""The most characters of a text."""

DEPTH_MAX: Final = 64
"""The deepest nesting of parentheses and NOT."""

_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<bytes>[xX]'[^']*')
    | (?P<string>'(?:[^']|'')*+'|"(?:[^"]|"")*+")
    | (?P<open>['"])
    | (?P<number>[+-]?[0-9][0-9A-Za-z_.]*)
    | (?P<word>[A-Za-z_][A-Za-z0-9_.]*)
    | (?P<sign><>|==|!=|<=|>=|[=<>()\[\],])
    | (?P<end>\Z)
    | (?P<other>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_EQUAL: Final = ("=", "==")
_DIFFERENT: Final = ("!=", "<>")
_COMPARISONS: Final = (*_EQUAL, *_DIFFERENT, BELOW, AT_MOST, ABOVE, AT_LEAST)
_TEXT_OPERATORS: Final = {each.lower(): each for each in (STARTS_WITH, ENDS_WITH, CONTAINS)}
_COLUMNS: Final = {name.lower(): name for name in WHERE_COLUMNS}
_OR_BYTES: Final = ", or bytes as X'00ff'"
_SHOWN_CHARACTERS: Final = 40
_DIGITS: Final = re.compile("[+-]?[0-9]{1,40}")


def parse_where(where: str | Where) -> Where:
    """Parse a filter.

    Parameters
    ----------
    where : str or Where
        Its text, or a parsed filter, which is returned as it is.

    Raises
    ------
    InvalidOptionError
        The message names the expected words and the place in the text.
    """
    if isinstance(where, Where):
        return where
    if not isinstance(where, str):
        raise InvalidOptionError(f"where must be text, such as key = 'user-1', got {where!r}")
    if len(where) > LENGTH_MAX:
        raise InvalidOptionError(f"where has {len(where)} characters, and may have {LENGTH_MAX}")
    return Where(where, _Parser(where).whole())


@dataclass(frozen=True)
class _Token:
    """A piece of the text. ``kind`` is the name of a group of `_TOKEN`, ``at`` the index of its first character."""

    kind: str
    text: str
    at: int

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.lower() in words


@dataclass(frozen=True)
class _Column:
    name: str
    header: bytes = b""


class _Parser:
    """Parses a text from left to right, with one token of lookahead."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._next = self._scanned()

    def whole(self) -> Node:
        tree = self._either()
        if self._next.kind != "end":
            raise self._refused("expected AND, OR or the end")
        return tree

    def _either(self) -> Node:
        parts = [self._both()]
        while self._took("or"):
            parts.append(self._both())
        return any_of(parts)

    def _both(self) -> Node:
        parts = [self._inversion()]
        while self._took("and"):
            parts.append(self._inversion())
        return all_of(parts)

    def _inversion(self) -> Node:
        if self._next.is_word("not"):
            return negated(self._nested(self._inversion))
        if self._next.text == "(":
            tree = self._nested(self._either)
            self._take_sign(")", "expected AND, OR or ')'")
            return tree
        return self._test()

    def _nested(self, read: Callable[[], Node]) -> Node:
        """Take a token, and parse the text after it one level deeper."""
        if self._depth == DEPTH_MAX:
            raise self._refused(f"nested deeper than {DEPTH_MAX} levels")
        self._depth += 1
        self._take()
        tree = read()
        self._depth -= 1
        return tree

    def _test(self) -> Node:
        column = self._column()
        if self._took("is"):
            is_null = not self._took("not")
            if not self._took("null"):
                raise self._refused("expected NULL" if not is_null else "expected NULL or NOT NULL")
            return self._null_test(column, is_null=is_null)
        is_negated = self._took("not")
        if self._took("in"):
            test = self._membership(column)
        elif self._next.is_word(*_TEXT_OPERATORS):
            test = self._text_test(column)
        elif self._next.text in _COMPARISONS and not is_negated:
            test = self._comparison(column)
        else:
            names = ", ".join(_TEXT_OPERATORS.values())
            known = f"IN or one of {names}" if is_negated else f"one of {', '.join(_COMPARISONS)}, IN, IS, {names}"
            raise self._refused(f"expected {known} after the column {column.name}")
        return negated(test) if is_negated else test

    def _column(self) -> _Column:
        token = self._next
        name = _COLUMNS.get(token.text.lower()) if token.kind == "word" else None
        if name is None:
            hint = f"the columns are {', '.join(WHERE_COLUMNS)}"
            raise self._refused(
                "expected a column" if token.kind != "word" else f"no column {_cut(token.text)!r}",
                did_you_mean(token.text.lower(), _COLUMNS, hint) if token.kind == "word" else hint,
            )
        self._take()
        if name != HEADERS:
            return _Column(name)
        self._take_sign("[", "expected the name of a header, as in headers['name']")
        if self._next.kind != "string":
            raise self._refused("expected the name of a header, as in headers['name']")
        header = self._bytes()
        self._take_sign("]", "expected ']'")
        return _Column(name, header)

    def _null_test(self, column: _Column, *, is_null: bool) -> Node:
        if column.name in NUMBER_COLUMNS and column.name != PARTITION:
            return Constant(not is_null)
        return BytesTest(column.name, IS_THERE, (), is_null, column.header)

    def _membership(self, column: _Column) -> Node:
        self._take_sign("(", "expected '(' after IN")
        is_number = column.name in NUMBER_COLUMNS
        numbers: list[Range] = []
        values: list[bytes] = []
        while True:
            if is_number:
                numbers.append(self._number(column))
            else:
                values.append(self._bytes(column))
            if self._next.text != ",":
                break
            self._take()
        self._take_sign(")", "expected ',' or ')'")
        if is_number:
            return NumberTest(column.name, _points(numbers))
        return BytesTest(column.name, IN, tuple(dict.fromkeys(values)), header=column.header)

    def _text_test(self, column: _Column) -> Node:
        if column.name in NUMBER_COLUMNS:
            raise self._refused(f"expected a comparison, since {column.name} is a number")
        operator = _TEXT_OPERATORS[self._take().text.lower()]
        return BytesTest(column.name, operator, (self._bytes(column),), header=column.header)

    def _comparison(self, column: _Column) -> Node:
        sign = self._take().text
        if column.name in NUMBER_COLUMNS:
            return NumberTest(column.name, _compared(sign, *self._number(column)))
        operand = self._bytes(column)
        if sign in _EQUAL or sign in _DIFFERENT:
            return BytesTest(column.name, IN, (operand,), sign in _DIFFERENT, column.header)
        return BytesTest(column.name, sign, (operand,), header=column.header)

    def _number(self, column: _Column) -> Range:
        """Parse a number, or a time rounded down and up to whole milliseconds."""
        token = self._next
        if token.kind == "number":
            if not _DIGITS.fullmatch(token.text):
                raise self._refused("expected a whole number")
            self._take()
            return int(token.text), int(token.text)
        if column.name != TIMESTAMP:
            raise self._refused(f"expected a whole number, as {column.name} is")
        if token.kind != "string":
            raise self._refused("expected a time: ms since 1970, or ISO 8601 in quotes, as '2026-03-02T09:00:00Z'")
        around = iso_milliseconds_around(_unquoted(token.text))
        if around is None:
            raise self._refused(
                "expected a time in ISO 8601, as '2026-03-02T09:00:00Z', or ms since 1970 without quotes"
            )
        self._take()
        return around

    def _bytes(self, column: _Column | None = None) -> bytes:
        token = self._next
        if token.kind == "string":
            try:
                found = _unquoted(token.text).encode("utf-8", "surrogateescape")
            except UnicodeEncodeError as error:
                raise self._refused("expected text that UTF-8 can hold") from error
            self._take()
            return found
        if token.kind == "bytes" and column is not None and column.name != TOPIC:
            if not re.fullmatch(r"(?:[0-9a-fA-F]{2})*", token.text[2:-1]):
                raise self._refused("expected pairs of hexadecimal digits, as in X'00ff'")
            self._take()
            return bytes.fromhex(token.text[2:-1])
        if token.is_word("null"):
            raise self._refused("nothing equals NULL: write IS NULL or IS NOT NULL")
        has_bytes = column is not None and column.name != TOPIC
        raise self._refused(f"expected text in quotes{_OR_BYTES if has_bytes else ''}")

    def _took(self, word: str) -> bool:
        """Take a word if it comes next."""
        is_next = self._next.is_word(word)
        if is_next:
            self._take()
        return is_next

    def _take_sign(self, sign: str, expected: str) -> None:
        if self._next.kind != "sign" or self._next.text != sign:
            raise self._refused(expected)
        self._take()

    def _take(self) -> _Token:
        token, self._next = self._next, self._scanned()
        return token

    def _scanned(self) -> _Token:
        found = _TOKEN.match(self._text, self._at)
        if found is None or found.lastgroup is None:
            raise AssertionError("every text begins with a token")
        self._at = found.end()
        return _Token(found.lastgroup, found.group(found.lastgroup), found.start(found.lastgroup))

    def _refused(self, reason: str, hint: str = "") -> InvalidOptionError:
        """Make the error for the next token: what was expected, what is there, and the text with a caret below it."""
        token = self._next
        there = "" if hint and token.kind == "word" else f", and {_there(token)}"
        start = max(token.at - _SHOWN_CHARACTERS, 0)
        line = re.sub(r"\s", " ", self._text[start : token.at + _SHOWN_CHARACTERS])
        error = InvalidOptionError(f"where, at character {token.at + 1}: {reason}{there}{f'; {hint}' if hint else ''}")
        error.picture = f"    {line}\n    {' ' * (token.at - start)}^"
        return error


def _there(token: _Token) -> str:
    return "the text ends" if token.kind == "end" else f"there is {_cut(token.text)}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _unquoted(text: str) -> str:
    quote = text[0]
    return text[1:-1].replace(quote * 2, quote)


def _points(numbers: list[Range]) -> tuple[Range, ...]:
    """Return the ranges of some numbers, of which times between two milliseconds are none."""
    found: list[Range] = []
    for number in sorted({low for low, high in numbers if low == high and INT64_MIN <= low <= INT64_MAX}):
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return tuple(found)


def _compared(sign: str, low: int, high: int) -> tuple[Range, ...]:
    """Return the ranges of the numbers that compare so; between two whole numbers, ``low`` and ``high`` are those."""
    if sign in _EQUAL or sign in _DIFFERENT:
        points = _points([(low, high)])
        return points if sign in _EQUAL else complement(points)
    lowest = {ABOVE: low + 1, AT_LEAST: high}.get(sign, INT64_MIN)
    highest = {BELOW: high - 1, AT_MOST: low}.get(sign, INT64_MAX)
    found = max(lowest, INT64_MIN), min(highest, INT64_MAX)
    return (found,) if found[0] <= found[1] else ()
