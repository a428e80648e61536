"""Makes keys and values typed columns, and headers a map.

`columns_of` finds on the driver which forms the options ask for, and the Spark types of these columns. `ColumnDecoder`
decodes them in tasks, with the decoders of `sparklog.values`, as an export does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BinaryType, BooleanType, DataType, MapType, StringType

from sparklog.errors import InvalidOptionError, ValueDecodeError
from sparklog.log.files import TopicPartition
from sparklog.spark.options.schema import DAMAGED, HEADERS, SPARK_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

    from sparklog.spark.options.read import SeglogOptions
    from sparklog.values.spec import DecoderSpec

HEADERS_MAP: Final = MapType(StringType(), BinaryType())


@dataclass(frozen=True)
class ReadColumns:
    """The types and decoders of the columns; a small object that is sent to the tasks.

    Attributes
    ----------
    types : mapping of str to DataType
        The type in this read of every column that can be read.
    decoders : mapping of str to DecoderSpec
        Decoders of the key and the value, if they are decoded.
    fails : bool
        Whether a key or value that does not decode is an error; otherwise it is null.
    """

    types: Mapping[str, DataType] = field(default_factory=lambda: SPARK_COLUMNS)
    decoders: Mapping[str, DecoderSpec] = field(default_factory=dict)
    fails: bool = True


def columns_of(options: SeglogOptions) -> ReadColumns:
    """Return the types and decoders that the options ask for.

    Raises
    ------
    InvalidOptionError
        A format, a schema or an option for them is wrong, a library is missing, or Spark has no such type.
    PathNotFoundError
        A schema is a path that does not exist.
    """
    with options.storage_options.in_force():
        decoders = _decoders(options)
    types = {name: _spark_type(name, spec) for name, spec in decoders.items()}
    if options.on_damage == "best_effort":
        types[DAMAGED] = BooleanType()
    if options.headers_as_map:
        types[HEADERS] = HEADERS_MAP
    return (
        ReadColumns({**SPARK_COLUMNS, **types}, decoders, options.on_decode_error == "fail") if types else ReadColumns()
    )


def _decoders(options: SeglogOptions) -> Mapping[str, DecoderSpec]:
    if not options.forms:
        return {}
    # This loads pyarrow, which a driver that decodes nothing should not wait for.
    from sparklog.values.spec import RAW, parse_decoder

    specs = {
        name: parse_decoder(
            form.format or RAW,
            form.schema,
            wire=form.wire,
            schema_id=form.schema_id,
            message=form.message,
            argument=f"{name}Format",
        )
        for name, form in options.forms.items()
    }
    return {name: spec for name, spec in specs.items() if spec.kind != RAW}


def _spark_type(name: str, spec: DecoderSpec) -> DataType:
    """Return the Spark type of a decoded column; it is wider than the decoder's if Spark has none as narrow."""
    from sparklog.spark.options.arrow_types import widened
    from sparklog.values.decoder import make_decoder

    kind = widened(make_decoder(spec).type)
    try:
        return from_arrow_type(kind, prefer_timestamp_ntz=True)
    except PySparkTypeError as error:
        raise InvalidOptionError(f"{name}Format makes a column of type {kind}, which Spark does not have") from error


class ColumnDecoder:
    """Decodes the keys or the values that a task reads.

    Parameters
    ----------
    name : str
        ``key`` or ``value``.
    columns : ReadColumns
    """

    def __init__(self, name: str, columns: ReadColumns) -> None:
        from sparklog.values.decoder import make_decoder

        self._name, self._fails = name, columns.fails
        self._decoder = make_decoder(columns.decoders[name])

    def __call__(self, batch: pa.RecordBatch, at: TopicPartition) -> pa.Array:
        """Decode the column of a partition's batch. The batch must have the column ``offset``, for errors.

        Raises
        ------
        ValueDecodeError
            A record does not decode, and the read fails on that.
        """
        decoded = self._decoder.decode(batch.column(self._name))
        if decoded.failures and self._fails:
            row, reason = next(iter(decoded.failures.by_row().items()))
            offset = batch.column("offset")[row]
            raise ValueDecodeError(
                f"the {self._name} of offset {offset} of {at} does not decode: {reason}. Set onDecodeError to "
                f"null to read what does not decode as null"
            )
        return decoded.array
