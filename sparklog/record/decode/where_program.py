"""Turns a filter into a test of batches by their headers, and a program that tests their records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from sparklog.record.decode.where import (
    ABOVE,
    AT_LEAST,
    AT_MOST,
    BELOW,
    CONTAINS,
    ENDS_WITH,
    EVERY_NUMBER,
    HEADERS,
    IN,
    INT64_MAX,
    INT64_MIN,
    IS_THERE,
    KEY,
    OFFSET,
    STARTS_WITH,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    VALUE,
    BytesTest,
    Junction,
    Node,
    NumberTest,
    Range,
)
from sparklog.record.format.headers import BatchHeaders
from sparklog.record.format.streams import Int64s
from sparklog.record.kernels import filter as code

Mask = np.ndarray[Any, np.dtype[np.bool_]]

_COLUMNS: Final = {
    OFFSET: code.OFFSETS,
    TIMESTAMP: code.TIMESTAMPS,
    TIMESTAMP_TYPE: code.TIMESTAMP_TYPES,
    KEY: code.KEY,
    VALUE: code.VALUE,
    HEADERS: code.HEADER,
}
_KINDS: Final = {
    IN: code.IS_ONE_OF,
    STARTS_WITH: code.STARTS,
    ENDS_WITH: code.ENDS,
    CONTAINS: code.HOLDS,
    IS_THERE: code.IS_THERE,
}
_ORDERS: Final = {
    BELOW: code.LESS,
    AT_MOST: code.LESS | code.EQUAL,
    ABOVE: code.GREATER,
    AT_LEAST: code.GREATER | code.EQUAL,
}


class BatchFilter:
    """A filter of the records of one partition.

    Parameters
    ----------
    tree : Node
        The tree from `Where.of_partition`, without tests of topic and partition.

    Attributes
    ----------
    program : Program
        Tests records.
    """

    def __init__(self, tree: Node) -> None:
        self._tree, self._asks_headers = tree, _asks_headers(tree)
        self.program = program_of(tree)

    def may_pass(self, headers: BatchHeaders) -> Mask:
        """Return for each batch, from its header and the next one, whether it may have a record that passes.

        Parameters
        ----------
        headers : BatchHeaders, length n_batches
            The headers of consecutive batches of a log, with none left out.
        """
        return _may_pass(self._tree, headers) if self._asks_headers else np.ones(len(headers), np.bool_)


def program_of(tree: Node) -> code.Program:
    """Make the program for a tree without tests of topic and partition."""
    writer = _Writer()
    writer.add(tree, code.PASSES, code.FAILS)
    return writer.program()


@dataclass
class _Writer:
    """Writes tests in reverse order: the last one that a record meets comes first."""

    tests: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    literals: list[bytes] = field(default_factory=list)

    def add(self, node: Node, on_true: int, on_false: int) -> int:
        """Write a tree whose result leads to one of two rows; return the row to begin with."""
        if isinstance(node, Junction):
            row = on_true if node.is_and else on_false
            for part in sorted(node.parts, key=_cost, reverse=True):
                row = self.add(part, row, on_false) if node.is_and else self.add(part, on_true, row)
            return row
        if isinstance(node, NumberTest):
            first = len(self.numbers)
            self.numbers += [number for each in node.ranges for number in each]
            return self._test(code.IN_RANGES, node.column, False, first, len(node.ranges), 0, on_true, on_false)
        if isinstance(node, BytesTest):
            name = len(self.literals)
            self.literals += [node.header, *sorted(node.operands, key=lambda each: (len(each), each))]
            kind = _KINDS.get(node.operator, code.COMPARES)
            count = _ORDERS.get(node.operator, len(node.operands))
            return self._test(kind, node.column, node.is_negated, name + 1, count, name, on_true, on_false)
        return self.add(NumberTest(OFFSET, (EVERY_NUMBER,) if node.value else ()), on_true, on_false)

    def _test(self, kind: int, column: str, is_negated: bool, *others: int) -> int:
        self.tests += [kind, _COLUMNS[column], is_negated, *others]
        return len(self.tests) // code.TEST_FIELDS - 1

    def program(self) -> code.Program:
        borders = np.cumsum([0, *(len(each) for each in self.literals)])
        return code.Program(
            _frozen(np.array(self.tests, np.int64)),
            _frozen(np.array(self.numbers, np.int64)),
            _frozen(borders.astype(np.int64)),
            np.frombuffer(b"".join(self.literals), np.uint8),
        )


def _frozen(numbers: Int64s) -> Int64s:
    numbers.flags.writeable = False
    return numbers


def _cost(node: Node) -> int:
    """Return the approximate cost of a test: cheap ones run first, and may make the others unnecessary."""
    if isinstance(node, Junction):
        return max(_cost(part) for part in node.parts)
    if isinstance(node, BytesTest):
        return (5 if node.column == HEADERS else 1) + (10 if node.operator == CONTAINS else 0)
    return 0


def _may_pass(tree: Node, headers: BatchHeaders) -> Mask:
    if isinstance(tree, Junction):
        masks = [_may_pass(part, headers) for part in tree.parts]
        return (np.logical_and if tree.is_and else np.logical_or).reduce(masks)  # type: ignore[no-any-return]
    if isinstance(tree, NumberTest):
        return _overlaps(tree.ranges, *_SPANS[tree.column](headers))
    return np.ones(len(headers), np.bool_)


def _asks_headers(tree: Node) -> bool:
    """Return whether a tree has tests that can rule out a batch by its header."""
    if isinstance(tree, Junction):
        return any(_asks_headers(part) for part in tree.parts)
    return isinstance(tree, NumberTest)


def _overlaps(ranges: Sequence[Range], lowest: Int64s, highest: Int64s) -> Mask:
    """Return for each span, both ends included, whether it overlaps any of some ranges."""
    if not ranges:
        return np.zeros(len(lowest), np.bool_)
    starts, ends = (np.array(column, np.int64) for column in zip(*ranges, strict=True))
    # The first range that ends at or after the beginning of the span.
    row = np.searchsorted(ends, lowest)
    overlaps: Mask = (row < len(ends)) & (starts[np.minimum(row, len(ends) - 1)] <= highest)
    return overlaps


def _offsets(headers: BatchHeaders) -> tuple[Int64s, Int64s]:
    """Return the lowest and the highest offset that records of each batch can have.

    A record may be above the last offset in the header, as in Kafka, but not in the next batch. A wrapper's header has
    no first offset.
    """
    base_offsets, is_wrapper = headers.column("base_offset"), headers.column("record_count") < 0
    lowest = np.where(is_wrapper, headers.column("lowest_offset"), base_offsets)
    highest = np.append(base_offsets[1:] - 1, INT64_MAX)
    return lowest, np.maximum(highest, headers.column("last_offset"))


def _timestamps(headers: BatchHeaders) -> tuple[Int64s, Int64s]:
    """Return the lowest and the highest timestamp (ms) of records of each batch; headers have only the latest.

    With log append time, and in a message of magic 0 or 1 that is no wrapper, all are the same. Messages of magic 0
    have -1, also in a wrapper of magic 1; the header of a wrapper of magic 0 does not show the timestamps inside.
    """
    latest, magic = headers.column("max_timestamp"), headers.column("magic")
    is_wrapper = headers.column("record_count") < 0
    is_one = np.where(magic == 2, headers.timestamp_types == 1, ~is_wrapper)
    is_unknown = is_wrapper & (magic == 0)
    highest = np.where(is_wrapper, np.maximum(latest, -1), latest)
    return np.where(is_one, latest, INT64_MIN), np.where(is_unknown, INT64_MAX, highest)


def _timestamp_types(headers: BatchHeaders) -> tuple[Int64s, Int64s]:
    return headers.timestamp_types, headers.timestamp_types


_SPANS: Final = {OFFSET: _offsets, TIMESTAMP: _timestamps, TIMESTAMP_TYPE: _timestamp_types}
