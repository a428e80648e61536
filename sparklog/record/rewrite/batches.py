"""Rewrites batches: without some of their records, or with other values, another codec or a delete horizon.

An unchanged batch is passed on as its bytes. From other batches compiled code copies the remaining records, which keep
their offsets and timestamps.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from sparklog.record.codecs.table import CODEC_IDS
from sparklog.record.decode.where_program import Mask
from sparklog.record.format import v2
from sparklog.record.format.streams import Int64s
from sparklog.record.kernels.spans import VALUE_BYTES
from sparklog.record.rewrite.changes import Changes
from sparklog.record.rewrite.new_batches import new_batches, new_messages
from sparklog.record.rewrite.spans import RecordSpans

_SAME, _NEW, _GONE = range(3)


def rewritten(spans: RecordSpans, changes: Changes) -> Iterator[memoryview]:
    """Rewrite batches according to some changes.

    Parameters
    ----------
    spans : RecordSpans
        The batches, of magic 2 or of magic 0 and 1, by `sparklog.record.rewrite.spans.record_spans`.
    changes : Changes
        The changes; the masks have a value for each record or batch of the spans.

    Yields
    ------
    memoryview
        Whole batches, in order. Unchanged ones are a part of ``spans.buffer``.

    Raises
    ------
    InvalidOptionError
        A batch of magic 0 or 1 cannot have the codec.
    """
    if not len(spans):
        return
    counts = np.diff(spans.batch_ends, prepend=0)
    left = counts if changes.keep is None else _counted(spans, changes.keep)
    is_retained = spans.headers.column("magic") == 2
    if changes.retain_empty is not None:
        is_retained &= changes.retain_empty
    is_gone = (left == 0) & ~is_retained
    fates = np.where(is_gone, _GONE, np.where(_is_new(spans, changes, counts, left), _NEW, _SAME))
    chosen = np.flatnonzero(fates == _NEW)
    new: list[memoryview] = []
    if len(chosen):
        is_modern = spans.headers.column("magic")[0] == 2
        new = new_batches(spans, changes, chosen) if is_modern else new_messages(spans, changes, chosen)
    yield from _interleaved(spans, fates, new)


def _counted(spans: RecordSpans, mask: Mask) -> Int64s:
    """Count for each batch the records for which a mask is true."""
    sums = np.concatenate(([0], np.cumsum(mask, dtype=np.int64)))
    counted: Int64s = np.diff(sums[spans.batch_ends], prepend=0)
    return counted


def _is_new(spans: RecordSpans, changes: Changes, counts: Int64s, left: Int64s) -> Mask:
    """Return for each batch whether it has to be written again."""
    headers = spans.headers
    is_new = left < counts
    if changes.blank is not None:
        is_new |= _counted(spans, changes.blank & (spans.table[:, VALUE_BYTES] != changes.blank_bytes)) > 0
    if changes.codec is not None:
        is_plain = (headers.column("magic") < 2) & (headers.codec_ids == 0)
        is_other = headers.codec_ids != CODEC_IDS[changes.codec]
        is_new |= is_other & (left > 0) & ~headers.is_control & ~is_plain
    if changes.delete_horizons is not None:
        has_horizon = headers.column("attributes") & v2.DELETE_HORIZON != 0
        is_other = ~has_horizon | (headers.column("base_timestamp") != changes.delete_horizons)
        is_new |= (changes.delete_horizons >= 0) & is_other & (left > 0) & (headers.column("magic") == 2)
    mask: Mask = is_new
    return mask


def _interleaved(spans: RecordSpans, fates: Int64s, new: list[memoryview]) -> Iterator[memoryview]:
    """Yield unchanged batches, in runs as long as possible, and the new ones between them."""
    starts = spans.headers.column("position") - spans.headers.origin
    ends = starts + spans.headers.column("batch_bytes")
    follows = (fates[1:] == fates[:-1]) & ((starts[1:] == ends[:-1]) | (fates[1:] != _SAME))
    borders = [0, *(np.flatnonzero(~follows) + 1).tolist(), len(fates)]
    done = 0
    for first, end in pairwise(borders):
        if fates[first] == _SAME:
            yield spans.buffer[starts[first] : ends[end - 1]]
        elif fates[first] == _NEW:
            yield from new[done : done + end - first]
            done += end - first
