"""The slow, obvious meaning of filters that the compiled ones are compared with.

It shares no code with the package. A predicate is a tuple, which is written as text for the package, and evaluated here
record by record with three truth values, None for null, as SQL has them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from tests.oracle import OracleRecord

Predicate = tuple[Any, ...]
"""``("and" | "or", [predicate, ...])``, ``("not", predicate)``, or a test of a column.

A test is ``("compare", column, sign, literal)``, ``("in", column, [literal, ...])``, ``("null", column)``, or
``("text", column, operator, literal)``. A column is its name, or ``("headers", name)``.
"""

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
TEXT_TESTS: dict[str, Callable[[bytes, bytes], bool]] = {
    "startsWith": bytes.startswith,
    "endsWith": bytes.endswith,
    "contains": operator.contains,
}


def as_text(predicate: Predicate) -> str:
    """Write a predicate in the language of filters."""
    match predicate:
        case ("and" | "or" as word, parts):
            return "(" + f" {word.upper()} ".join(as_text(part) for part in parts) + ")"
        case ("not", part):
            return f"NOT ({as_text(part)})"
        case ("compare", column, sign, literal):
            return f"{_column(column)} {sign} {_literal(literal)}"
        case ("in", column, literals):
            return f"{_column(column)} IN ({', '.join(_literal(each) for each in literals)})"
        case ("null", column):
            return f"{_column(column)} IS NULL"
        case ("text", column, word, literal):
            return f"{_column(column)} {word} {_literal(literal)}"
    raise ValueError(predicate)


def _column(column: Any) -> str:
    return column if isinstance(column, str) else f"headers[{_quoted(column[1])}]"


def _literal(literal: Any) -> str:
    if isinstance(literal, bytes):
        return f"X'{literal.hex()}'"
    return _quoted(literal) if isinstance(literal, str) else str(literal)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def passes(predicate: Predicate, record: OracleRecord, topic: str = "", partition: int = 0) -> bool:
    """Tell whether a predicate is true of a record: neither false nor null."""
    return _truth(predicate, record, topic, partition) is True


def _truth(predicate: Predicate, record: OracleRecord, topic: str, partition: int) -> bool | None:
    if predicate[0] in ("and", "or"):
        return _joined(predicate[0], [_truth(part, record, topic, partition) for part in predicate[1]])
    if predicate[0] == "not":
        truth = _truth(predicate[1], record, topic, partition)
        return None if truth is None else not truth
    values = _values(predicate[1], record, topic, partition)
    if predicate[0] == "null":
        return not values
    if not values:
        return None
    if predicate[0] == "in":
        return any(value in [_comparable(each) for each in predicate[2]] for value in values)
    word, literal = predicate[2], _comparable(predicate[3])
    if word in ("!=", "<>"):
        return all(value != literal for value in values)
    test = COMPARISONS.get(word) or TEXT_TESTS[word]
    return any(test(value, literal) for value in values)


def _joined(word: str, truths: Sequence[bool | None]) -> bool | None:
    decides = word == "or"
    if decides in truths:
        return decides
    return None if None in truths else not decides


def _values(column: Any, record: OracleRecord, topic: str, partition: int) -> list[Any]:
    """Return the values of a column that are not null: at most one, or those of the headers of a name."""
    if not isinstance(column, str):
        return [value for name, value in record.headers if name == column[1] and value is not None]
    values = {
        "key": record.key,
        "value": record.value,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": record.timestamp_type,
        "topic": topic.encode(),
        "partition": partition,
    }
    return [] if values[column] is None else [values[column]]


def _comparable(literal: Any) -> Any:
    return literal.encode() if isinstance(literal, str) else literal
