"""Represents the filter of a read as a tree of tests over columns.

`sparklog.log.filters.where_parser` makes the tree from text, and `sparklog.record.kernels.filter` tests records by it.
This module derives from the tree alone which partitions, offsets and times the passing records can have.

Null is treated as in SQL: a test of null is neither true nor false, and a record passes only if the filter is true.
`NOT` is pushed down to the tests when the tree is made, by De Morgan's laws, which hold for three truth values as well.
So a test in the tree is either true or not, and a test of null is not true, be it negated or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

OFFSET, TIMESTAMP, TIMESTAMP_TYPE, PARTITION, TOPIC = "offset", "timestamp", "timestampType", "partition", "topic"
KEY, VALUE, HEADERS = "key", "value", "headers"

NUMBER_COLUMNS: Final = (OFFSET, TIMESTAMP, TIMESTAMP_TYPE, PARTITION)
WHERE_COLUMNS: Final = (PARTITION, TOPIC, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, KEY, VALUE, HEADERS)

IN, BELOW, AT_MOST, ABOVE, AT_LEAST = "IN", "<", "<=", ">", ">="
STARTS_WITH, ENDS_WITH, CONTAINS, IS_THERE = "startsWith", "endsWith", "contains", "IS NOT NULL"

Range = tuple[int, int]
"""A range of whole numbers, both ends included."""

EVERY_NUMBER: Final[Range] = (INT64_MIN, INT64_MAX)
NO_NUMBER: Final[Range] = (INT64_MAX, INT64_MIN)


@dataclass(frozen=True)
class Constant:
    """A test that every record passes, or none."""

    value: bool


@dataclass(frozen=True)
class NumberTest:
    """Tests that a number is in one of some ranges.

    Attributes
    ----------
    column : str
        One of `NUMBER_COLUMNS`. None of them is null, except the partition of a log without a number.
    ranges : tuple of Range
        The ranges, ascending; no two of them touch.
    """

    column: str
    ranges: tuple[Range, ...]


@dataclass(frozen=True)
class BytesTest:
    """Tests a key, a value, the values of the headers of one name, or a topic's name in UTF-8.

    It can also test whether a log has a partition number (IS NOT NULL).

    Attributes
    ----------
    column : str
    operator : str
        ``IN`` (equal to one of the operands), ``<``, ``<=``, ``>``, ``>=``, ``startsWith``, ``endsWith``, ``contains``;
        or ``IS NOT NULL``, which has no operand.
    operands : tuple of bytes
        One operand, or for ``IN`` any number.
    is_negated : bool
        Whether the test must be false. Null passes ``NOT (... IS NOT NULL)``, and no other test.
    header : bytes
        The name of the headers, in UTF-8. If several have it, the test is true if it is true of any of their values.
        Null values are ignored; if there is no other value, the tested value is null.
    """

    column: str
    operator: str
    operands: tuple[bytes, ...] = ()
    is_negated: bool = False
    header: bytes = b""

    def is_true_of(self, found: bytes | None) -> bool:
        """Return whether one value passes."""
        if self.operator == IS_THERE or found is None:
            return self.operator == IS_THERE and (found is not None) != self.is_negated
        operand = self.operands[0] if self.operands else b""
        answers = {
            IN: found in self.operands,
            BELOW: found < operand,
            AT_MOST: found <= operand,
            ABOVE: found > operand,
            AT_LEAST: found >= operand,
            STARTS_WITH: found.startswith(operand),
            ENDS_WITH: found.endswith(operand),
            CONTAINS: operand in found,
        }
        return answers[self.operator] != self.is_negated


@dataclass(frozen=True)
class Junction:
    """A test that all of its parts must pass, or any of them."""

    is_and: bool
    parts: tuple[Node, ...]


Node = Constant | NumberTest | BytesTest | Junction


@dataclass(frozen=True)
class Where:
    """A filter of records: a small value, which pickles.

    Attributes
    ----------
    text : str
        The filter as the user wrote it.
    tree : Node
    """

    text: str
    tree: Node

    def of_partition(self, topic: str, partition: int | None) -> Where:
        """Return the equivalent filter for one partition, without tests of topic and partition."""
        return Where(self.text, _folded(self.tree, topic, partition))

    def can_pass(self, topic: str, partition: int | None) -> bool:
        """Return whether a record of a partition can pass."""
        return self.of_partition(topic, partition).bounds() is not None

    def bounds(self) -> Bounds | None:
        """Return the bounds of the offsets and times of passing records; None if none can pass."""
        return _bounds(self.tree)


@dataclass(frozen=True)
class Bounds:
    """Ranges that contain the offset and the timestamp (ms) of every record that passes a filter."""

    offsets: Range = EVERY_NUMBER
    timestamps: Range = EVERY_NUMBER


def all_of(parts: Iterable[Node]) -> Node:
    """Return the tree that a record passes if it passes all of some trees."""
    return _joined(True, parts)


def any_of(parts: Iterable[Node]) -> Node:
    """Return the tree that a record passes if it passes any of some trees."""
    return _joined(False, parts)


def _joined(is_and: bool, parts: Iterable[Node]) -> Node:
    kept: list[Node] = []
    for part in parts:
        if part == Constant(not is_and):
            return part
        if isinstance(part, Junction) and part.is_and == is_and:
            kept += part.parts
        elif not isinstance(part, Constant):
            kept.append(part)
    if not kept:
        return Constant(is_and)
    return kept[0] if len(kept) == 1 else Junction(is_and, tuple(kept))


def negated(node: Node) -> Node:
    """Return the tree that is true if a tree is false, and not true if that is null."""
    match node:
        case Constant(value):
            return Constant(not value)
        case NumberTest(column, ranges):
            return NumberTest(column, complement(ranges))
        case BytesTest(column, operator, operands, is_negated, header):
            return BytesTest(column, operator, operands, not is_negated, header)
        case Junction(is_and, parts):
            return _joined(not is_and, [negated(part) for part in parts])


def complement(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return the ranges of all numbers outside some ranges, which ascend."""
    found, start = [], INT64_MIN
    for lowest, highest in ranges:
        if start < lowest:
            found.append((start, lowest - 1))
        start = highest + 1
    if start <= INT64_MAX:
        found.append((start, INT64_MAX))
    return tuple(found)


