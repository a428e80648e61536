"""Defines the policy of a read about damage, and a damaged stretch: the bytes and offsets that are lost.

Planning imports this module, so it does not import pyarrow; `sparklog.log.reads.damage_table` makes the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from sparklog.errors import InvalidOptionError

OnDamage = Literal["fail", "skip", "best_effort"]
UnknownFate = Literal["drop", "keep"]


@dataclass(frozen=True, slots=True)
class DamagedStretch:
    """Consecutive bytes of a segment's file that cannot be read, or offsets whose bytes are gone.

    Attributes
    ----------
    topic : str
    partition : int or None
        None for a folder whose name is no partition's.
    file : str
        The path of the segment's file.
    position, length_bytes : int
        The position of the first byte, and the number of bytes; 0 bytes if the file itself, or its end, is missing.
    first_offset, end_offset : int
        The offsets that the bytes may have held, the end exclusive.
    reason : str
    """

    topic: str
    partition: int | None
    file: str
    position: int
    length_bytes: int
    first_offset: int
    end_offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class DamagePolicy:
    """Says how a read treats damage.

    Attributes
    ----------
    on_damage : {"fail", "skip", "best_effort"}
        ``fail`` stops at the first damage. ``skip`` leaves out what cannot be read. ``best_effort`` also gives the
        records that decode of a batch whose checksum differs.
    unknown : {"drop", "keep"}
        Whether ``read_committed`` leaves out or gives the records of a transaction whose marker may be lost.

    Raises
    ------
    InvalidOptionError
        There is no such policy.
    """

    on_damage: OnDamage = "fail"
    unknown: UnknownFate = "drop"

    def __post_init__(self) -> None:
        _refuse_unknown("on_damage", self.on_damage, get_args(OnDamage))
        _refuse_unknown("unknown", self.unknown, get_args(UnknownFate))

    @property
    def is_fail(self) -> bool:
        return self.on_damage == "fail"

    @property
    def is_best_effort(self) -> bool:
        return self.on_damage == "best_effort"


def _refuse_unknown(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidOptionError(f"{name} is {value!r}, and must be {', '.join(known[:-1])} or {known[-1]}")


FAIL: Final = DamagePolicy()
