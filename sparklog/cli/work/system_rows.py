"""Makes the rows of views of internal topics as the commands print them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sparklog.topic.internal import views
from sparklog.topic.internal.lag import lag


def lag_rows(paths: Sequence[str], groups: Sequence[str]) -> list[dict[str, Any]]:
    """Make the rows of the lag of groups; parameters and errors as of `sparklog.topic.internal.lag.lag`."""
    rows: list[dict[str, Any]] = lag(paths, groups).to_pylist()
    return rows


def rows_of(path: str | Sequence[str], name: str, *, history: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the rows of a view as the commands print them: times are ms since 1970, maps are objects."""
    for batch in views.batches(path, name, history=history):
        columns = [_plain(batch.column(number), field.type) for number, field in enumerate(batch.schema)]
        for values in zip(*columns, strict=True):
            yield dict(zip(batch.schema.names, values, strict=True))


def _plain(column: pa.Array, kind: pa.DataType) -> list[Any]:
    if pa.types.is_timestamp(kind):
        return list(column.cast(pa.int64()).to_pylist())
    values: list[Any] = column.to_pylist()
    return [dict(value) for value in values] if pa.types.is_map(kind) else values
