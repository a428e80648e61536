"""SIGKILL to jobs and their workers: every row is moved exactly once, and a cleaning loses none.

`make test-kills` has many, also on Spark.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.kills import KINDS, Killer
from tests.jobs.victims import Victim

KILLS = 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_no_row_is_lost_or_doubled_by_a_kill(tmp_path: Path, kind: type[Victim]) -> None:
    assert Killer(kind, "local", tmp_path / "job", seed=1).run(KILLS).kills == KILLS
