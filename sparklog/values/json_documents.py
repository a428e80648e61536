"""Decodes JSON documents to typed columns, by `pyarrow.json`.

A value is one JSON document in UTF-8, with any white space around and in it. It is an object if the schema has columns;
a key's schema may be a single type. The document ``null`` is a null. An absent field is null, and a field that the
schema lacks is left out. Numbers and texts must match the schema: 1.5 is no integer, 1.0 neither, and "1" is no number.
Times are ISO 8601; a time without a zone is in UTC.

These fail, each as its own row: bytes that are not UTF-8, a byte order mark, an empty value, several documents in one
value, a duplicate field of the schema, NaN and Infinity, numbers that their type cannot hold, and surrogates
without a partner.

Every value is wrapped in an object, ``{"v":VALUE}`` and a newline, and a whole block is parsed at once. No
value can reach into the next object: the line ends with ``}``, a newline and ``{``, which is no JSON within any
text, list or object that a value might have left open. So if there are as many objects as values, each belongs to its
value. A value might still close the object itself and continue, as ``{},"x":{}`` does; a parser that refuses unknown
fields refuses that. If values have fields that the schema lacks, the value stands in a list before a mark, ``{
"v":[VALUE,{"MARK":true}]}``, whose name no value can know, and must be the first of two.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from typing import Any, Final, Never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from sparklog.values.rows import DecodedValues, Failures, call_rows, decode_rows, join_decoded, no_failures
from sparklog.values.text import decode_text

_BYTES: Final = pa.large_binary()
_NOT_ONE: Final = "the value is not one JSON document"
_ROWS_MAX: Final = 16_384  # pyarrow parses at most 100,000 at once
_BYTES_MAX: Final = 4 << 20
_SUSPECTS_MAX: Final = 128  # rows of a part, when a failed block is parsed in parts, and failed parts row by row
_COLUMN: Final = "v"
_KIND_NAMES: Final = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
# The words of pyarrow's error that concern the block, not the value.
_ABOUT_THE_BLOCK: Final = re.compile(r"JSON parse error: | in row \d+$|(?<=Column\()/v(?:/\[\])?(?=[/)])")
# Where a value may begin, as far as a text can tell; json.loads has the last word.
_NOT_FINITE: Final = r"(?:\A|[:,\[])[ \t\r\n]*-?(?:NaN|Inf)"


class JsonCodec:
    """Decodes JSON documents of one type.

    Parameters
    ----------
    kind : pyarrow.DataType
        From `sparklog.values.columns` or `sparklog.values.json_schema`.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.type = kind
        self._parsed = _parsed_type(kind)
        self._mark = f"mark{secrets.token_hex(8)}"
        self._has_unknown_fields = False

    def decode(self, values: pa.Array) -> DecodedValues:
        texts, wrong = decode_text(values)
        array, failures = join_decoded([self._decode_block(block) for block in _blocks(texts)], self.type)
        return DecodedValues(array, Failures.of({**failures.by_row(), **wrong.by_row()}))

    def _decode_block(self, texts: pa.Array) -> DecodedValues:
        if pa.types.is_struct(self.type) and not texts.null_count:
            try:
                return DecodedValues(self._objects(texts), no_failures())
            except (ValueError, NotImplementedError, OverflowError):
                pass  # some row of the block fails, and is found below
        if len(texts) <= _SUSPECTS_MAX:
            return self._decode_rows(texts)
        starts = range(0, len(texts), _SUSPECTS_MAX)
        parts = [self._decode_block(texts[start : start + _SUSPECTS_MAX]) for start in starts]
        return join_decoded(parts, self.type)

    def _decode_rows(self, texts: pa.Array) -> DecodedValues:
        """Decode a block with rows that may fail; a null text has failed before."""
        _, reasons = call_rows(self._refuse_no_document, texts.to_pylist())
        is_document = np.asarray(texts.is_valid())
        is_document[list(reasons)] = False
        rows = np.flatnonzero(is_document)
        decode = self._objects if pa.types.is_struct(self.type) else self._documents
        array, failures = decode_rows(texts.take(pa.array(rows)), decode, self.type)
        places = pa.array(np.cumsum(is_document) - 1, mask=~is_document)
        return DecodedValues(array.take(places), Failures.of({**reasons, **failures.at(rows).by_row()}))

    def _refuse_no_document(self, text: str) -> None:
        """Raise if a text is not one JSON document; this check is cheaper than parsing the text alone."""
        try:
            _refuse_misfit(_parse_json(text), self.type, "the document")
        except RecursionError:
            # pyarrow takes objects of any depth; other documents are known to be whole by this check alone.
            if not pa.types.is_struct(self.type):
                raise

    def _documents(self, texts: pa.Array) -> pa.Array:
        """Decode texts that are one document each."""
        return self._finished(self._parse(texts, b'{"v":', b"}\n", self._parsed, "ignore"))

    def _objects(self, texts: pa.Array) -> pa.Array:
        """Decode texts that must be objects or null."""
        if not self._has_unknown_fields:
            try:
                return self._finished(self._parse(texts, b'{"v":', b"}\n", self._parsed, "error"))
            except ValueError as error:
                if "unexpected field" not in str(error):
                    raise
            self._has_unknown_fields = True
        return self._finished(self._marked(texts))

    def _marked(self, texts: pa.Array) -> pa.Array:
        """Parse objects that may have fields that the schema lacks; see the top of the module."""
        suspects = texts.filter(pc.match_substring_regex(texts, _NOT_FINITE))
        for text in suspects.to_pylist():
            _parse_json(text)
        item = pa.struct([*self._parsed, pa.field(self._mark, pa.bool_())])
        behind = b',{"' + self._mark.encode() + b'":true}]}\n'
        lists = self._parse(texts, b'{"v":[', behind, pa.list_(item), "ignore")
        items = lists.flatten()
        is_two = lists.null_count == 0 and pc.all(pc.equal(pc.list_value_length(lists), 2)).as_py()
        if len(items) and not (is_two and np.asarray(items.field(self._mark).is_valid())[1::2].all()):
            raise ValueError(_NOT_ONE)
        values = items.take(pa.array(np.arange(0, len(items), 2)))
        mask = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays(values.flatten()[:-1], fields=list(self._parsed), mask=mask)

    def _parse(self, texts: pa.Array, before: bytes, behind: bytes, kind: pa.DataType, unknown: str) -> pa.Array:
        """Parse each text, put between two pieces of JSON that make it the only field of an object."""
        if not len(texts):
            return pa.array([], kind)
        pieces = [pa.scalar(before, _BYTES), texts.cast(_BYTES), pa.scalar(behind, _BYTES), pa.scalar(b"", _BYTES)]
        lines = pc.binary_join_element_wise(*pieces).buffers()[2]
        try:
            table = pj.read_json(
                pa.BufferReader(lines),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(lines)),
                parse_options=pj.ParseOptions(
                    explicit_schema=pa.schema([(_COLUMN, kind)]), unexpected_field_behavior=unknown
                ),
            )
        except pa.ArrowInvalid as error:
            raise ValueError(_ABOUT_THE_BLOCK.sub("", str(error))) from error
        if table.num_rows != len(texts):
            raise ValueError(_NOT_ONE)
        return table.column(_COLUMN).combine_chunks()

    def _finished(self, parsed: pa.Array) -> pa.Array:
        """Convert the parsed array to the requested type."""
        if not all(pc.all(pc.is_finite(leaf), min_count=0).as_py() for leaf in _floats(parsed)):
            raise ValueError("a number is NaN, Infinity, or more than its type holds")
        return parsed if self._parsed.equals(self.type) else parsed.cast(self.type)


