"""Which measurements are run by their names."""

from __future__ import annotations

import pytest

from tests.bench.__main__ import MEASUREMENTS, apart, chosen


def test_named_measurements_are_run_and_no_other() -> None:
    assert chosen([]) == list(MEASUREMENTS)
    found = ["scale_small", "spark_read", "spark_read --memory", "scale_read", "scale"]
    assert chosen(["scale", "spark_read"]) == found


def test_unknown_name_is_told_with_those_that_there_are() -> None:
    with pytest.raises(SystemExit, match=r"no measurement 'scael': there is plan, .*scale, "):
        chosen(["plan", "scael"])


def test_options_after_a_name_are_those_of_the_measurement() -> None:
    assert apart(["large", "--only", "groups", "--sizes", "1,2"]) == (["large"], ["--only", "groups", "--sizes", "1,2"])
    assert apart(["plan", "scale"]) == (["plan", "scale"], [])
