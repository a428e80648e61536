"""Chooses the partition of each record: from the column ``partition``, else by the key's hash, else a sticky one.

A partitioner is made for one topic and one task, and keeps its state between calls. With the same seed and the same
rows it chooses the same partitions, however the rows are cut into calls, so a task that runs again writes the same.

Source: apache/kafka, KafkaProducer.java (partition), BuiltInPartitioner.java, RoundRobinPartitioner.java; KIP-794.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidOptionError, did_you_mean
from sparklog.record.format.arrays import filled, numbers_of
from sparklog.record.format.streams import Int64s
from sparklog.record.kernels import hash as kernels_hash
from sparklog.values.imports import imported

Int32s = npt.NDArray[np.int32]

_OFFSET_TYPES: Final = (
    (pa.types.is_binary, np.int32),
    (pa.types.is_string, np.int32),
    (pa.types.is_large_binary, np.int64),
    (pa.types.is_large_string, np.int64),
)


class Partitioner(Protocol):
    """Chooses partitions for the rows of one topic, in the order of writing."""

    def partition(self, keys: pa.Array | None, row_bytes: Int64s, partitions: int) -> Int32s:
        """Choose a partition for each row.

        Parameters
        ----------
        keys : pyarrow.Array of binary or string, length n_rows, optional
            The keys; None if no row has one.
        row_bytes : int64 array, shape (n_rows,)
            The approximate size of each record, uncompressed; from `row_bytes`.
        partitions : int
            How many partitions the topic has.

        Returns
        -------
        int32 array, shape (n_rows,)
            The partitions, each at least 0 and below ``partitions``.
        """


class PartitionerFactory(Protocol):
    """Makes a partitioner; a class can be one.

    ``seed`` differs between tasks; ``batch_bytes`` is ``batch.size``.
    """

    def __call__(self, *, seed: int, batch_bytes: int) -> Partitioner: ...


class DefaultPartitioner:
    """Chooses as Kafka's producer does: by the hash of the key; rows without a key stay together for a batch.

    Rows with a null key go to a random partition until they make up ``batch_bytes``, then to another random one, which
    may be the same. An empty key is a key.
    """

    def __init__(self, *, seed: int, batch_bytes: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._batch_bytes = max(1, batch_bytes)
        self._partition: int | None = None
        self._partition_bytes = 0

    def partition(self, keys: pa.Array | None, row_bytes: Int64s, partitions: int) -> Int32s:
        if keys is None or keys.null_count == len(keys):
            return self._stick(row_bytes, partitions)
        chosen = partitions_of_keys(keys, partitions)
        if keys.null_count:
            no_key = numbers_of(keys.is_null())
            chosen[no_key] = self._stick(row_bytes[no_key], partitions)
        return chosen

    def _stick(self, row_bytes: Int64s, partitions: int) -> Int32s:
        chosen = np.empty(len(row_bytes), dtype=np.int32)
        end_bytes = np.cumsum(row_bytes)
        row = start_bytes = 0
        while row < len(chosen):
            if self._partition is None or self._partition >= partitions:
                self._partition, self._partition_bytes = int(self._rng.integers(partitions)), 0
            missing_bytes = self._batch_bytes - self._partition_bytes
            # The row that makes the batch full still belongs to it.
            last_row = int(np.searchsorted(end_bytes, start_bytes + missing_bytes))
            end_row = min(last_row + 1, len(chosen))
            chosen[row:end_row] = self._partition
            self._partition_bytes += int(end_bytes[end_row - 1]) - start_bytes
            row, start_bytes = end_row, int(end_bytes[end_row - 1])
            if self._partition_bytes >= self._batch_bytes:
                self._partition = None
        return chosen


class RoundRobinPartitioner:
    """Chooses one partition after the other, whatever the keys; ``start`` is the number of the first."""

    def __init__(self, *, start: int = 0) -> None:
        self._next = start

    def partition(self, keys: pa.Array | None, row_bytes: Int64s, partitions: int) -> Int32s:  # noqa: ARG002
        first = self._next % partitions
        self._next += len(row_bytes)
        return ((first + np.arange(len(row_bytes))) % partitions).astype(np.int32)


def _round_robin(*, seed: int, batch_bytes: int) -> Partitioner:  # noqa: ARG001
    # If all tasks began at 0, many small ones would leave the last partitions empty.
    return RoundRobinPartitioner(start=seed)


_BUILT_IN: Final[Mapping[str, PartitionerFactory]] = MappingProxyType(
    {"default": DefaultPartitioner, "roundRobin": _round_robin}
)


def make_partitioner(name: str, *, seed: int, batch_bytes: int) -> Partitioner:
    """Make a partitioner by its name.

    Parameters
    ----------
    name : str
        ``default``, ``roundRobin``, or ``package.module:Name`` of a `PartitionerFactory`.
    seed : int
        A number of at least 0, the same for every attempt of a task, and another for each task.
    batch_bytes : int
        Rows without a key go to another partition after this many bytes: ``batch.size``.

    Raises
    ------
    InvalidOptionError
        There is no such partitioner, it cannot be imported or made, or it is not a partitioner.
    """
    factory = _BUILT_IN[name] if name in _BUILT_IN else _imported(name)
    try:
        made: Any = factory(seed=seed, batch_bytes=batch_bytes)
    except Exception as error:
        raise InvalidOptionError(
            f"the partitioner {name!r} cannot be made with seed and batch_bytes: {error!r}"
        ) from error
    if not callable(getattr(made, "partition", None)):
        raise InvalidOptionError(f"the partitioner {name!r} has no method partition(keys, row_bytes, partitions)")
    return made  # type: ignore[no-any-return]


def _imported(name: str) -> PartitionerFactory:
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        hint = did_you_mean(name, list(_BUILT_IN), "say default, roundRobin, or package.module:Name")
        raise InvalidOptionError(f"no partitioner {name!r}: {hint}")
    factory: PartitionerFactory = imported(name, "the partitioner")
    return factory


def assign_partitions(
    partitioner: Partitioner, explicit: pa.Array | None, keys: pa.Array | None, row_bytes: Int64s, partitions: int
) -> Int32s:
    """Choose a partition for each row: the one named by the row, else by the partitioner.

    Parameters
    ----------
    partitioner : Partitioner
        The partitioner, called only for the rows that name no partition.
    explicit : pyarrow.Array of integers, length n_rows, optional
        The column ``partition``; null if a row names none.
    keys, row_bytes, partitions
        See `Partitioner.partition`.

    Returns
    -------
    int32 array, shape (n_rows,)

    Raises
    ------
    InvalidOptionError
        A row or the partitioner names a partition that the topic does not have.
    """
    if explicit is None or explicit.null_count == len(explicit):
        return _asked(partitioner, keys, row_bytes, partitions)
    if not pa.types.is_integer(explicit.type):
        raise InvalidOptionError(f"the column partition must be of integers, and is of {explicit.type}")
    named = numbers_of(explicit.is_valid())
    numbers = numbers_of(filled(explicit, 0))
    _check_range(numbers, partitions, "the column partition")
    chosen: Int32s = numbers.astype(np.int32)
    if explicit.null_count:
        others = None if keys is None else keys.filter(explicit.is_null())
        chosen[~named] = _asked(partitioner, others, row_bytes[~named], partitions)
    return chosen


def _asked(partitioner: Partitioner, keys: pa.Array | None, row_bytes: Int64s, partitions: int) -> Int32s:
    """Call a partitioner, which may be a user's own, and check what it returns."""
    name = type(partitioner).__name__
    chosen = np.asarray(partitioner.partition(keys, row_bytes, partitions))
    if chosen.shape != row_bytes.shape or chosen.dtype.kind not in "iu":
        raise InvalidOptionError(
            f"the partitioner {name} must return an integer for each of {len(row_bytes)} rows, "
            f"and returned an array of {chosen.dtype} and shape {chosen.shape}"
        )
    _check_range(chosen, partitions, f"the partitioner {name}")
    return chosen.astype(np.int32, copy=False)


