"""What came of one question to a damaged log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

EQUAL: Final = "equal"
REFUSED: Final = "refused"


@dataclass(frozen=True)
class Verdict:
    """What came of a question: `outcome` in a word or two, and, where no rule allows it, the `finding`."""

    outcome: str
    finding: str | None = None
