"""Reads the lineage of a replica: its leader epochs and where they begin.

``leader-epoch-checkpoint`` has it. The batches have their epochs too. They decide if the checkpoint is missing,
damaged or contradicts the last batch: brokers write the checkpoint late after they cut a log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice, pairwise
from typing import Final

import numpy as np

from sparklog.errors import CorruptBatchError, CorruptCheckpointError, InvalidOptionError, PathNotFoundError
from sparklog.log import files
from sparklog.log.checkpoints import parse_leader_epochs
from sparklog.log.places import PartitionFolder
from sparklog.log.segment import Segment
from sparklog.log.sound_batches import last_sound_batch
from sparklog.record.format.headers import BatchHeaders
from sparklog.record.format.v2 import DELETE_HORIZON

Lineage = tuple[tuple[int, int], ...]

_EQUAL_FIELDS: Final = ("base_offset", "last_offset", "record_count", "leader_epoch")


def read_lineage(folder: PartitionFolder, segments: Sequence[Segment]) -> Lineage:
    """Return the leader epochs of a log and their start offsets, both ascending."""
    stored = _stored(folder)
    last = next((found for segment in reversed(segments) if (found := _last_of(segment)) is not None), None)
    if last is None:
        return stored
    epoch, offset = int(last.column("leader_epoch")[0]), int(last.column("base_offset")[0])
    known = [each for each, start in stored if start <= offset]
    if epoch < 0 or (known and known[-1] == epoch):
        return stored
    # The epochs after the last batch have no batch that could contradict them.
    following = [each for each in stored if each[0] > epoch and each[1] > offset]
    return tuple(_of_batches(segments, epoch, offset)) + tuple(following)


def _last_of(segment: Segment) -> BatchHeaders | None:
    with segment.open() as log:
        return last_sound_batch(log)


def _stored(folder: PartitionFolder) -> Lineage:
    """Return the epochs of the checkpoint; none if it is missing, damaged, or does not ascend."""
    path = folder.file(files.LEADER_EPOCH_CHECKPOINT)
    try:
        epochs = tuple(parse_leader_epochs(folder.storage.read_small(path) or b"", path))
    except CorruptCheckpointError:
        return ()
    ascends = all(one[0] < other[0] and one[1] <= other[1] for one, other in pairwise(epochs))
    return epochs if ascends and all(epoch >= 0 and start >= 0 for epoch, start in epochs) else ()


def _of_batches(segments: Sequence[Segment], last_epoch: int, last_offset: int) -> list[tuple[int, int]]:
    """Return the epochs of a log's batches; only segments in which the epoch changes are scanned."""
    firsts = [(segment, first) for segment in segments for first in _headers(segment, 1)]
    epochs = [int(first.column("leader_epoch")[0]) for _, first in firsts]
    found: list[tuple[int, int]] = []
    for (segment, first), (epoch, following) in zip(firsts, pairwise([*epochs, last_epoch]), strict=True):
        for each in [first] if epoch == following else _headers(segment):
            for epoch_there, offset in zip(each.column("leader_epoch"), each.column("base_offset"), strict=True):
                _note(found, int(epoch_there), int(offset))
    _note(found, last_epoch, last_offset)
    return found


def _note(found: list[tuple[int, int]], epoch: int, offset: int) -> None:
    if not found or epoch > found[-1][0]:
        found.append((epoch, offset))


def _headers(segment: Segment, count: int | None = None) -> Iterator[BatchHeaders]:
    """Yield the headers of a segment's first batches, or of all up to the first damage."""
    with suppress(PathNotFoundError, CorruptBatchError), segment.open() as log:
        yield from islice(log.single_headers(log.start), count)


def refuse_another_log(leader: str, one: np.void | None, path: str, other: np.void | None) -> None:
    """Raise `InvalidOptionError` if the last batch that a leader and another replica should share is not the same.

    The cleaner leaves fewer records in a batch, or sets its delete horizon: that proves nothing.

    Parameters
    ----------
    leader, path : str
        The folders of the two logs.
    one, other : void, optional
        Their last batches before the offset to which they agree; rows of a table of headers.
    """
    if one is None or other is None or (one["attributes"] | other["attributes"]) & DELETE_HORIZON:
        return
    if all(one[name] == other[name] for name in _EQUAL_FIELDS) and one["crc"] != other["crc"]:
        raise InvalidOptionError(
            f"{leader} and {path} are no replicas of one log: both have a batch of offsets {one['base_offset']} to "
            f"{one['last_offset']} and of leader epoch {one['leader_epoch']}, and the batches differ. Name the "
            f"directories of one cluster"
        )