def _folded(node: Node, topic: str, partition: int | None) -> Node:
    match node:
        case NumberTest(column, ranges) if column == PARTITION:
            is_in = partition is not None and any(low <= partition <= high for low, high in ranges)
            return Constant(is_in)
        case BytesTest(column) if column == TOPIC:
            return Constant(node.is_true_of(topic.encode("utf-8", "surrogateescape")))
        case BytesTest(column) if column == PARTITION:
            return Constant(node.is_true_of(None if partition is None else b""))
        case Junction(is_and, parts):
            return _joined(is_and, [_folded(part, topic, partition) for part in parts])
    return node


def _bounds(node: Node) -> Bounds | None:
    match node:
        case Constant(value):
            return Bounds() if value else None
        case NumberTest(column, ranges):
            if not ranges:
                return None
            hull = ranges[0][0], ranges[-1][1]
            return Bounds(hull if column == OFFSET else EVERY_NUMBER, hull if column == TIMESTAMP else EVERY_NUMBER)
        case Junction(is_and, parts):
            found = [_bounds(part) for part in parts]
            return _bounds_of_all(found) if is_and else _bounds_of_any(found)
    return Bounds()


def _bounds_of_all(parts: list[Bounds | None]) -> Bounds | None:
    whole = Bounds()
    for part in parts:
        if part is None:
            return None
        whole = Bounds(_overlap(whole.offsets, part.offsets), _overlap(whole.timestamps, part.timestamps))
        if NO_NUMBER in (whole.offsets, whole.timestamps):
            return None
    return whole


def _overlap(one: Range, other: Range) -> Range:
    found = max(one[0], other[0]), min(one[1], other[1])
    return found if found[0] <= found[1] else NO_NUMBER


def _bounds_of_any(parts: list[Bounds | None]) -> Bounds | None:
    possible = [part for part in parts if part is not None]
    if not possible:
        return None
    return Bounds(_hull([part.offsets for part in possible]), _hull([part.timestamps for part in possible]))


def _hull(ranges: list[Range]) -> Range:
    return min(lowest for lowest, _ in ranges), max(highest for _, highest in ranges)
