"""Takes whole batches of one log to stage them for another, with new offsets and perhaps another codec.

The offsets inside a batch stay, since the checksum covers them: a batch takes as many offsets as lie between
its first and its last, even if compaction has removed some. Gaps between batches are closed, unless the
batches keep their offsets. A compressed wrapper of magic 0 or 1 does not say how many offsets it takes, and it is
not decompressed to find out: it takes all since the batch before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from crc32c import crc32c

from sparklog.errors import CorruptBatchError, InvalidOptionError
from sparklog.log.segment import Segment
from sparklog.log.windows import Window
from sparklog.record.batches.framing import OVERHEAD_BYTES, scan_headers
from sparklog.record.batches.producer_stamps import replace_producer_ids
from sparklog.record.batches.stamps import fixes_offsets, stamp_batches
from sparklog.record.batches.wrappers import last_offset_inside
from sparklog.record.codecs.table import (
    CODEC_IDS,
    codec_name,
    compressed_bytes_max,
    compressor,
    decompressor,
    to_corrupt_error,
)
from sparklog.record.encode.batches import EncodedBatches
from sparklog.record.format import v2
from sparklog.record.format.headers import BatchHeaders
from sparklog.record.kernels.spans import OFFSET
from sparklog.record.rewrite.batches import rewritten
from sparklog.record.rewrite.changes import Changes
from sparklog.record.rewrite.spans import record_spans

_BATCH_BYTES_MAX: Final = (1 << 31) - 1 + OVERHEAD_BYTES
_CRC_AT, _ATTRIBUTES_AT = 17, 22
_Table = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class BatchTaker:
    """Takes the batches of a range of one log, in order.

    Attributes
    ----------
    start_offset, end_offset : int
        A batch belongs to the range of its last offset, so that it belongs to exactly one, however a log is divided.
    keeps_offsets : bool
        Whether batches keep their offsets.
    leader_epoch : int
        The leader epoch to write into them.
    codec : str or None
        The codec to compress them with, by Kafka's name; None leaves each batch as it is.
    producers_of : str or None
        The name of the source whose producers get ids that no cluster reaches; None keeps their ids.
    decompressed_bytes_max : int
        The most bytes that a batch may decompress to.
    """

    start_offset: int
    end_offset: int
    keeps_offsets: bool
    leader_epoch: int
    codec: str | None
    producers_of: str | None
    decompressed_bytes_max: int

    def take(self, segment: Segment, window: Window, next_offset: int) -> EncodedBatches | None:
        """Return a window's batches that belong to the range, ready to be staged; None if there are none.

        Parameters
        ----------
        window : Window
            Its checksums have been checked. Its memory is written to.
        next_offset : int
            The first free offset, for batches that do not keep theirs.

        Raises
        ------
        InvalidOptionError
            A batch cannot be moved to other offsets, or recompressed, without being written anew.
        CorruptBatchError
            A batch cannot be decompressed.
        """
        last_offsets = window.headers.column("last_offset")
        headers = window.headers.where((last_offsets >= self.start_offset) & (last_offsets < self.end_offset))
        if not len(headers):
            return None
        self._refuse_fixed(segment, headers)
        table = headers.table.copy()
        self._count_offsets(table, Window(window.buffer, headers).batch(0), headers)
        starts = table["position"] - headers.origin
        data = window.buffer[int(starts[0]) : int(starts[-1] + table["batch_bytes"][-1])]
        table["position"] = starts - starts[0]
        if self.codec is not None:
            data = self._recompressed(segment, headers, data, table)
        if self.producers_of is not None:
            replace_producer_ids(np.frombuffer(data, np.uint8), table, self.producers_of)
        if not self.keeps_offsets:
            spans = table["last_offset"] - table["base_offset"] + 1
            table["last_offset"] = next_offset - 1 + np.cumsum(spans)
            table["base_offset"] = table["last_offset"] - spans + 1
        stamp_batches(
            np.frombuffer(data, np.uint8), table["position"], table["magic"], table["base_offset"],
            table["last_offset"], self.leader_epoch,
        )  # fmt: skip
        return EncodedBatches(data, BatchHeaders(table, 0, len(data)))

    def _refuse_fixed(self, segment: Segment, headers: BatchHeaders) -> None:
        """Raise for the first batch that can only be written as it is."""
        table = headers.table
        is_fixed = np.zeros(len(headers), bool)
        if not self.keeps_offsets:
            is_fixed |= fixes_offsets(table["magic"], headers.codec_ids)
        if self.codec is not None:
            is_fixed |= table["magic"] < 2
        for row in np.flatnonzero(is_fixed)[:1].tolist():
            batch = table[row]
            where = f"file {segment.path()}, position {batch['position']}, offset {batch['last_offset']}"
            if self.codec is not None:
                raise InvalidOptionError(
                    f"a batch of magic {batch['magic']} cannot be recompressed ({where}): copy it as it is"
                )
            raise InvalidOptionError(
                f"the messages in a compressed batch of magic 0 have offsets of their own, which a copy does not "
                f"change ({where}): copy it with keep_offsets"
            )

    def _count_offsets(self, table: _Table, first: memoryview, headers: BatchHeaders) -> None:
        """Write into the table where wrappers begin, and how many records each batch has for a reader."""
        is_wrapper = table["record_count"] < 0
        if is_wrapper.any():
            lowest = table["lowest_offset"].copy()
            if is_wrapper[0]:
                # The batch that was taken before a window's first one need not precede it in the log.
                inside = last_offset_inside(first) if table["magic"][0] == 1 else None
                if inside is not None:
                    lowest[0] = table["last_offset"][0] - inside
                if self.keeps_offsets:
                    lowest[0] = max(lowest[0], self.start_offset)
            table["base_offset"][is_wrapper] = lowest[is_wrapper]
            spans = table["last_offset"] - table["base_offset"] + 1
            table["record_count"][is_wrapper] = np.minimum(spans[is_wrapper], (1 << 31) - 1)
        table["record_count"][headers.is_control] = 0

    def _recompressed(self, segment: Segment, headers: BatchHeaders, data: memoryview, table: _Table) -> memoryview:
        """Return the batches with another codec; positions and sizes of the table are changed to theirs."""
        codec = self.codec or ""
        compress, wanted = compressor(codec), CODEC_IDS[codec]
        is_changed = (headers.codec_ids != wanted) & (table["record_count"] > 0)
        parts: list[memoryview | bytearray] = []
        position = 0
        for row, batch in enumerate(table):
            start = int(batch["position"])
            part: memoryview | bytearray = data[start : start + int(batch["batch_bytes"])]
            if is_changed[row]:
                try:
                    part = self._recompress(memoryview(part), compress, wanted)
                except CorruptBatchError as error:
                    found = headers.table[row]
                    at = {"position": int(found["position"]), "offset": int(found["base_offset"])}
                    raise error.located(path=segment.path(), **at) from error
            batch["position"], batch["batch_bytes"] = position, len(part)
            batch["attributes"] = part[_ATTRIBUTES_AT]
            position += len(part)
            parts.append(part)
        return memoryview(bytearray().join(parts))

    def _recompress(
        self, batch: memoryview, compress: Callable[[memoryview, memoryview], int], codec: int
    ) -> bytearray:
        records, found = batch[v2.HEADER_BYTES :], batch[_ATTRIBUTES_AT] & v2.CODEC_MASK
        if found:
            try:
                records = memoryview(decompressor(found, 2)(records, self.decompressed_bytes_max))
            except Exception as error:
                # Each library raises its own errors.
                raise to_corrupt_error(error, found) from error
        out = bytearray(v2.HEADER_BYTES + (compressed_bytes_max(len(records)) if codec else len(records)))
        out[: v2.HEADER_BYTES] = batch[: v2.HEADER_BYTES]
        with memoryview(out) as view:
            end = v2.HEADER_BYTES + compress(records, view[v2.HEADER_BYTES :])
        if end > _BATCH_BYTES_MAX:
            raise CorruptBatchError(f"a batch would have {end} bytes with the codec {codec_name(codec)}")
        del out[end:]
        out[8:OVERHEAD_BYTES] = (end - OVERHEAD_BYTES).to_bytes(4, "big")
        out[_ATTRIBUTES_AT] = out[_ATTRIBUTES_AT] & ~v2.CODEC_MASK | codec
        out[_CRC_AT : v2.CRC_COVERS_FROM] = crc32c(out[v2.CRC_COVERS_FROM :]).to_bytes(4, "big")
        return out


def cut_window(segment: Segment, window: Window, offset: int) -> Window:
    """Return a window whose last batch has no records from an offset on; other batches end before the offset.

    A batch of magic 2 that is written again keeps its last offset and its producer's sequence numbers.

    Raises
    ------
    CorruptBatchError
        The batch cannot be decompressed.
    """
    headers, last = window.headers, len(window.headers) - 1
    if headers.column("last_offset")[last] < offset or headers.is_control[last]:
        return window
    positions = headers.column("position")[[0, last]] - headers.origin
    data = bytearray(window.buffer[positions[0] : positions[1]])
    try:
        for spans in record_spans(window.buffer, headers[last:]):
            for part in rewritten(spans, Changes(keep=spans.table[:, OFFSET] < offset)):
                data += part
    except CorruptBatchError as error:
        raise error.located(path=segment.path()) from error
    view = memoryview(data)
    return Window(view, scan_headers(view, int(headers.column("position")[0])) if data else headers[:0])
