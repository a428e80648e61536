"""Decodes keys and values into typed Arrow arrays.

`sparklog.values.spec.parse_decoder` checks a user's request, `make_decoder` makes the decoder where it runs, and
`ValueDecoder.decode` takes a column of a batch. Each format is documented at the top of its module.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa

from sparklog.errors import InvalidOptionError
from sparklog.values.avro import AvroCodec
from sparklog.values.custom import CallableCodec
from sparklog.values.framing import split_prefix
from sparklog.values.json_documents import JsonCodec
from sparklog.values.protobuf import ProtobufCodec
from sparklog.values.rows import DecodedValues, Failures
from sparklog.values.schemas import AVRO, JSON, PROTOBUF
from sparklog.values.spec import CALLABLE, RAW, DecoderSpec
from sparklog.values.text import RawCodec, StringCodec


class FormatDecoder(Protocol):
    """Decodes one format. Its input is a `pyarrow.BinaryArray` without nulls."""

    type: pa.DataType

    def decode(self, values: pa.Array) -> DecodedValues: ...


class ValueDecoder:
    """Decodes keys or values; made by `make_decoder`.

    Attributes
    ----------
    type : pyarrow.DataType
        The type of every array that it makes.
    """

    def __init__(self, codec: FormatDecoder) -> None:
        self._codec = codec
        self.type: pa.DataType = codec.type

    def decode(self, values: pa.Array) -> DecodedValues:
        """Decode a column of keys or values.

        Parameters
        ----------
        values : pyarrow.BinaryArray or pyarrow.LargeBinaryArray, length n_rows
            Keys or values. Null is no failure and stays null; an empty value is a value.

        Returns
        -------
        DecodedValues
            An array of length n_rows, null if a value is null or failed, and the rows that failed.

        Raises
        ------
        InvalidOptionError
            The values exceed 2 GiB, or a user's function returned a wrong type or length.
        """
        try:
            dense = values.drop_null().cast(pa.binary())
        except pa.ArrowInvalid as error:
            raise InvalidOptionError(f"at most 2 GiB of values are decoded at once: {error}") from error
        array, failures = self._codec.decode(dense)
        if not values.null_count:
            return DecodedValues(array, failures)
        is_there = np.asarray(values.is_valid())
        places = pa.array(np.cumsum(is_there) - 1, mask=~is_there)
        return DecodedValues(array.take(places), failures.at(np.flatnonzero(is_there)))


def make_decoder(spec: DecoderSpec) -> ValueDecoder:
    """Make the decoder of a specification.

    Parameters
    ----------
    spec : DecoderSpec
        From `parse_decoder`.

    Raises
    ------
    InvalidOptionError
        A library is not installed, or a schema or a user's function cannot be used.
    """
    return ValueDecoder(_codec(spec))


def _codec(spec: DecoderSpec) -> FormatDecoder:
    if spec.kind == CALLABLE:
        return CallableCodec(spec.function)
    if spec.kind == JSON:
        codec = JsonCodec(spec.columns)
        return _WithoutPrefix(codec) if spec.has_prefix else codec
    by_id = {schema.schema_id: schema for schema in spec.schemas}
    if spec.kind == AVRO:
        return AvroCodec(by_id, spec.reader_id, has_prefix=spec.has_prefix)
    if spec.kind == PROTOBUF:
        return ProtobufCodec(by_id, spec.reader_id, spec.message, has_prefix=spec.has_prefix)
    return RawCodec() if spec.kind == RAW else StringCodec()


class _WithoutPrefix:
    """Removes Confluent's prefix before another codec decodes."""

    def __init__(self, codec: FormatDecoder) -> None:
        self._codec = codec
        self.type = codec.type

    def decode(self, values: pa.Array) -> DecodedValues:
        _, payloads, reasons = split_prefix(values)
        array, failures = ValueDecoder(self._codec).decode(payloads)
        return DecodedValues(array, Failures.of({**failures.by_row(), **reasons}))
