"""Reads the keys to erase, or to prove absent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, cast

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from sparklog.errors import InputFileError, InvalidOptionError
from sparklog.record.rewrite.matching import KeySet, key_set
from sparklog.storage.registry import PathText
from sparklog.storage.small_files import read_file

Keys: TypeAlias = PathText | Sequence[bytes | str] | pa.Array | pa.ChunkedArray
"""A file of keys, or the keys themselves."""

_COLUMN: Final = "key"


def read_keys(source: Keys) -> KeySet:
    """Return the set of the keys in a file, or of the given keys.

    Parameters
    ----------
    source : str, os.PathLike, or the keys
        A file: Parquet with a column ``key``, or with only one column; otherwise CSV with a line of names, including
        ``key``. A CSV without that line is refused: its first key would be taken for a name. Text means its UTF-8
        bytes.

    Raises
    ------
    InvalidOptionError
        The column is missing, or its type is not binary or text, or there are no keys, or one is null.
    InputFileError, PathNotFoundError
        The file cannot be read.
    """
    if isinstance(source, str) or hasattr(source, "__fspath__"):
        keys = _from_file(cast(PathText, source))
    else:
        keys = _array(source)
    found = key_set(keys)
    if not found.count:
        raise InvalidOptionError("no keys are given")
    return found


def _array(keys: Any) -> pa.Array | pa.ChunkedArray:
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        return keys
    return pa.array([each.encode() if isinstance(each, str) else each for each in keys], pa.large_binary())


def _from_file(source: PathText) -> pa.ChunkedArray:
    data = pa.py_buffer(read_file(source))
    is_parquet = data.size >= 4 and data[:4].to_pybytes() == b"PAR1"
    try:
        return _of_parquet(data) if is_parquet else _of_csv(data)
    except pa.ArrowInvalid as error:
        raise InputFileError(f"{source} cannot be read as keys: {error}") from error
    except InvalidOptionError as error:
        raise InvalidOptionError(f"{source}: {error}") from error


def _of_parquet(data: pa.Buffer) -> pa.ChunkedArray:
    file = pyarrow.parquet.ParquetFile(pa.BufferReader(data))
    names = file.schema_arrow.names
    name = names[0] if len(names) == 1 else _COLUMN
    if name not in names:
        raise InvalidOptionError(f"none of its columns {', '.join(names)} is named {_COLUMN}")
    column: pa.ChunkedArray = file.read([name]).column(0)
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _of_csv(data: pa.Buffer) -> pa.ChunkedArray:
    parsing = pyarrow.csv.ParseOptions(newlines_in_values=True)
    # All values are keys as text, also if they look like numbers or nulls.
    converting = pyarrow.csv.ConvertOptions(
        column_types={_COLUMN: pa.binary()}, strings_can_be_null=False, quoted_strings_can_be_null=False, null_values=[]
    )
    table = pyarrow.csv.read_csv(pa.BufferReader(data), parse_options=parsing, convert_options=converting)
    if table.column_names.count(_COLUMN) != 1:
        raise InvalidOptionError(
            f"its first line is {', '.join(table.column_names)[:80]!r}, and must name one column {_COLUMN}"
        )
    return table[_COLUMN]
