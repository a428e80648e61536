"""Hypothesis strategies: predicates whose literals are often those of the records that they are asked of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from tests.oracle import OracleRecord
from tests.oracle_where import COMPARISONS, TEXT_TESTS, Predicate

TOPIC = "events"
NUMBERS = ("offset", "timestamp", "timestampType", "partition")
TEXTS = ("key", "value", "topic")


def predicates(records: Sequence[OracleRecord], depth: int = 3) -> st.SearchStrategy[Predicate]:
    """Draw a predicate of all that the language has, over partition 3 of `TOPIC`."""
    found: st.SearchStrategy[Predicate] = _tests(records)
    for _ in range(depth):
        junction = st.tuples(st.sampled_from(["and", "or"]), st.lists(found, min_size=1, max_size=3))
        found = found | junction | st.tuples(st.just("not"), found)
    return found


def _tests(records: Sequence[OracleRecord]) -> st.SearchStrategy[Predicate]:
    numbers = {
        "offset": {step + record.offset for record in records for step in (-1, 0, 1)},
        "timestamp": {step + record.timestamp for record in records for step in (-1, 0, 1)},
        "timestampType": {-1, 0, 1},
        "partition": {2, 3},
    }
    values: dict[Any, set[Any]] = {
        "key": {each for record in records for each in _around(record.key)},
        "value": {each for record in records for each in _around(record.value)},
        "topic": {TOPIC, "even", "zzz"},
    }
    names = sorted({name for record in records for name, _ in record.headers} | {"none"})
    for wanted in names:
        held = [value for record in records for name, value in record.headers if name == wanted]
        values["headers", wanted] = {each for value in held for each in _around(value)}
    signs = st.sampled_from(sorted(COMPARISONS))
    words = st.sampled_from(sorted(TEXT_TESTS))
    of_numbers = [_tests_of(column, signs, _of(found, st.integers(-5, 2000))) for column, found in numbers.items()]
    of_bytes = [
        _tests_of(column, signs, _of(found, st.text(max_size=3) if column == "topic" else st.binary(max_size=3)), words)
        for column, found in values.items()
    ]
    return st.one_of(*of_numbers, *of_bytes)


def _tests_of(
    column: Any,
    signs: st.SearchStrategy[str],
    literals: st.SearchStrategy[Any],
    words: st.SearchStrategy[str] | None = None,
) -> st.SearchStrategy[Predicate]:
    this = st.just(column)
    tests = [
        st.tuples(st.just("compare"), this, signs, literals),
        st.tuples(st.just("in"), this, st.lists(literals, min_size=1, max_size=4)),
        st.tuples(st.just("null"), this),
    ]
    if words is not None:
        tests.append(st.tuples(st.just("text"), this, words, literals))
    return st.one_of(*tests)


def _of(found: set[Any], others: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from(sorted(found)) | others if found else others


def _around(value: bytes | None) -> list[bytes]:
    """Return a value, and some that begin or end with it, or are in it; long ones are cut."""
    if value is None:
        return []
    return [value[:30_000], value[:3], value[-3:], value[1:5], value[:50] + b"\0"]
