"""Keeps the last offset of each key in bounded memory, for compaction."""

from __future__ import annotations

import secrets
from typing import Any, Final

import numpy as np

from sparklog.errors import CorruptBatchError, InvalidOptionError
from sparklog.record.format.streams import Int64s, Octets
from sparklog.record.kernels import offset_map as kernels_offset_map
from sparklog.record.kernels.offset_map import BLOCK_RECORDS, SLOT_BYTES, SLOT_WORDS

DEDUPE_BUFFER_BYTES: Final = 128 << 20
"""Kafka's ``log.cleaner.dedupe.buffer.size``."""

LOAD_FACTOR: Final = 0.9
"""Kafka's ``log.cleaner.io.buffer.load.factor``: the part of the slots that may be used."""

_SLOTS_MAX: Final = (1 << 32) - 1
# The map of a log with few keys stays in the processor's cache. Only during its last growth, a quarter of its memory is
# there twice.
_FIRST_SLOTS: Final = 1 << 14
_GROWTH: Final = 4
_OUTSIDE_REASON: Final = "a record's key is not in the bytes of its batch"


class OffsetMap:
    """A map from keys to offsets, with a limit on the keys; a key is identified by 128 bits of its hash.

    Keys with the same bits are taken for one, as in Kafka's cleaner. Each map has its own random seed of the hash, so
    that nobody can make keys that collide.

    Parameters
    ----------
    buffer_bytes : int
        The most memory of its slots, 24 bytes each; it grows as keys come.
    load_factor : float
        The part of the slots that may be used.

    Attributes
    ----------
    size : int
        The number of keys in it.
    latest_offset : int
        The last offset up to which all records are in it; set by the caller, -1 at the beginning.

    Raises
    ------
    InvalidOptionError
        There is no room for two keys, or the load factor is not between 0 and 1.
    """

    def __init__(self, buffer_bytes: int = DEDUPE_BUFFER_BYTES, load_factor: float = LOAD_FACTOR) -> None:
        slots = min(buffer_bytes // SLOT_BYTES, _SLOTS_MAX)
        if not 0 < load_factor <= 1:
            raise InvalidOptionError(f"log.cleaner.io.buffer.load.factor must be above 0 and at most 1: {load_factor}")
        self._load_factor = load_factor
        self.size_max = self._size_max_of(slots)
        if self.size_max < 2:
            raise InvalidOptionError(
                f"log.cleaner.dedupe.buffer.size of {buffer_bytes} bytes has no room for two keys: raise it"
            )
        self._slot_count = slots
        self._seed = np.frombuffer(secrets.token_bytes(16), dtype=np.uint64)
        self._block = np.empty(2 * BLOCK_RECORDS, dtype=np.uint64)
        self.clear()

    def clear(self) -> None:
        """Forget all keys."""
        self.size, self.latest_offset = 0, -1
        self._slots = _empty_slots(min(_FIRST_SLOTS, self._slot_count))

    def _size_max_of(self, slots: int) -> int:
        # One slot stays empty, so that a search ends.
        return min(int(slots * self._load_factor), slots - 1)

    def _grow(self) -> None:
        larger = _empty_slots(min(_GROWTH * len(self._slots) // SLOT_WORDS, self._slot_count))
        if not kernels_offset_map.move_keys(self._slots, larger):
            raise AssertionError("a full map does not grow")
        self._slots = larger

    @property
    def is_full(self) -> bool:
        """Whether no further record with a key can be added."""
        return self.size >= self.size_max

    def put(self, octets: Octets, keys: Int64s, lengths: Int64s, offsets: Int64s, start_offset: int = 0) -> int:
        """Put records in offset order; a later offset replaces an earlier one of the same key.

        Parameters
        ----------
        octets : uint8 array
            The bytes that hold the keys.
        keys, lengths, offsets : int64 array, length n_records
            The position of each record's key, its length (-1 for null), and the record's offset. Records with a null
            key are skipped.
        start_offset : int
            Records below this offset are skipped as well.

        Returns
        -------
        int
            How many of the records are done; the next one, if any, has a key and found the map full.
        """
        done = 0
        while True:
            slots = self._slots
            size_max = self._size_max_of(len(slots) // SLOT_WORDS)
            rows, self.size = kernels_offset_map.put_keys(
                octets, keys[done:], lengths[done:], offsets[done:], start_offset, self._seed, slots, self.size,
                size_max, self._block,
            )  # fmt: skip
            if rows == kernels_offset_map.BAD_KEY:
                raise CorruptBatchError(_OUTSIDE_REASON)
            done += int(rows)
            if done == len(offsets) or len(slots) == self._slot_count * SLOT_WORDS:
                return done
            self._grow()

    def find(self, octets: Octets, keys: Int64s, lengths: Int64s, found: Int64s) -> None:
        """Write the offset of each record's key to ``found``; -1 if the map does not have it or it is null."""
        if not kernels_offset_map.find_keys(octets, keys, lengths, self._seed, self._slots, self._block, found):
            raise CorruptBatchError(_OUTSIDE_REASON)


def _empty_slots(count: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    # Pages of zeros that are never written cost nothing.
    return np.zeros(count * SLOT_WORDS, dtype=np.uint64)
