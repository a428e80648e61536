"""The short run of the mutation harness; the long one is ``make fuzz``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.fuzz.cases import Workbench
from tests.fuzz.run import run

READING_HOLDS: Final[tuple[str, ...]] = ("*",)
"""The categories of damage by which no reader is misled, as patterns of ``<kind>/<family>``; ``("*",)`` is all."""

OPENING_HOLDS: Final[tuple[str, ...]] = ("*",)
"""Those by which no writer that opens a log is misled."""

READ: Final = 400
OPENED: Final = 300
SEED: Final = 1


def test_no_damaged_log_is_read_in_silence(tmp_path: Path) -> None:
    tally = run(Workbench(tmp_path), SEED, range(READ), READING_HOLDS, saved=tmp_path / "saved")
    assert not tally.kinds, "\n".join(tally.lines())
    assert tally.cases == READ


def test_no_damaged_log_is_opened_to_write_and_cut_where_it_must_not_be(tmp_path: Path) -> None:
    tally = run(Workbench(tmp_path), SEED, range(OPENED), OPENING_HOLDS, writing=True, saved=tmp_path / "saved")
    assert not tally.kinds, "\n".join(tally.lines())
    assert tally.cases == OPENED
