"""Times that users give: milliseconds, or datetimes that say which zone they are in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidOptionError
from sparklog.log.times import to_ms


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