def _check_range(chosen: npt.NDArray[Any], partitions: int, source: str) -> None:
    wrong = np.flatnonzero((chosen < 0) | (chosen >= partitions))
    if len(wrong):
        row = int(wrong[0])
        raise InvalidOptionError(
            f"{source} says {chosen[row]} in row {row}, and the topic's partitions are 0 to {partitions - 1}"
        )


def key_hashes(keys: pa.Array) -> Int32s:
    """Hash each key as Kafka does.

    Parameters
    ----------
    keys : pyarrow.Array of binary or string, length n_rows
        The keys; text is hashed as UTF-8.

    Returns
    -------
    int32 array, shape (n_rows,)
        The hashes, with Java's sign. A null is hashed like an empty key; do not use its hash.
    """
    hashes = np.empty(len(keys), dtype=np.int32)
    offset_type = next((dtype for is_type, dtype in _OFFSET_TYPES if is_type(keys.type)), None)
    if offset_type is None:
        raise InvalidOptionError(f"keys must be binary or string, and are {keys.type}")
    if not len(keys):
        return hashes
    _, offsets, values = keys.buffers()
    places = np.frombuffer(offsets, dtype=offset_type)[keys.offset : keys.offset + len(keys) + 1]
    buffer = np.frombuffer(values or b"", dtype=np.uint8)
    if not kernels_hash.murmur2(buffer, places, hashes):
        raise InvalidOptionError("the keys are not a valid Arrow array: an offset is outside its buffer")
    return hashes


def partitions_of_keys(keys: pa.Array, partitions: int) -> Int32s:
    """Return the partition of each key; do not use the partitions of nulls."""
    return (key_hashes(keys) & np.int32(0x7FFFFFFF)) % np.int32(partitions)


def row_bytes(columns: list[pa.Array], rows: int) -> Int64s:
    """Return how many bytes the binary or string columns have in each row; a null has none."""
    total = np.zeros(rows, dtype=np.int64)
    for column in columns:
        total += numbers_of(filled(pc.binary_length(column), 0))
    return total
