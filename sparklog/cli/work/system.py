"""``groups``, ``transactions`` and ``cluster``: makes rows from internal topics, and aborts open transactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa

from sparklog.cli.output import render, tables
from sparklog.cli.output.system_fields import GROUP_LAG, GROUP_LAG_SUM, OPEN_TRANSACTION
from sparklog.errors import InvalidOptionError
from sparklog.log.clock import wall_clock_ms
from sparklog.log.files import parse_partition_folder
from sparklog.topic.internal import views
from sparklog.topic.internal.lag import lag
from sparklog.topic.transactions.hanging import AbortRequest, OpenTransaction, abort_transactions, open_transactions


def show_group_lag(paths: Sequence[str], groups: Sequence[str], limit: int | None, *, as_json: bool) -> None:
    """Print the lag of groups: first the sum of each, then each partition.

    `sparklog.topic.internal.lag.lag` describes the other parameters and the errors.

    Parameters
    ----------
    limit : int or None
        The limit of each of the two tables; see `sparklog.cli.output.tables.limited_table`.
    """
    rows: list[dict[str, Any]] = lag(paths, groups).to_pylist()
    if as_json:
        render.put_rows(rows)
        return
    tables.limited_table(GROUP_LAG_SUM, list(_groups(rows)), limit, noun="group")
    render.say()
    tables.limited_table(GROUP_LAG.columns, rows, limit, noun="partition", heading=lambda row: str(row["group"]))


def _groups(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Fold the partitions of each group into one row."""
    for group, of_group in groupby(rows, key=lambda row: row["group"]):
        lags = [row["lag"] for row in of_group]
        known = [each for each in lags if each is not None]
        yield {
            "group": group,
            "partitions": len(lags),
            "lag": sum(known) if known else None,
            "unknown": len(lags) - len(known),
        }


def rows_of(path: str | Sequence[str], name: str, *, history: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the rows of a view in the form that commands print: times as ms since 1970, maps as objects."""
    for batch in views.batches(path, name, history=history):
        columns = [_plain(batch.column(number), field.type) for number, field in enumerate(batch.schema)]
        for values in zip(*columns, strict=True):
            yield dict(zip(batch.schema.names, values, strict=True))


def _plain(column: pa.Array, kind: pa.DataType) -> list[Any]:
    if pa.types.is_timestamp(kind):
        return list(column.cast(pa.int64()).to_pylist())
    values: list[Any] = column.to_pylist()
    return [dict(value) for value in values] if pa.types.is_map(kind) else values


@dataclass(frozen=True)
class WantedAbort:
    """The options of ``transactions --abort``, by their names."""

    partition: str | None = None
    producer_id: int | None = None
    is_all: bool = False
    dry_run: bool = False

    def request(self) -> AbortRequest:
        found = None if self.partition is None else parse_partition_folder(self.partition)
        if self.partition is not None and found is None:
            raise InvalidOptionError(f"--partition {self.partition!r} is not topic-partition, such as orders-0")
        return AbortRequest(found, self.producer_id, self.is_all)


def show_open(path: str, *, as_json: bool) -> None:
    """Print open transactions."""
    now_ms = wall_clock_ms()
    rows = [_row(each, "open", now_ms) for each in open_transactions([path])]
    tables.show_rows(OPEN_TRANSACTION.columns, rows, as_json=as_json)
    if not as_json:
        hanging = sum(row["is_hanging"] for row in rows)
        render.say(f"{len(rows)} transaction{'s' * (len(rows) != 1)} open, {hanging} hanging")


def show_aborted(path: str, wanted: WantedAbort, *, as_json: bool) -> None:
    """Abort transactions, or in a dry run only list them; print each."""
    now_ms = wall_clock_ms()
    done = abort_transactions([path], wanted.request(), now_ms, executes=not wanted.dry_run)
    status = "would be aborted" if wanted.dry_run else "aborted"
    rows = [_row(each, status, now_ms) for each in done]
    tables.show_rows(OPEN_TRANSACTION.columns, rows, as_json=as_json)
    if not as_json:
        count = f"{len(done)} transaction{'s' * (len(done) != 1)}"
        render.say(f"{count} to abort; nothing was changed" if wanted.dry_run else f"{count} aborted")


def _row(found: OpenTransaction, status: str, now_ms: int) -> dict[str, Any]:
    return OPEN_TRANSACTION.row(
        found,
        status=status,
        topic=found.topic_partition.topic,
        partition=found.topic_partition.partition,
        age_ms=found.age_ms(now_ms),
        is_hanging=found.is_hanging(now_ms),
    )
