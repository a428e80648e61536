"""Defines the changes that a rewriting makes to batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparklog.record.decode.where_program import Mask
from sparklog.record.format.streams import Int64s

NULL: Final = -1
EMPTY: Final = 0


@dataclass(frozen=True)
class Changes:
    """The changes to make to some batches.

    Attributes
    ----------
    keep : bool array, shape (n_records,), optional
        Whether each record stays; all do by default.
    blank : bool array, shape (n_records,), optional
        Whether the value of each record is replaced; none is by default.
    blank_bytes : int
        `NULL` to replace values by null, `EMPTY` by no bytes.
    codec : str, optional
        Kafka's name of the data batches' new codec; each keeps its own by default. Control batches are never
        compressed.
    level : int, optional
        The level of the codec; None is the codec's default.
    delete_horizons : int64 array, shape (n_batches,), optional
        The time, ms, from which on the tombstones or the marker of each batch of magic 2 may be removed; -1 leaves the
        batch's horizon unchanged, if it has one.
    retain_empty : bool array, shape (n_batches,), optional
        Whether each batch that loses all records, or had none, is kept as an empty one, and not dropped; all are by
        default. Magic 0 and 1 have no empty batches: such batches are dropped.
    """

    keep: Mask | None = None
    blank: Mask | None = None
    blank_bytes: int = NULL
    codec: str | None = None
    level: int | None = None
    delete_horizons: Int64s | None = None
    retain_empty: Mask | None = None
