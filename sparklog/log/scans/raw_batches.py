"""Raw batches, not decompressed: the value that a reader gives for each, and how batches in memory are decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final

import pyarrow as pa

from sparklog.errors import CorruptBatchError, InvalidOptionError
from sparklog.log.damage import DamageScanner
from sparklog.log.windows import Window, WindowScan
from sparklog.record.codecs.table import codec_name
from sparklog.record.decode.columns import LIMITS, BatchDecoder, DecodeLimits, check_crcs
from sparklog.record.format.schema import DEFAULT_COLUMNS, RECORD_SCHEMA, chosen_columns
from sparklog.record.format.v2 import CODEC_MASK, CONTROL, TRANSACTIONAL
from sparklog.storage.in_memory import InMemoryFile


@dataclass(frozen=True, slots=True)
class RawBatch:
    """A whole batch as it is in the log, and its header. A field that its format does not have is -1.

    Attributes
    ----------
    data : bytes
        The batch; of magic 0 and 1, a message or a wrapper. It is a copy: it stays valid, whatever becomes of the file.
    base_offset, last_offset : int
        Its first and last offset. A compressed wrapper of magic 0 or 1 has only the last one, which is then both.
    magic : int
        The record format, 0 to 2.
    attributes : int
        Kafka's bits: of the codec, of the type of its timestamps, and whether it is transactional or a marker.
    base_timestamp, max_timestamp : int
        ms since the epoch.
    producer_id, producer_epoch, base_sequence : int
        The producer's stamps.
    leader_epoch : int
        The epoch of the leader that took the batch.
    record_count : int
        How many records the header gives; -1 of a compressed wrapper of magic 0 or 1.
    """

    data: bytes
    base_offset: int
    last_offset: int
    magic: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    leader_epoch: int
    record_count: int

    @property
    def codec(self) -> str:
        """Kafka's name of the codec."""
        return codec_name(self.attributes & CODEC_MASK)

    @property
    def is_transactional(self) -> bool:
        return self.magic == 2 and bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether it is a marker of a transaction, which holds no records of users."""
        return self.magic == 2 and bool(self.attributes & CONTROL)


_OF_HEADER: Final = [each.name for each in fields(RawBatch)][1:]


def raw_batches_of(window: Window) -> Iterator[RawBatch]:
    """Yield copies of the batches of a window."""
    for row, header in enumerate(window.headers.table[_OF_HEADER].tolist()):
        yield RawBatch(bytes(window.batch(row)), *header)


def decode(
    data: bytes | bytearray | memoryview, columns: str | Sequence[str] | None = None, *, limits: DecodeLimits = LIMITS
) -> Iterator[pa.RecordBatch]:
    """Decode the bytes of a fetch, of a segment's file that was downloaded, or of a capture.

    Records of aborted and of open transactions are given as well, and markers are not.

    Parameters
    ----------
    data : bytes-like
        Batches of one partition as they are in its log, one behind the other, from a batch boundary on. The last one
        may be cut short, as a fetch cuts it: it is left out.
    columns : str or sequence of str, optional
        One or more names of `RECORD_SCHEMA`, in the order wanted; by default `DEFAULT_COLUMNS`. ``position`` is that in
        the data.
    limits : DecodeLimits
        How much may be decompressed and decoded at a time.

    Yields
    ------
    pyarrow.RecordBatch
        In offset order.

    Raises
    ------
    InvalidOptionError
        The data are not bytes, or there is no such column.
    CorruptBatchError
        A batch is damaged, with its position and its offset; what comes before it has been yielded. Or there is no
        whole batch at the beginning.
    """
    names = chosen_columns(columns, DEFAULT_COLUMNS, RECORD_SCHEMA.names)
    try:
        view = memoryview(data).cast("B")
    except TypeError as error:
        raise InvalidOptionError(f"what is decoded are bytes in one piece, and not {type(data).__name__}") from error
    return (batch.select(names) for batch in _decoded(view, BatchDecoder(names, reaches_log_end=True, limits=limits)))


def _decoded(data: memoryview, decoder: BatchDecoder) -> Iterator[pa.RecordBatch]:
    file, expected_offset = InMemoryFile(data), 0
    scan = WindowScan(file, 0)
    for window in scan:
        is_control = window.headers.is_control
        yield from decoder.decode(window.buffer, window.headers.where(~is_control))
        check_crcs(window.buffer, window.headers.where(is_control))
        expected_offset = int(window.headers.column("last_offset")[-1]) + 1
    yield from decoder.flush()
    if scan.position == len(data):
        return
    damage = DamageScanner(file, is_last=True).judge(
        scan.position, expected_offset, len(data), scan.fault, what=scan.what
    )
    if not damage.is_log_end or not scan.position:
        raise CorruptBatchError(damage.reason, position=scan.position, offset=expected_offset)
