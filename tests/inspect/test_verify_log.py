"""Looking again at what a broker may be in the middle of."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparklog.inspect import verify_log
from sparklog.inspect.verify_log import Event, agreed_findings
from sparklog.inspect.verify_segment import Finding, Severity, VerifyProgress

FIRST, SECOND = (Finding(Severity.ERROR, "not-a-batch", "/f", "what", position) for position in (1, 2))
NOTE = Finding(Severity.NOTE, "torn-tail", "/f", "what", 3)
DONE = VerifyProgress("/f", 10)


class Looks:
    """Gives one list of events after another, and the last one for ever."""

    def __init__(self, *looks: list[Event]) -> None:
        self._looks = list(looks)
        self.count = 0

    def __call__(self) -> Iterator[Event]:
        self.count += 1
        return iter(self._looks.pop(0) if len(self._looks) > 1 else self._looks[0])


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_log, "_PAUSE_S", 0)


@pytest.mark.parametrize(
    ("looks", "reported", "count"),
    [
        ([[DONE, NOTE]], [DONE, NOTE], 1),
        ([[FIRST, DONE], [FIRST, DONE]], [DONE, FIRST], 2),
        ([[FIRST], []], [], 2),
        ([[FIRST, SECOND], [SECOND]], [SECOND], 2),
        ([[FIRST], [SECOND], [FIRST, NOTE], []], [], 4),
        ([[FIRST], [SECOND]], [], 5),
    ],
)
def test_only_what_two_looks_agree_on_is_reported(looks: list[list[Event]], reported: list[Event], count: int) -> None:
    look = Looks(*looks)
    assert list(agreed_findings(look)) == reported
    assert look.count == count


def test_what_cannot_change_is_looked_at_once() -> None:
    look = Looks([FIRST, NOTE])
    assert list(agreed_findings(look, lambda: True)) == [FIRST, NOTE]
    assert look.count == 1


def test_more_findings_than_are_held_are_reported_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_log, "_FINDINGS_HELD_MAX", 2)
    look = Looks([FIRST, SECOND, FIRST, DONE, NOTE])
    assert list(agreed_findings(look)) == [FIRST, SECOND, FIRST, DONE, NOTE]
    assert look.count == 1
