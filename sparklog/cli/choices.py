"""The values of options that take one of a few words."""

from __future__ import annotations

from enum import StrEnum


class IsolationLevels(StrEnum):
    """The values of ``--isolation-level``."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Format(StrEnum):
    """The values of ``--format``."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    RAW = "raw"


class InputFormat(StrEnum):
    """The values of ``--format`` of ``produce``: the form of the input."""

    LINES = "lines"
    JSON_LINES = "jsonl"
