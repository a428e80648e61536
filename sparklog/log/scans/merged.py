"""Scans a log merged from replicas: the leader's batches, and from the others in turn the offsets that it lacks.

It does not matter how a replica lacks them: a checksum or an offset is wrong, a segment is missing, or a file cannot be
read. Where a batch with a right checksum has an offset that does not fit, its neighbour's may be the wrong one, since
no checksum covers it: the neighbours are then read from another replica as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from sparklog.errors import CorruptBatchError, CorruptLogError, DataLossError, SeglogError, StorageError
from sparklog.log.damage_rows import DamagedStretch
from sparklog.log.layout import PartitionLayout
from sparklog.log.replicas.lineage import Replica
from sparklog.log.segment import Segment
from sparklog.log.sound_batches import WRONG_OFFSET_REASON
from sparklog.log.windows import Window
from sparklog.record.format.headers import BatchHeaders

_log = logging.getLogger("sparklog")


@dataclass(frozen=True, slots=True)
class MissingOffsets:
    """Offsets that a replica, or all, do not have or cannot read; without an error, they may never have had records."""

    first_offset: int
    end_offset: int
    error: SeglogError | None


RangeScan = Callable[[PartitionLayout, int, int], Iterator[tuple[Segment, Window] | DamagedStretch]]
_Source = tuple[Replica, PartitionLayout]
_Piece = tuple[Segment, Window] | MissingOffsets


def merged_pieces(layout: PartitionLayout, start_offset: int, end_offset: int, scan: RangeScan) -> Iterator[_Piece]:
    """Scan a range of a log merged from replicas.

    Parameters
    ----------
    scan : callable
        Scans a range of the log of one replica past damage.

    Yields
    ------
    (Segment, Window) or MissingOffsets
        Checked batches, and the offsets that no replica has, with the error of one of them; all in offset order.
    """
    sources = list(zip(layout.replicas, layout.copies, strict=True))
    healed: list[MissingOffsets] = []
    whole = MissingOffsets(max(start_offset, layout.start_offset), end_offset, None)
    try:
        yield from _healed(scan, sources, whole, whole, healed)
    finally:
        if healed:
            first, places = healed[0], "place was" if len(healed) == 1 else "places were"
            _log.warning(
                "%s: %d damaged %s read from other replicas, the first at offsets [%d, %d): %s",
                *(layout.folder.name, len(healed), places, first.first_offset, first.end_offset, first.error),
            )


def _healed(
    scan: RangeScan,
    sources: Sequence[_Source],
    wanted: MissingOffsets,
    whole: MissingOffsets,
    healed: list[MissingOffsets],
    before: Sequence[MissingOffsets] = (),
) -> Iterator[_Piece]:
    """Scan offsets of the whole range that all replicas before these lack; ``before`` says how each lacks them."""
    for piece in _of_replica(scan, *sources[0], wanted.first_offset, wanted.end_offset):
        if not isinstance(piece, MissingOffsets):
            if before:
                _refuse_overlap(*piece, wanted, whole)
            yield piece
            continue
        lacking = (*before, piece)
        if len(sources) > 1:
            if not before and isinstance(piece.error, (CorruptLogError, StorageError)):
                healed.append(piece)
            yield from _healed(scan, sources[1:], piece, whole, healed, lacking)
            continue
        if any(each.error is None for each in lacking):
            # A replica that is sound there has no record: a cleaner has removed them, or there never was one.
            continue
        error = next((each.error for each in lacking if isinstance(each.error, CorruptLogError)), lacking[0].error)
        yield MissingOffsets(piece.first_offset, piece.end_offset, error)


def _refuse_overlap(segment: Segment, window: Window, wanted: MissingOffsets, whole: MissingOffsets) -> None:
    """Raise if batches that fill a gap overlap those beside it: one of the batches has wrong offsets."""
    first, last = window.headers.table[0], window.headers.table[-1]
    is_early = first["base_offset"] < wanted.first_offset > whole.first_offset
    is_late = last["last_offset"] >= wanted.end_offset < whole.end_offset
    if is_early or is_late:
        wrong = first if is_early else last
        raise CorruptBatchError(
            f"a batch of offsets {wrong['base_offset']} to {wrong['last_offset']} overlaps one of another replica, "
            f"which lacks offsets [{wanted.first_offset}, {wanted.end_offset}): the offset of one of them is wrong",
            path=segment.path(),
            position=int(wrong["position"]),
            offset=int(wrong["base_offset"]),
        )


def _of_replica(
    scan: RangeScan, replica: Replica, layout: PartitionLayout, start_offset: int, end_offset: int
) -> Iterator[_Piece]:
    """Scan a range of one replica, and yield also the offsets that it lacks."""
    reach, offset = min(end_offset, replica.agreed_offset), start_offset
    while offset < reach:
        damage: list[DamagedStretch] = []
        failure: SeglogError | None = None
        upper_offset = reach
        try:
            for part in scan(layout, offset, reach) if offset >= layout.start_offset else ():
                if isinstance(part, DamagedStretch):
                    damage.append(part)
                    continue
                for piece in _parts(*part, offset, damage, replica.log.is_compacted):
                    yield piece
                    if not isinstance(piece, MissingOffsets):
                        offset = int(piece[1].headers.column("last_offset")[-1]) + 1
                        damage = []
        except StorageError as error:
            failure, upper_offset = error, min(layout.segments[layout.segment_of(offset)].upper_offset, reach)
        except SeglogError as error:
            failure = error
        if offset < layout.start_offset:
            upper_offset = min(layout.start_offset, reach)
            failure = _missing_from(layout, offset, upper_offset)
        failure = failure or (_error_of(damage[0]) if damage else None)
        if offset < upper_offset and (failure is not None or not replica.log.is_compacted):
            yield MissingOffsets(offset, upper_offset, failure)
        offset = max(offset, upper_offset)
    if offset < end_offset:
        yield MissingOffsets(offset, end_offset, _missing_from(layout, offset, end_offset))


def _parts(
    segment: Segment, window: Window, offset: int, damage: Sequence[DamagedStretch], is_compacted: bool
) -> Iterator[_Piece]:
    """Cut a window at the offsets that it lacks, and leave out the neighbours of a batch with a wrong offset.

    A gap between batches is natural in a compacted log. In any other, a segment may be lost without a trace, so the
    other replicas are asked for the offsets.
    """
    doubted = [each for each in damage if each.reason == WRONG_OFFSET_REASON]
    is_sure = np.ones(len(window.headers), dtype=bool)
    for row in _rows_after(doubted, segment, window.headers):
        is_sure[max(row - 1, 0) : row + 1] = False
    headers = window.headers.where(is_sure)
    if not len(headers):
        return
    bases = headers.column("base_offset")
    ends = np.append(offset, headers.column("last_offset") + 1)
    # A compressed wrapper of magic 0 or 1 does not say its first offset.
    has_gap = (bases > ends[:-1]) & (headers.column("record_count") >= 0) & (not is_compacted)
    rows = _rows_after(damage, segment, headers)
    # The first stretch before a row counts.
    causes = {row: each for row, each in zip(reversed(rows), reversed(damage), strict=True) if row < len(headers)}
    cuts = sorted({0, *np.flatnonzero(has_gap).tolist(), *causes})
    for row, following in pairwise([*cuts, len(headers)]):
        if ends[row] < bases[row] and (has_gap[row] or row in causes):
            cause = _error_of(causes[row]) if row in causes else None
            yield MissingOffsets(int(ends[row]), int(bases[row]), cause)
        yield segment, Window(window.buffer, headers[row:following])


def _rows_after(damage: Sequence[DamagedStretch], segment: Segment, headers: BatchHeaders) -> list[int]:
    """Return the row of the first batch after each stretch."""
    path = segment.path()
    positions = [each.position if each.file == path else 0 for each in damage]
    rows: list[int] = np.searchsorted(headers.column("position"), positions).tolist()
    return rows


def _error_of(stretch: DamagedStretch) -> SeglogError:
    if stretch.length_bytes:
        return CorruptBatchError(
            stretch.reason, path=stretch.file, position=stretch.position, offset=stretch.first_offset
        )
    return DataLossError(
        f"offsets [{stretch.first_offset}, {stretch.end_offset}) of {stretch.file} are lost: {stretch.reason}"
    )


def _missing_from(layout: PartitionLayout, start_offset: int, end_offset: int) -> DataLossError:
    return DataLossError(
        f"offsets [{start_offset}, {end_offset}) are not in {layout.path}, which has "
        f"[{layout.start_offset}, {layout.end_offset}) of the log"
    )