def _blocks(texts: pa.Array) -> Iterator[pa.Array]:
    """Divide texts into blocks to parse at once."""
    if not len(texts):
        return
    ends = np.cumsum(np.asarray(pc.fill_null(pc.binary_length(texts), 0)).astype(np.int64))
    start = 0
    while start < len(texts):
        before = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, before + _BYTES_MAX, side="right"))
        end = min(max(end, start + 1), start + _ROWS_MAX)
        yield texts[start:end]
        start = end


class _Number(str):
    """A number of a document, as text: making Python numbers is slow, and pyarrow knows which fit."""

    __slots__ = ()


class _WholeNumber(_Number):
    __slots__ = ()


def _parse_json(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse_constant, parse_int=_WholeNumber, parse_float=_Number)


def _refuse_misfit(value: Any, kind: pa.DataType, name: str) -> None:
    """Raise if a part of a document has another kind than its type. pyarrow finds all other faults."""
    if value is None:
        return
    if pa.types.is_struct(kind) and type(value) is dict:
        for field in kind:
            _refuse_misfit(value.get(field.name), field.type, field.name)
    elif pa.types.is_list(kind) and type(value) is list:
        for item in value:
            _refuse_misfit(item, kind.value_type, f"{name}[]")
    elif type(value) not in _kinds(kind):
        found = _KIND_NAMES.get(type(value), "a number")
        raise ValueError(f"{name} is {found}, and not of the type {kind}")


def _kinds(kind: pa.DataType) -> tuple[type, ...]:
    """Return the classes of `_parse_json`'s values that a type can hold."""
    if pa.types.is_boolean(kind):
        return (bool,)
    if pa.types.is_integer(kind):
        return (_WholeNumber,)
    if pa.types.is_floating(kind):
        return (_WholeNumber, _Number)
    if pa.types.is_decimal(kind):
        return (_WholeNumber, _Number, str)
    return () if pa.types.is_nested(kind) else (str,)


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is no number of JSON")


def _parsed_type(kind: pa.DataType) -> pa.DataType:
    """Return the type to request from `pyarrow.json`: dates as text, since it would read dates from numbers of days."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_parsed_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_parsed_type(kind.value_type))
    return pa.string() if pa.types.is_date(kind) else kind


def _floats(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the columns of floats in an array."""
    if pa.types.is_floating(array.type):
        yield array
    elif pa.types.is_struct(array.type):
        for field in array.flatten():
            yield from _floats(field)
    elif pa.types.is_list(array.type):
        yield from _floats(array.flatten())
