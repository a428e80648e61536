"""Times that users give: milliseconds, datetimes that say which zone they are in, or ISO 8601."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidOptionError
from sparklog.log.clock import iso_milliseconds, to_ms


@given(st.integers(-(2**45), 2**45), st.integers(-14, 14))
def test_datetime_of_any_zone_is_its_milliseconds(ms: int, hours: int) -> None:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    assert to_ms(at.astimezone(timezone(timedelta(hours=hours)))) == ms
    assert to_ms(ms) == to_ms(np.int64(ms)) == ms


@pytest.mark.parametrize(("micros", "ms"), [(0, 0), (1, 1), (999, 1), (1000, 1), (-1, 0), (-1000, -1)])
def test_time_between_two_milliseconds_is_the_later_one(micros: int, ms: int) -> None:
    assert to_ms(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)) == ms


def test_datetime_without_a_zone_is_refused_with_what_to_write() -> None:
    with pytest.raises(InvalidOptionError, match=r"timestamp has no time zone.*2024-01-02 00:00:00\+00:00"):
        to_ms(datetime(2024, 1, 2))


@pytest.mark.parametrize("time", [1.5, "2024-01-01", None])
def test_what_is_no_time_is_refused(time: Any) -> None:
    with pytest.raises(InvalidOptionError, match="timestamp must be a datetime"):
        to_ms(time)


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
