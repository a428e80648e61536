"""Times as people write them."""

from __future__ import annotations

import pytest

from sparklog.log.times import iso_milliseconds


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:00.001Z", 1),
        ("1970-01-01T00:00:00.0001Z", 1),
        ("1969-12-31T23:59:59.9995Z", 0),
        ("1970-01-01T00:00:00+01:00", -3_600_000),
        ("0001-01-01T00:00:00+23:59", -62135683140000),
        ("9999-12-31T23:59:59.999-23:59", 253402387139999),
        (" 2026-03-02 09:00 ", 1_772_442_000_000),
        ("", None),
        ("soon", None),
        ("1", None),
        ("20260302", None),
        ("1" * 5000, None),
        ("2026-W10-1", None),
        ("2026-02-30", None),
        ("2026-03-02T09:00:00 Europe/Paris", None),
    ],
)
def test_time_is_the_first_millisecond_not_before_it(text: str, milliseconds: int | None) -> None:
    assert iso_milliseconds(text) == milliseconds
