"""How a property is declared: its name, default and bound, its other spellings, what it does and where it does that."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from sparklog.errors import InvalidOptionError

LONG_MAX: Final = (1 << 63) - 1
UNLIMITED: Final = -1

APPEND: Final = "append"
COMMIT: Final = "commit"
READ: Final = "read"


class Spelling(NamedTuple):
    """A broker's name of a property; ``unit`` is what its values are multiplied by."""

    name: str
    unit: int = 1


@dataclass(frozen=True)
class Property:
    """What `option` declares. The type of the default is the type of the value."""

    name: str
    default: bool | int | float | str | tuple[str, ...]
    doc: str
    at_least: float
    at_most: float
    choices: tuple[str, ...]
    synonyms: Mapping[str, str]
    spellings: tuple[Spelling, ...]
    acts: tuple[str, ...]
    idle: str

    @property
    def bound(self) -> str:
        if isinstance(self.default, bool):
            return "true or false"
        if isinstance(self.default, tuple):
            return f"any of {', '.join(self.choices)}, each once, with commas between"
        if isinstance(self.default, str):
            return f"one of {', '.join(self.choices)}"
        kind = "a whole number" if isinstance(self.default, int) else "a number"
        return f"{kind}, at least {self.at_least} and at most {self.at_most}"

    def parse(self, spelling: Spelling, text: str) -> Any:
        """Read a value as text, given under one of the names; `InvalidOptionError` where it is none."""
        value = self._converted(text.strip())
        if spelling.unit != 1 and value not in (None, UNLIMITED):
            value *= spelling.unit
        if not self.allows(value):
            raise InvalidOptionError(f"{spelling.name} must be {self._bound_in(spelling.unit)}, got {text!r}")
        return value

    def allows(self, value: Any) -> bool:
        """Tell whether a value is of the right type and within its bound."""
        if isinstance(self.default, tuple):
            return isinstance(value, tuple) and set(value) <= set(self.choices) and len(set(value)) == len(value)
        if isinstance(self.default, (bool, str)):
            return type(value) is type(self.default) and (not self.choices or value in self.choices)
        kinds = (int, float) if isinstance(self.default, float) else (int,)
        return type(value) in kinds and self.at_least <= value <= self.at_most

    def text(self, value: Any) -> str:
        """Write a value as `parse` reads it."""
        if isinstance(value, bool):
            return "true" if value else "false"
        return ",".join(value) if isinstance(value, tuple) else str(value)

    def _converted(self, text: str) -> Any:
        if isinstance(self.default, bool):
            return {"true": True, "false": False}.get(text.lower())
        if isinstance(self.default, tuple):
            return tuple(item.strip() for item in text.split(",")) if text else ()
        if isinstance(self.default, str):
            return self.synonyms.get(text, text)
        if isinstance(self.default, int):
            return int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None
        return float(text) if re.fullmatch(r"[+-]?[0-9]{0,19}\.?[0-9]{1,19}(e[+-]?[0-9]{1,3})?", text) else None

    def _bound_in(self, unit: int) -> str:
        if unit == 1:
            return self.bound
        at_least = self.at_least if self.at_least == UNLIMITED else -(-self.at_least // unit)
        return f"a whole number, at least {at_least} and at most {self.at_most // unit}"


def option(
    name: str,
    default: Any,
    *,
    at_least: float = 0,
    at_most: float = LONG_MAX,
    choices: tuple[str, ...] = (),
    synonyms: Mapping[str, str] = MappingProxyType({}),
    also: Iterable[str | Spelling] = (),
    acts: tuple[str, ...] = (APPEND, COMMIT),
    idle: str = "",
    doc: str,
) -> Any:
    """Declare a property: its name, default and bound, the broker's spellings, strongest first, and what it does.

    ``acts`` says where it does that, and ``idle`` why it does not in the other places.
    """
    spellings = tuple(each if isinstance(each, Spelling) else Spelling(each) for each in also)
    declared = Property(name, default, doc, at_least, at_most, choices, synonyms, spellings, acts, idle)
    return field(default=default, metadata={"property": declared})
