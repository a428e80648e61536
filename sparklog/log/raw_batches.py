"""Decodes raw batches that are in memory, with the checks of a log's reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from sparklog.errors import CorruptBatchError, InvalidOptionError
from sparklog.log.damage import DamageScanner
from sparklog.log.segment import WindowScan
from sparklog.record.decode.columns import LIMITS, DecodeLimits, Decoder, check_crcs
from sparklog.record.format.schema import DEFAULT_COLUMNS, RECORD_SCHEMA, chosen_columns
from sparklog.storage.in_memory import InMemoryFile


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
    return (batch.select(names) for batch in _decoded(view, Decoder(names, reaches_log_end=True, limits=limits)))


def _decoded(data: memoryview, decoder: Decoder) -> Iterator[pa.RecordBatch]:
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
