"""Judges the bytes in a segment's file where a sound batch should begin, and finds the next sound data.

This is the only module that distinguishes the torn end of a log from damage. Readers, recovery and ``verify`` ask
`DamageScanner` about bytes that are no sound batch; they turn the returned `Damage` into an error, a cut or a finding.

Everything here is linear in the bytes and takes memory for one window of them, whatever they contain.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from sparklog.errors import CorruptBatchError
from sparklog.record.batches.framing import (
    CHECKSUM_PREFIX_BYTES,
    HEADER_BYTES_MAX,
    RunningChecksum,
    checksum_fault,
    first_header,
    is_intact,
)
from sparklog.record.format.headers import BatchHeaders
from sparklog.record.format.v2 import OFFSET_MAX
from sparklog.storage.base import ReadableFile

LARGE_BATCH_BYTES: Final = 1 << 24
"""A batch that claims to be longer than this is checked before memory is allocated for it."""

WRONG_CHECKSUM_REASON: Final = "the checksum does not match the bytes"

_WINDOW_BYTES: Final = 1 << 22
# This many bytes are still in the processor's cache when they are compared.
_ZEROS: Final = bytes(1 << 18)
_USUAL_BATCH_BYTES: Final = 1 << 12
_SEARCH_COST_MAX: Final = 4
_ZEROS_OF_RECORDS_MAX: Final = 64
_PAUSES_S: Final = (0.0, 0.001, 0.02)
_CUT_SHORT: Final = "a batch is cut short"


class DamageKind(StrEnum):
    """The kinds of bytes that can stand where a sound batch should begin."""

    ZEROS = "zeros"
    TORN_BATCH = "torn batch"
    WRONG_SIZE = "wrong size"
    NOT_A_BATCH = "not a batch"
    WRONG_CHECKSUM = "wrong checksum"


@dataclass(frozen=True)
class Damage:
    """The bytes of a segment's file that stand where a sound batch should begin.

    Attributes
    ----------
    what : DamageKind
        `TORN_BATCH` is a batch that is cut short, by the end of the file or by other bytes.
    reason : str
        The damage in a few words.
    position : int
        The position of its first byte.
    length_bytes : int
        Its length: up to the next sound batch, or to the end of the file.
    expected_offset : int
        The lowest offset that the batch there can have.
    next_position : int or None
        The position of the next sound batch of this log; None if there is none, or none was searched for.
    zeros_from : int
        The position of the zeros at the end of the last segment's file; in other segments, the end of the file.
    may_be_torn : bool
        Whether a crash may have left these bytes: they end the last segment, and nothing whole follows them.
    is_search_given_up : bool
        Whether the search for the next batch was given up, since too many bytes looked like batches.
    """

    what: DamageKind
    reason: str
    position: int
    length_bytes: int
    expected_offset: int
    next_position: int | None = None
    zeros_from: int = 0
    may_be_torn: bool = False
    is_search_given_up: bool = False

    @property
    def is_log_end(self) -> bool:
        """Whether a sound log ends here, followed only by leftovers of a crash or a broker's preallocated zeros.

        For a reader, a batch with a wrong checksum is no such leftover, since all of its bytes are there; nor are bytes
        that are no batch, such as the hole that a power cut leaves. A writer cuts them off, and reports it.
        """
        return self.may_be_torn and self.what in (DamageKind.ZEROS, DamageKind.TORN_BATCH)


class DamageScanner:
    """Judges the damaged places of one segment's file.

    Bytes forged to look like headers must not make the search for whole batches quadratic. So all searches of a
    scanner share one budget of bytes for checksums.

    Parameters
    ----------
    file : ReadableFile
        The segment's ``.log`` file.
    is_last : bool
        Whether it is the last segment, the only one that may be torn or end with zeros.
    upper_offset : int
        The exclusive upper bound of the offsets of its batches.
    """

    def __init__(self, file: ReadableFile, *, is_last: bool, upper_offset: int = OFFSET_MAX) -> None:
        self._file = file
        self._is_last = is_last
        self._upper_offset = upper_offset
        self._budget_bytes: int | None = None

    @property
    def is_given_up(self) -> bool:
        """Whether a search was given up because the budget was used up."""
        return self._budget_bytes is not None and self._budget_bytes < 0

    def judge(
        self,
        position: int,
        expected_offset: int,
        end_position: int,
        fault: str | None,
        *,
        what: DamageKind = DamageKind.NOT_A_BATCH,
        doubtful_position: int | None = None,
        wants_next: bool = True,
    ) -> Damage:
        """Judge the bytes at a position that has no sound batch.

        Parameters
        ----------
        position : int
            The position where a batch should begin.
        expected_offset : int
            The lowest offset that it can have.
        end_position : int
            The size of the file, taken before the bytes at the position were read.
        fault : str or None
            Why the bytes are no sound batch; None if they may be the beginning of one that is longer than the file.
        what : DamageKind
            The kind of damage if there is a fault.
        doubtful_position : int, optional
            The position of the damaged batches directly before this one: the size of one of them
            may be wrong, and the next sound batch may begin inside it.
        wants_next : bool
            Whether to search for the next sound batch even if the judgement does not depend on it.
        """
        zeros_from = data_end(self._file, position, end_position) if self._is_last else end_position
        if self._is_last and zeros_from == position:
            reason, length_bytes = "only zeros stand behind the last batch", end_position - position
            return Damage(
                DamageKind.ZEROS,
                reason,
                position,
                length_bytes,
                expected_offset,
                zeros_from=zeros_from,
                may_be_torn=True,
            )
        what, reason = (DamageKind.TORN_BATCH, _CUT_SHORT) if fault is None else (what, fault)
        next_position, may_be_torn = None, False
        if wants_next or (self._is_last and fault is None):
            begin = position if doubtful_position is None else doubtful_position
            next_position = self.next_batch(begin, position, expected_offset, end_position, zeros_from)
            may_be_torn = self._is_last and next_position is None
        if may_be_torn and has_wrong_header(self._file, position, zeros_from, end_position):
            what, may_be_torn = DamageKind.WRONG_SIZE, False
            reason = "the size or magic of the last batch is wrong: its checksum is that of the bytes to the file's end"
        elif next_position is not None and next_position < position and doubtful_position is not None:
            what, position = DamageKind.WRONG_SIZE, doubtful_position
            reason = "its size cannot be right: a whole batch begins inside it"
        elif wants_next and not self._is_last and is_zero(self._file, position, next_position or end_position):
            what = DamageKind.ZEROS
        return Damage(
            what,
            reason,
            position,
            (end_position if next_position is None else next_position) - position,
            expected_offset,
            next_position,
            zeros_from,
            may_be_torn=may_be_torn and not self.is_given_up,
            is_search_given_up=self.is_given_up,
        )

    def next_batch(
        self, begin: int, position: int, expected_offset: int, end_position: int, zeros_from: int
    ) -> int | None:
        """Return the position of the next intact batch of this log; None if there is none."""
        for found in self.whole_batches(begin + 1, end_position, zeros_from):
            if found != position and self._is_of_log(found, expected_offset, zeros_from):
                return found
        return None

    def _is_of_log(self, position: int, expected_offset: int, zeros_from: int) -> bool:
        """Return whether an intact batch belongs to this log, and not to another log inside a record's value.

        Its offset is above the offsets before it. Or, since no checksum covers that offset, nor the offsets before
        it: another intact batch follows it, or the end of the data, where a torn record would continue.
        """
        header = first_header(self._file.read(position, HEADER_BYTES_MAX), position)
        if not len(header):
            return True
        if expected_offset <= header.column("base_offset")[0] and header.column("last_offset")[0] < self._upper_offset:
            return True
        end_position = position + header.valid_bytes
        if end_position >= zeros_from:
            return True
        follower = first_header(self._file.read(end_position, HEADER_BYTES_MAX), end_position)
        return self._affords(follower.valid_bytes) and whole_batch_at(self._file, end_position) is not None

    def whole_batches(self, position: int, end_position: int, zeros_from: int | None = None) -> Iterator[int]:
        """Find the intact batches at or after a position, at any byte and with any offset.

        Parameters
        ----------
        zeros_from : int, optional
            The position of the zeros at the end of the file, from `data_end`: a batch may end among them, but none
            begins there.

        Yields
        ------
        int
            The position of each. After the last, ``is_given_up`` tells whether the budget was used up.
        """
        # This loads compiled code, which only damaged logs should wait for.
        from sparklog.record.kernels.search import ASK, FOUND, search

        if self._budget_bytes is None:
            self._budget_bytes = _SEARCH_COST_MAX * max(end_position - position, 0) + _WINDOW_BYTES
        stop = end_position if zeros_from is None else min(zeros_from + HEADER_BYTES_MAX, end_position)
        window = bytearray(min(_WINDOW_BYTES, max(stop - position, 0)))
        while position < stop:
            count = self._file.read_into(position, memoryview(window)[: stop - position])
            octets, start, status = np.frombuffer(window, np.uint8)[:count], 0, FOUND
            while status in (ASK, FOUND):
                status, start, self._budget_bytes = search(octets, start, end_position - position, self._budget_bytes)
                if status == FOUND:
                    yield position + start
                elif status == ASK:
                    batch_bytes = int.from_bytes(window[start + 8 : start + 12], "big") + 12
                    at = self._file, position + start, batch_bytes
                    if _is_filled(*at) and self._affords(batch_bytes) and is_intact_at(*at):
                        yield position + start
                if self.is_given_up:
                    return
                start += status in (ASK, FOUND)
            if position + count >= stop or not start:
                break
            position += start

    def _affords(self, checked_bytes: int) -> bool:
        """Take the bytes of one checksum from the budget; return whether it had enough."""
        self._budget_bytes = (self._budget_bytes or 0) - checked_bytes
        return self._budget_bytes >= 0


def _is_filled(file: ReadableFile, position: int, batch_bytes: int) -> bool:
    """Return whether the lengths of a key and a value fill a batch of magic 0 or 1; True for one of magic 2."""
    header = file.read(position, HEADER_BYTES_MAX)
    if len(header) < HEADER_BYTES_MAX or header[16] == 2:
        return True
    at = 18 + 8 * header[16]
    at += 4 + max(int.from_bytes(header[at : at + 4], "big", signed=True), 0)
    value_bytes = int.from_bytes(file.read(position + at, 4), "big", signed=True)
    return at + 4 + max(value_bytes, 0) == batch_bytes


def whole_batch_at(file: ReadableFile, position: int) -> BatchHeaders | None:
    """Return the header of the batch that begins at a position, if the file has an intact one there."""
    data = file.read(position, _USUAL_BATCH_BYTES)
    header = first_header(data[:HEADER_BYTES_MAX], position)
    if not len(header):
        return None
    if header.valid_bytes <= len(data):
        return header if is_intact(data[: header.valid_bytes]) else None
    if position + header.valid_bytes > file.size_bytes():
        return None
    return header if is_intact_at(file, position, header.valid_bytes) else None


def is_written_meanwhile(file: ReadableFile, position: int) -> bool:
    """Return whether a whole batch now stands where none stood: a live broker may have written it meanwhile.

    A broker that preallocates its files writes batches into their zeros.
    """
    for pause_seconds in _PAUSES_S:
        time.sleep(pause_seconds)
        if whole_batch_at(file, position) is not None:
            return True
    return False


def is_zero(file: ReadableFile, position: int, end_position: int) -> bool:
    """Tell whether there are only zeros in a range of a file; holes of a sparse file are not read."""
    buffer = bytearray(min(len(_ZEROS), max(end_position - position, 0)))
    while (data_at := file.data_position(position)) is not None and data_at < end_position:
        wanted_bytes = min(len(buffer), end_position - data_at)
        count = file.read_into(data_at, memoryview(buffer)[:wanted_bytes])
        # bytearray and bytes are compared at the speed of memory, slices of a memoryview are not.
        if (buffer if count == len(buffer) else buffer[:count]) != (_ZEROS if count == len(_ZEROS) else _ZEROS[:count]):
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


def has_wrong_header(file: ReadableFile, position: int, zeros_from: int, end_position: int) -> bool:
    """Tell whether all bytes of a batch are there although its size says that some are missing, or its magic is none.

    The checksum covers neither. So if the checksum is that of the bytes up to the end of the file, or up to the zeros
    of a preallocated file, then the size or the magic is wrong.

    Parameters
    ----------
    position : int
        Where the batch begins.
    zeros_from : int
        Where the zeros begin that end the file, from `data_end`.
    """
    prefix = file.read(position, CHECKSUM_PREFIX_BYTES)
    if len(prefix) < CHECKSUM_PREFIX_BYTES:
        return False
    checksum = RunningChecksum(prefix)
    # One byte at least: the checksum of none is 0, which is what zeros say behind the first bytes of a torn batch.
    end = min(max(zeros_from, position + checksum.covers_from + 1), end_position)
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
    buffer = bytearray(min(_WINDOW_BYTES, max(end_position - position, 0)))
    while position < end_position:
        piece = memoryview(buffer)[: file.read_into(position, memoryview(buffer)[: end_position - position])]
        if not len(piece):
            return
        checksum.add(piece)
        position += len(piece)


def refuse_damaged_batches(file: ReadableFile, headers: BatchHeaders, path: str, hint: str) -> None:
    """Raise `CorruptBatchError` for the first of a few batches with a wrong checksum; they are read one at a time."""
    for batch in headers.table:
        position, batch_bytes = int(batch["position"]), int(batch["batch_bytes"])
        if batch_bytes > LARGE_BATCH_BYTES:
            fault = None if is_intact_at(file, position, batch_bytes) else WRONG_CHECKSUM_REASON
        else:
            fault = checksum_fault(file.read(position, batch_bytes))
        if fault is not None:
            raise CorruptBatchError(fault, path=path, position=position, offset=int(batch["base_offset"]), hint=hint)
