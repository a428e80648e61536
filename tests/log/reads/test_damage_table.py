"""The table of damage: one row a stretch, nothing lost on the way, and the same columns without any row."""

from __future__ import annotations

from sparklog.log.damage_rows import DamagedStretch
from sparklog.log.reads.damage_table import DAMAGE_SCHEMA, damage_table


def test_table_has_a_row_for_each_stretch_in_order() -> None:
    first = DamagedStretch("events", 3, "/logs/events-3/00000000000000000000.log", 61, 512, 7, 9, "zeros")
    second = DamagedStretch(
        "copy of events", None, "/logs/copy of events/00000000000000000009.log", 0, 0, 9, 12, "gone"
    )
    table = damage_table([first, second])
    assert table.schema == DAMAGE_SCHEMA
    assert [DamagedStretch(**row) for row in table.to_pylist()] == [first, second]


def test_no_damage_is_a_table_of_no_rows() -> None:
    table = damage_table([])
    assert (table.schema, table.num_rows) == (DAMAGE_SCHEMA, 0)
