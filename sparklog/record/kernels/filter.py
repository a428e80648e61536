"""Compiled code: tests records with a filter, so that only the bytes of records that pass are copied.

One kernel for each format runs the program of any filter: a program is a table of tests, made by
`sparklog.record.decode.where_program`, and no filter is compiled by itself. Each test names the next test for a
true result, and the next for a false one, so that a record is tested only until its result is known. The next test is
always at a lower row of the table, and so every program ends.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import types

from sparklog.record.kernels.compile import inlined, step
from sparklog.record.kernels.memory import big_endian_64, item, load_64
from sparklog.record.kernels.scan import BYTES, DECODE, NUMBERS
from sparklog.record.kernels.varints import field

# A row of the table of tests: the kind of test and its column; whether it must be false; its operands, as a part of the
# numbers or the literals; for a header, the literal with its name; and the next rows.
TEST_FIELDS: Final = 8
KIND, COLUMN, IS_NEGATED, FIRST, COUNT, NAME, ON_TRUE, ON_FALSE = range(TEST_FIELDS)

PASSES: Final = -1
FAILS: Final = -2

IN_RANGES, IS_ONE_OF, COMPARES, STARTS, ENDS, HOLDS, IS_THERE = range(7)
OFFSETS, TIMESTAMPS, TIMESTAMP_TYPES, KEY, VALUE, HEADER = range(6)

LESS, EQUAL, GREATER = 1, 2, 4
"""Bits of the results that COMPARES accepts: the value is less, equal or greater. They are in its field COUNT."""


class Program(NamedTuple):
    """A filter as a table of tests for compiled code; the last row is the first test.

    ``tests`` has `TEST_FIELDS` numbers for each test. ``numbers`` are the lowest and highest number of each range.
    Literal ``i`` is ``octets[borders[i]:borders[i + 1]]``; the literals of an IS_ONE_OF are sorted by length, then by
    bytes.
    """

    tests: Any
    numbers: Any
    borders: Any
    octets: Any


PROGRAM = types.NamedTuple((NUMBERS, NUMBERS, NUMBERS, BYTES), Program)
FILTER = DECODE.return_type(*DECODE.args, PROGRAM)


@inlined
def _is_in_ranges(numbers, first, count, number):
    """Return whether a number is in one of some ranges, which ascend."""
    low, high = np.int64(0), count
    while low < high:
        middle = (low + high) >> 1
        if item(numbers, first + 2 * middle + 1) < number:
            low = middle + 1
        else:
            high = middle
    return low < count and item(numbers, first + 2 * low) <= number


@inlined
def _order_of_few(buffer, position, other, other_position, length):
    """Compare fewer bytes than a word has."""
    for place in range(length):
        difference = np.int64(item(buffer, position + place)) - np.int64(item(other, other_position + place))
        if difference != 0:
            return difference
    return np.int64(0)


@step
def _order(buffer, position, other, other_position, length):
    """Compare ``length`` bytes of two buffers: negative, 0 or positive."""
    left = length
    while left > 0:
        if left < 8:
            if length < 8:
                return _order_of_few(buffer, position, other, other_position, left)
            # The last eight bytes; some of them are known to be equal.
            position -= 8 - left
            other_position -= 8 - left
            left = np.int64(8)
        word = np.uint64(big_endian_64(buffer, position))
        other_word = np.uint64(big_endian_64(other, other_position))
        if word != other_word:
            return np.int64(-1 if word < other_word else 1)
        position += 8
        other_position += 8
        left -= 8
    return np.int64(0)


@step
def _is_one_of(program, first, count, buffer, position, length):
    """Return whether bytes equal one of some literals. Most literals have another length, or differ soon."""
    low, high = first, first + count
    while low < high:
        middle = (low + high) >> 1
        start = item(program.borders, middle)
        order = length - (item(program.borders, middle + 1) - start)
        if order == 0:
            order = _order(buffer, position, program.octets, start, length)
            if order == 0:
                return True
        if order > 0:
            low = middle + 1
        else:
            high = middle
    return False


@inlined
def is_equal(buffer, position, other, other_position, length):
    """Return whether ``length`` bytes of two buffers are equal, comparing the ends first: names often begin alike."""
    if length >= 8:
        last = length - 8
        if load_64(buffer, position + last) != load_64(other, other_position + last):
            return False
    return _order(buffer, position, other, other_position, length) == 0


@inlined
def _is_value(program, first, count, buffer, position, length):
    """Return whether bytes equal one of some literals; with a single one, most differences are found without a call."""
    if count == 1:
        start = item(program.borders, first)
        return length == item(program.borders, first + 1) - start and is_equal(
            buffer, position, program.octets, start, length
        )
    return _is_one_of(program, first, count, buffer, position, length)


@step
def _holds(buffer, position, length, octets, start, literal_bytes):
    """Return whether bytes contain a literal."""
    if literal_bytes == 0:
        return True
    head = item(octets, start)
    for place in range(position, position + length - literal_bytes + 1):
        if item(buffer, place) == head and _order(buffer, place, octets, start, literal_bytes) == 0:
            return True
    return False


@step
def _is_true_of(program, test, kind, buffer, position, length):
    """Run one test on bytes that are not null."""
    first, count = item(program.tests, test + FIRST), item(program.tests, test + COUNT)
    if kind == IS_THERE:
        return True
    if kind == IS_ONE_OF:
        return _is_value(program, first, count, buffer, position, length)
    start = item(program.borders, first)
    literal_bytes = item(program.borders, first + 1) - start
    if kind == COMPARES:
        order = _order(buffer, position, program.octets, start, min(length, literal_bytes))
        if order == 0:
            order = length - literal_bytes
        return count & (LESS if order < 0 else GREATER if order > 0 else EQUAL) != 0
    if literal_bytes > length:
        return False
    if kind == STARTS:
        return _order(buffer, position, program.octets, start, literal_bytes) == 0
    if kind == ENDS:
        return _order(buffer, position + length - literal_bytes, program.octets, start, literal_bytes) == 0
    return _holds(buffer, position, length, program.octets, start, literal_bytes)


@step
def _is_true_of_headers(program, test, kind, buffer, position, count, end):
    """Run one test on the values of headers with a name: (whether any is not null, whether the test is true of any)."""
    name = item(program.tests, test + NAME)
    name_start = item(program.borders, name)
    name_bytes = item(program.borders, name + 1) - name_start
    is_any = False
    for _ in range(count):
        start, length, position = field(buffer, position, end)
        value, value_length, position = field(buffer, position, end)
        if (
            length == name_bytes
            and value_length >= 0
            and _order(buffer, start, program.octets, name_start, name_bytes) == 0
        ):
            if _is_true_of(program, test, kind, buffer, value, value_length):
                return True, True
            is_any = True
    return is_any, False


@inlined
def passes(program, buffer, end, fields, offset, timestamp, timestamp_type):
    """Run a program on a record whose fields have been found and checked; without one, every record passes."""
    if program is None:
        return True
    _, _, key, key_length, value, value_length, headers, header_count = fields
    row = np.int64(program.tests.shape[0] // TEST_FIELDS - 1)
    while row >= 0:
        test = row * TEST_FIELDS
        kind, column = item(program.tests, test + KIND), item(program.tests, test + COLUMN)
        if kind == IN_RANGES:
            number = offset if column == OFFSETS else timestamp if column == TIMESTAMPS else timestamp_type
            first, count = item(program.tests, test + FIRST), item(program.tests, test + COUNT)
            is_true = _is_in_ranges(program.numbers, first, count, number)
        else:
            if column == HEADER:
                is_there, is_true = _is_true_of_headers(program, test, kind, buffer, headers, header_count, end)
            else:
                position, length = (key, key_length) if column == KEY else (value, value_length)
                is_there = length >= 0
                if kind == IS_ONE_OF:
                    first, count = item(program.tests, test + FIRST), item(program.tests, test + COUNT)
                    is_true = is_there and _is_value(program, first, count, buffer, position, length)
                else:
                    is_true = is_there and _is_true_of(program, test, kind, buffer, position, length)
            if item(program.tests, test + IS_NEGATED) != 0:
                # Null passes only the test for null.
                is_true = not is_true and (is_there or kind == IS_THERE)
        row = item(program.tests, test + ON_TRUE) if is_true else item(program.tests, test + ON_FALSE)
    return row == PASSES
