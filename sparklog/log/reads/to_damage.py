"""Reads the records of a range up to the first damage, which is an error."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from sparklog.errors import CorruptBatchError, SeglogError
from sparklog.log.filters.pruning import pruned_range
from sparklog.log.layout import PartitionLayout
from sparklog.log.reads.columns import decoded_columns, in_order_asked
from sparklog.log.reads.fates import BatchFate, TransactionFates
from sparklog.log.scans.of_range import first_damaged, located, scan_range
from sparklog.log.segment import Segment
from sparklog.log.windows import Window
from sparklog.record.decode.columns import BatchDecoder, DecodeLimits
from sparklog.record.decode.where import Constant, Where
from sparklog.record.decode.where_program import BatchFilter


def read_to_damage(
    layout: PartitionLayout,
    start: int,
    end: int,
    schema: pa.Schema,
    is_committed: bool,
    limits: DecodeLimits,
    where: Where | None,
    fail_on_data_loss: bool,
) -> Iterator[pa.RecordBatch]:
    """Read the records of a range up to the first damage, and raise its error; see `LogReader.batches`."""
    chosen = None if where is None or where.tree == Constant(True) else BatchFilter(where.tree)
    if where is not None:
        start, end = pruned_range(layout, where, start, end)
    fates = TransactionFates(layout, start, skips_damage=False) if is_committed else None
    decoder = BatchDecoder(
        decoded_columns(schema),
        start_offset=start,
        end_offset=end,
        reaches_log_end=end >= layout.end_offset,
        limits=limits,
        program=None if chosen is None else chosen.program,
    )
    last: Segment | None = None
    try:
        for segment, window, failure in _chosen(layout, start, end, fail_on_data_loss, fates, chosen):
            if last is not None and segment is not last:
                yield from in_order_asked(decoder.flush(), schema, last)
            last = segment
            with located(segment):
                yield from in_order_asked(decoder.decode(window.buffer, window.headers), schema, segment)
            if failure is not None:
                raise failure
    except SeglogError:
        # The records before the damage come first.
        if last is not None:
            yield from in_order_asked(decoder.flush(), schema, last)
        raise
    if last is not None:
        yield from in_order_asked(decoder.flush(), schema, last)


def _chosen(
    layout: PartitionLayout,
    start: int,
    end: int,
    fail_on_data_loss: bool,
    fates: TransactionFates | None,
    chosen: BatchFilter | None,
) -> Iterator[tuple[Segment, Window, CorruptBatchError | None]]:
    """Yield the batches to decode, and the error of the first damaged batch after them, if there is one."""
    for segment, window in scan_range(layout, start, end, fail_on_data_loss):
        headers, failure = window.headers, None
        is_wanted = ~headers.is_control
        if fates is not None:
            is_wanted &= fates.of(headers) != BatchFate.ABORTED
        if chosen is not None:
            is_wanted &= chosen.may_pass(headers)
        if not is_wanted.all():
            # Decoding checks batches; those that are left out because of their headers are checked here.
            failure = first_damaged(segment, Window(window.buffer, headers.where(~is_wanted)))
            if failure is not None:
                is_wanted &= headers.column("position") < (failure.position or 0)
        yield segment, Window(window.buffer, headers.where(is_wanted)), failure
