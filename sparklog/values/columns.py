"""Parses columns: ``id bigint, name string, tags array<string>, at timestamp, place struct<x: double, y: double>``.

The names of types are Spark's or Arrow's, in any case:

    boolean, bool                   tinyint, byte, int8             smallint, short, int16
    int, integer, int32             bigint, long, int64             float, real, float32
    double, float64                 string, utf8                    date, date32
    timestamp                       microseconds, UTC
    timestamp_ntz                   microseconds, without time zone
    decimal(precision, scale)       numeric(precision, scale); without the parentheses (10, 0)
    array<type>                     list<type>
    struct<name: type, ...>         the colon may be left out

A name with characters other than letters, digits, ``_``, ``$``, ``-`` and ``.`` stands between backquotes.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from sparklog.errors import InvalidOptionError, did_you_mean

_DEPTH_MAX: Final = 64
_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)+`|[\w$.-]+|[<>(),:])\s*")
_BEGINNING: Final = re.compile(r"\s*(`(?:[^`]|``)+`|[\w$.-]+)(\s+|\s*:\s*)[A-Za-z]\w*\s*([<(,\s]|$)")
_PLAIN: Final = MappingProxyType(
    {
        **dict.fromkeys(("boolean", "bool"), pa.bool_()),
        **dict.fromkeys(("tinyint", "byte", "int8"), pa.int8()),
        **dict.fromkeys(("smallint", "short", "int16"), pa.int16()),
        **dict.fromkeys(("int", "integer", "int32"), pa.int32()),
        **dict.fromkeys(("bigint", "long", "int64"), pa.int64()),
        **dict.fromkeys(("float", "real", "float32"), pa.float32()),
        **dict.fromkeys(("double", "float64"), pa.float64()),
        **dict.fromkeys(("string", "utf8"), pa.string()),
        **dict.fromkeys(("date", "date32"), pa.date32()),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
)
_DECIMAL: Final = ("decimal", "numeric")
_LIST: Final = ("array", "list")
_STRUCT: Final = "struct"


def is_columns(text: str) -> bool:
    """Return whether a text begins like columns, with a name and the name of a type."""
    return _BEGINNING.match(text) is not None or text.strip().lower().startswith(f"{_STRUCT}<")


def parse_columns(text: str, argument: str) -> pa.DataType:
    """Return the struct type of columns in text form.

    Parameters
    ----------
    text : str
        Columns, or one ``struct<...>`` of them.
    argument : str
        The name of the option or argument that gave the text, for errors.

    Raises
    ------
    InvalidOptionError
        The text does not define columns, or two columns have the same name.
    """
    parser = _Parser(text, argument)
    if text.strip().lower().startswith(f"{_STRUCT}<"):
        found = parser.type(0)
    else:
        found = parser.fields("", 0)
    parser.end()
    return found


class _Parser:
    """Reads types from a text, from its beginning to its end."""

    def __init__(self, text: str, argument: str) -> None:
        self._text, self._argument = text, argument
        self._position = 0

    def fields(self, closing: str, depth: int) -> pa.DataType:
        """Read fields up to the ``closing`` token, or to the end if that is empty."""
        fields: dict[str, pa.Field] = {}
        while True:
            token = self._next("a name")
            name = token[1:-1].replace("``", "`") if token.startswith("`") else token
            if name in ("<", ">", "(", ")", ",", ":"):
                raise self._error(f"a name is missing before {token!r}")
            if name in fields:
                raise self._error(f"the name {name!r} is there twice")
            if self._peek() == ":":
                self._next("a colon")
            fields[name] = pa.field(name, self.type(depth + 1))
            if self._peek() != ",":
                break
            self._next("a comma")
        if closing:
            self._expect(closing)
        return pa.struct(list(fields.values()))

    def type(self, depth: int) -> pa.DataType:
        if depth > _DEPTH_MAX:
            raise self._error(f"types are nested more than {_DEPTH_MAX} deep")
        name = self._next("a type")
        lower = name.lower()
        if lower in _PLAIN:
            return _PLAIN[lower]
        if lower in _DECIMAL:
            return self._decimal()
        if lower in _LIST:
            self._expect("<")
            item = self.type(depth + 1)
            self._expect(">")
            return pa.list_(item)
        if lower == _STRUCT:
            self._expect("<")
            return self.fields(">", depth)
        known = [*_PLAIN, *_DECIMAL, *_LIST, _STRUCT]
        hint = did_you_mean(lower, known, f"there are {', '.join(known)}")
        raise self._error(f"there is no type {name!r} here: {hint}")

    def end(self) -> None:
        if self._position < len(self._text):
            raise self._error(f"a comma or the end is missing before {self._text[self._position :][:20]!r}")

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self._peek() == "(":
            self._next("a parenthesis")
            precision = self._number()
            if self._peek() == ",":
                self._next("a comma")
                scale = self._number()
            self._expect(")")
        if not 1 <= precision <= 38 or scale > precision:
            raise self._error(f"a decimal has 1 to 38 digits, and not more behind the point: ({precision}, {scale})")
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        token = self._next("a number")
        if not re.fullmatch("[0-9]{1,3}", token):
            raise self._error(f"a number is missing before {token!r}")
        return int(token)

    def _expect(self, wanted: str) -> None:
        token = self._next(repr(wanted))
        if token != wanted:
            raise self._error(f"{wanted!r} is missing before {token!r}")

    def _peek(self) -> str:
        found = _TOKEN.match(self._text, self._position)
        return found[1] if found is not None else ""

    def _next(self, wanted: str) -> str:
        found = _TOKEN.match(self._text, self._position)
        if found is None:
            rest = self._text[self._position :].strip()[:20]
            raise self._error(f"{wanted} is missing {f'before {rest!r}' if rest else 'at the end'}")
        self._position = found.end()
        return found[1]

    def _error(self, reason: str) -> InvalidOptionError:
        return InvalidOptionError(f"{self._argument} is not a list of columns: {reason}, in {self._text[:200]!r}")
