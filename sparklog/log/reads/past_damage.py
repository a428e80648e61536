"""Reads the records of a range past damage: what can be read, and a row for all that cannot."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
import pyarrow as pa

from sparklog.errors import CorruptBatchError
from sparklog.log.damage import LARGE_BATCH_BYTES, WRONG_CHECKSUM_REASON
from sparklog.log.damage_rows import DamagedStretch, DamagePolicy
from sparklog.log.filters.pruning import pruned_range
from sparklog.log.layout import PartitionLayout
from sparklog.log.reads.columns import decoded_columns, in_order_asked
from sparklog.log.reads.fates import BatchFate, TransactionFates
from sparklog.log.scans.sound_range import scan_range_past_damage
from sparklog.log.segment import Segment
from sparklog.log.windows import Window
from sparklog.record.batches.framing import scan_headers
from sparklog.record.decode.columns import BatchDecoder, DecodeLimits
from sparklog.record.decode.prefix import readable_prefix
from sparklog.record.decode.where import Constant, Where
from sparklog.record.decode.where_program import BatchFilter
from sparklog.record.format.headers import BatchHeaders

_LOST_MARKER = "the marker of its transaction may be lost: nobody can tell whether it was committed"


class ReadPastDamage:
    """A read of a range of offsets that goes on after damage.

    Parameters
    ----------
    schema : pyarrow.Schema
        The columns, from `sparklog.log.reads.columns.schema_of`.
    is_committed : bool
        Whether records of aborted transactions are left out.
    where : Where or None
        Which records are wanted.
    """

    def __init__(
        self,
        layout: PartitionLayout,
        start_offset: int,
        end_offset: int,
        schema: pa.Schema,
        is_committed: bool,
        limits: DecodeLimits,
        where: Where | None,
        policy: DamagePolicy,
    ) -> None:
        self._layout, self._schema, self._limits, self._policy = layout, schema, limits, policy
        self._range = (start_offset, end_offset)
        if where is not None:
            self._range = pruned_range(layout, where, start_offset, end_offset, skips_damage=True)
        self._filter = None if where is None or where.tree == Constant(True) else BatchFilter(where.tree)
        self._fates = TransactionFates(layout, self._range[0], skips_damage=True) if is_committed else None
        self._decoder = self._new_decoder()

    def __iter__(self) -> Iterator[pa.RecordBatch | DamagedStretch]:
        last: Segment | None = None
        held: list[DamagedStretch] = []
        for part in scan_range_past_damage(self._layout, *self._range):
            if isinstance(part, DamagedStretch):
                yield part
                held += [part] if self._policy.is_best_effort and part.reason == WRONG_CHECKSUM_REASON else []
                continue
            segment, window = part
            if last is not None and segment is not last:
                yield from in_order_asked(self._decoder.flush(), self._schema, last)
            last = segment
            headers = window.headers
            for each in held:
                # Damage inside a window comes before it.
                is_before = headers.column("position") < each.position if each.file == segment.path() else None
                if is_before is not None and is_before.any():
                    yield from self._records(segment, Window(window.buffer, headers.where(is_before)))
                    headers = headers.where(~is_before)
                yield from self._best_effort(each)
            held = []
            yield from self._records(segment, Window(window.buffer, headers))
        if last is not None:
            yield from in_order_asked(self._decoder.flush(), self._schema, last)
        for each in held:
            yield from self._best_effort(each)

    def _best_effort(self, lost: DamagedStretch) -> Iterator[pa.RecordBatch]:
        """Decode the first records of a batch whose checksum differs."""
        if lost.length_bytes > LARGE_BATCH_BYTES:
            return
        with self._layout.storage.open(lost.file) as file:
            batch = file.read(lost.position, lost.length_bytes)
        limit_bytes = self._limits.decompressed_bytes_max
        prefix = readable_prefix(batch, lost.first_offset, lost.end_offset, limit_bytes)
        # The fate of its transaction cannot be told: its header may be damaged.
        headers = scan_headers(prefix or b"", lost.position)
        if prefix is None or (self._fates is not None and headers.is_transactional.any()):
            return
        segment = self._layout.segments[self._layout.segment_of(lost.first_offset)]
        # Records that wait in the decoder come before these.
        yield from in_order_asked(self._decoder.flush(), self._schema, segment)
        decoder = self._new_decoder(is_alone=True)
        found = chain(decoder.decode(memoryview(prefix), headers), decoder.flush())
        yield from in_order_asked(found, self._schema, segment, is_damaged=True)

    def _new_decoder(self, *, is_alone: bool = False) -> BatchDecoder:
        start, end = self._range
        return BatchDecoder(
            decoded_columns(self._schema),
            start_offset=start,
            end_offset=end,
            reaches_log_end=is_alone or end >= self._layout.end_offset,
            limits=self._limits,
            program=None if self._filter is None else self._filter.program,
        )

    def _records(self, segment: Segment, window: Window) -> Iterator[pa.RecordBatch | DamagedStretch]:
        """Decode the batches of a window; one that does not decode is left out alone."""
        headers = window.headers
        is_wanted = ~headers.is_control
        if self._fates is not None:
            fates = self._fates.of(headers)
            is_wanted &= fates != BatchFate.ABORTED
            if self._policy.unknown == "drop":
                is_wanted &= fates != BatchFate.UNKNOWN
                for row in np.flatnonzero(fates == BatchFate.UNKNOWN).tolist():
                    yield _left_out(segment, headers.table[row], _LOST_MARKER)
        if self._filter is not None:
            is_wanted &= self._filter.may_pass(headers)
        rest: BatchHeaders = headers.where(is_wanted)
        while len(rest):
            try:
                yield from in_order_asked(self._decoder.decode(window.buffer, rest), self._schema, segment)
                return
            except CorruptBatchError as error:
                row = int(np.searchsorted(rest.column("position"), error.position or 0))
                reason = error.reason
            self._decoder = self._new_decoder()
            yield _left_out(segment, rest.table[row], reason)
            rest = rest[row + 1 :]


def _left_out(segment: Segment, batch: np.void, reason: str) -> DamagedStretch:
    folder, position, length_bytes = segment.folder, int(batch["position"]), int(batch["batch_bytes"])
    first, end = int(batch["base_offset"]), int(batch["last_offset"]) + 1
    return DamagedStretch(folder.topic, folder.partition, segment.path(), position, length_bytes, first, end, reason)
