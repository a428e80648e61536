"""The values of options that are one of a few."""

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
    """The values of ``--format`` of what is written."""

    LINES = "lines"
    JSON_LINES = "jsonl"
