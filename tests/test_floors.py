"""The oldest versions that are tested are the oldest that are allowed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
# They check the code, and are no part of what runs.
CHECKERS = {"mypy", "ruff"}


def test_floors_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    wanted += project["optional-dependencies"]["test"]
    allowed = dict(
        re.findall(r"^([a-z0-9-]+)(?:\[[a-z,-]+\])?>=([0-9.]+)(?:,<[0-9.]+)?$", "\n".join(wanted), re.MULTILINE)
    )
    assert len(allowed) == len(set(wanted))
    tested = dict(re.findall(r"^([a-z0-9-]+)==(\S+)$", (ROOT / "conf/floors.txt").read_text(), re.MULTILINE))
    assert allowed.keys() - CHECKERS <= tested.keys()
    for name in allowed.keys() - CHECKERS:
        assert tested[name] == allowed[name] or tested[name].startswith(f"{allowed[name]}."), name


def test_numba_is_capped_behind_the_version_whose_private_interface_is_tested() -> None:
    (cap,) = re.findall(r'"numba>=[0-9.]+,<0\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    (tested,) = re.findall(r"^numba==0\.(\d+)\.", (ROOT / "conf/constraints.txt").read_text(), re.MULTILINE)
    assert int(cap) == int(tested) + 1
