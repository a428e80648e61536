"""A field of the JSON that a command prints: its name, type and meaning."""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    """A field of a row."""

    name: str
    kind: str
    meaning: str


def fields_in(text: str) -> tuple[Field, ...]:
    """Read lines of name, type and meaning."""
    return tuple(Field(*line.split(maxsplit=2)) for line in text.strip().splitlines())
