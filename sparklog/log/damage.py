"""What stands in a file where no sound batch does: zeros, torn batches, whole batches behind damage.

Everything here is linear in the bytes and takes memory for one window of them, whatever the bytes say. Results are
values; who asks decides whether they are an error.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from sparklog.errors import CorruptBatchError
from sparklog.record.framing import CHECKSUM_PREFIX_BYTES, HEADER_BYTES_MAX, RunningChecksum, checksum_fault
from sparklog.record.headers import BatchHeaders
from sparklog.storage.base import ReadableFile

LARGE_BATCH_BYTES: Final = 1 << 24
"""A batch that says it is longer than this is checked before memory is taken for it."""

_WINDOW_BYTES: Final = 1 << 22
# What the processor's cache still holds when it is compared.
_ZEROS: Final = bytes(1 << 18)
_SEARCH_COST_MAX: Final = 4
_ZEROS_OF_RECORDS_MAX: Final = 64


class WholeBatch(NamedTuple):
    """How a search for a whole batch ended.

    Attributes
    ----------
    position : int or None
        Where an intact batch begins; None where there is none.
    is_given_up : bool
        Whether the bytes hold so much that looks like headers that the search was not carried to its end.
    budget_bytes : int
        What is left of the budget.
    """

    position: int | None
    is_given_up: bool
    budget_bytes: int


def is_zero(file: ReadableFile, position: int, end_position: int) -> bool:
    """Tell whether there are only zeros from a position on; what a sparse file does not store is not read."""
    room = bytearray(min(len(_ZEROS), max(end_position - position, 0)))
    while (data_at := file.data_position(position)) is not None and data_at < end_position:
        wanted_bytes = min(len(room), end_position - data_at)
        count = file.read_into(data_at, memoryview(room)[:wanted_bytes])
        # bytearray and bytes are compared at the speed of memory, slices of a memoryview are not.
        if (room if count == len(room) else room[:count]) != (_ZEROS if count == len(_ZEROS) else _ZEROS[:count]):
            return False
        if not count:
            break
        position = data_at + count
    return True


def data_end(file: ReadableFile, position: int, end_position: int) -> int:
    """Return where the zeros begin that end a file, at ``position`` or behind it."""
    end = end_position
    while end > position:
        start = max(position, end - _WINDOW_BYTES)
        if not is_zero(file, start, end):
            return start + len(bytes(file.read(start, end - start)).rstrip(b"\0"))
        end = start
    return position


def is_intact_at(file: ReadableFile, position: int, batch_bytes: int) -> bool:
    """Check the checksum of a whole batch in a file, in a window of memory however long it is."""
    prefix = file.read(position, CHECKSUM_PREFIX_BYTES)
    if len(prefix) < CHECKSUM_PREFIX_BYTES or prefix[16] > 2:
        return False
    checksum = RunningChecksum(prefix)
    _take_in(checksum, file, position + checksum.covers_from, position + batch_bytes)
    return checksum.is_right


def has_wrong_size(file: ReadableFile, position: int, zeros_from: int, end_position: int) -> bool:
    """Tell whether all bytes of a batch are there although its size says that some are missing.

    The size is not covered by the checksum. So where the checksum is that of the bytes up to the end of the file, or
    up to the zeros of a file that was made longer beforehand, it is the size that is wrong.

    Parameters
    ----------
    position : int
        Where the batch begins.
    zeros_from : int
        Where the zeros begin that end the file, from `data_end`.
    """
    prefix = file.read(position, CHECKSUM_PREFIX_BYTES)
    if len(prefix) < CHECKSUM_PREFIX_BYTES or prefix[16] > 2:
        return False
    checksum = RunningChecksum(prefix)
    end = max(zeros_from, position + checksum.covers_from)
    _take_in(checksum, file, position + checksum.covers_from, end)
    # A record often ends with zeros of its own.
    tried_to = min(end + _ZEROS_OF_RECORDS_MAX, end_position)
    for _ in range(tried_to - end):
        if checksum.is_right:
            return True
        checksum.add(b"\0")
    _take_in(checksum, file, tried_to, end_position)
    return checksum.is_right


def _take_in(checksum: RunningChecksum, file: ReadableFile, position: int, end_position: int) -> None:
    room = bytearray(min(_WINDOW_BYTES, max(end_position - position, 0)))
    while position < end_position:
        piece = memoryview(room)[: file.read_into(position, memoryview(room)[: end_position - position])]
        if not len(piece):
            return
        checksum.add(piece)
        position += len(piece)


def search_budget_bytes(length_bytes: int) -> int:
    """Return of how many bytes checksums may be computed in a search over so many bytes.

    Bytes that are made to look like headers must not make it quadratic.
    """
    return _SEARCH_COST_MAX * max(length_bytes, 0) + _WINDOW_BYTES


def find_whole_batch(
    file: ReadableFile,
    position: int,
    end_position: int,
    lowest_offset: int,
    highest_offset: int,
    zeros_from: int | None = None,
    budget_bytes: int | None = None,
) -> WholeBatch:
    """Find the next intact batch at or behind a position, at any byte.

    Parameters
    ----------
    zeros_from : int, optional
        Where the zeros begin that end the file, from `data_end`: a batch may end among them, and none begins there.
    lowest_offset, highest_offset : int
        What its offset must be between, both included.
    budget_bytes : int, optional
        Of how many bytes checksums may be computed: what is left of it is to be handed to the next search of the same
        file. By default `search_budget_bytes` of what there is to search.
    """
    # Compiled code, which nobody waits for who meets no damage.
    from sparklog.record.kernels_search import ASK, FOUND, GIVEN_UP, search

    if budget_bytes is None:
        budget_bytes = search_budget_bytes(end_position - position)
    stop = end_position if zeros_from is None else min(zeros_from + HEADER_BYTES_MAX, end_position)
    room = bytearray(min(_WINDOW_BYTES, max(stop - position, 0)))
    while position < stop:
        count = file.read_into(position, memoryview(room)[: stop - position])
        octets, start = np.frombuffer(room, np.uint8)[:count], 0
        while True:
            status, start, budget_bytes = search(
                octets, start, end_position - position, lowest_offset, highest_offset, budget_bytes
            )
            if status == FOUND:
                return WholeBatch(position + start, False, budget_bytes)
            if status == ASK:
                batch_bytes = int.from_bytes(room[start + 8 : start + 12], "big") + 12
                budget_bytes -= batch_bytes
                if budget_bytes >= 0 and is_intact_at(file, position + start, batch_bytes):
                    return WholeBatch(position + start, False, budget_bytes)
                start += 1
            if status == GIVEN_UP or budget_bytes < 0:
                return WholeBatch(None, True, budget_bytes)
            if status != ASK:
                break
        if position + count >= stop or not start:
            break
        position += start
    return WholeBatch(None, False, budget_bytes)


def refuse_damaged(file: ReadableFile, headers: BatchHeaders, path: str, hint: str) -> None:
    """Raise `CorruptBatchError` for the first of some batches whose checksum differs: for few, one at a time."""
    for batch in headers.table:
        position, batch_bytes = int(batch["position"]), int(batch["batch_bytes"])
        if batch_bytes > LARGE_BATCH_BYTES:
            fault = None if is_intact_at(file, position, batch_bytes) else "the checksum does not match the bytes"
        else:
            fault = checksum_fault(file.read(position, batch_bytes))
        if fault is not None:
            raise CorruptBatchError(fault, path=path, position=position, offset=int(batch["base_offset"]), hint=hint)
