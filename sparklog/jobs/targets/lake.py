"""The base of targets whose tables have a log of their own: Delta Lake and Iceberg."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import pyarrow as pa

from sparklog.errors import CommitError, InvalidOptionError, SeglogError, StorageError
from sparklog.jobs.ledger import Moved, Settings
from sparklog.jobs.targets.table_log import TableLog
from sparklog.jobs.targets.targets import FolderTarget, TableShape
from sparklog.log.files import TopicPartition

_NOT_PLAIN: Final = re.compile("[#?]|%[0-9A-Fa-f]{2}")
_NOT_COLUMNS: Final = ("where", "isolation_level", "key_format", "value_format")
"""The settings of how a table is written that the table's own log does not hold."""
_MICROSECONDS: Final = pa.timestamp("us", "UTC")
_MICROSECONDS_MS_MAX: Final = ((1 << 63) - 1) // 1000


@dataclass(frozen=True)
class LakeTarget(FolderTarget):
    """A table whose own log says which files are part of it, in a folder of this machine."""

    keeps_unlisted_files: ClassVar[bool] = True
    times_ms: ClassVar[tuple[int, int]] = (-_MICROSECONDS_MS_MAX, _MICROSECONDS_MS_MAX)

    def check(self) -> None:
        if _NOT_PLAIN.search(self.path):
            raise InvalidOptionError(
                f"the path {self.path} has #, ? or % with two digits, which the libraries of such tables take for "
                f"parts of an address: move to a folder of another name"
            )
        super().check()

    def shape(self, table: TableShape) -> TableShape:
        """Return the shape with times in microseconds, since such tables have no milliseconds."""
        milliseconds = pa.timestamp("ms", "UTC")
        columns = [
            column.with_type(_MICROSECONDS) if column.type == milliseconds else column for column in table.schema
        ]
        return replace(table, schema=pa.schema(columns), times_ms=self.times_ms)

    @abstractmethod
    def log(self) -> TableLog:
        """Return the table's own record of exports to it; raise `PathNotFoundError` if the table does not exist."""


def settings_of(table: TableShape) -> Settings:
    """Return how a table is written, without the settings in its own log, which people may change there."""
    return Settings(tuple((name, value) for name, value in table.settings.values if name in _NOT_COLUMNS))


def typed_error(
    error: Exception, table: str, conflicts: tuple[type[Exception], ...], rights: tuple[type[Exception], ...]
) -> SeglogError | None:
    """Return an error of a table's library as one of ours, which tells what to do; None for a bug.

    Parameters
    ----------
    conflicts : tuple of type
        The errors of the library that mean that another writer was faster.
    rights : tuple of type
        The errors, besides `PermissionError`, that mean that the caller may not write.
    """
    if isinstance(error, SeglogError):
        return error
    if isinstance(error, conflicts):
        return CommitError(
            f"the table {table} does not take a commit, and nothing is moved: {error}. Another writer was faster: "
            f"repeat the job"
        )
    if isinstance(error, (PermissionError, *rights)):
        return StorageError(f"the table {table} may not be written to, and nothing is moved: {error}. Ask who owns it")
    if isinstance(error, OSError) or type(error).__module__.partition(".")[0] not in ("builtins", "pyarrow"):
        return CommitError(
            f"the table {table} does not take a commit, and nothing is moved: {error}. Repeat the job once the cause "
            f"is gone"
        )
    return None


def refuse_moved_meanwhile(moved: Sequence[Moved], end_offset: Callable[[TopicPartition], int | None]) -> None:
    """Raise `CommitError` if a table already has offsets that are to be committed: a run elsewhere moved them."""
    seen: dict[TopicPartition, int] = {}
    for each in moved:
        at = each.topic_partition
        end = seen[at] if at in seen else end_offset(at)
        if end is not None and end > each.start_offset:
            raise CommitError(
                f"offsets up to {end} of {at} were moved by another run meanwhile, and [{each.start_offset}, "
                f"{each.end_offset}) is to be: nothing is moved; repeat the job"
            )
        seen[at] = each.end_offset


def refuse_other_columns(path: str, wanted: pa.Schema, there: pa.Schema) -> None:
    """Raise `InvalidOptionError` if the columns of a table are not those that are to be written."""
    have, want = ({field.name: _plain(field.type) for field in each} for each in (there, wanted))
    if have == want:
        return
    differ = [
        f"{name} ({have.get(name, 'none')} there, {want.get(name, 'none')} here)"
        for name in dict.fromkeys([*have, *want])
        if have.get(name) != want.get(name)
    ]
    raise InvalidOptionError(
        f"the table {path} has other columns: {', '.join(differ)}. A job does not change the columns of a table: "
        f"change them with its own tools first, give other columns or formats, or move to another target"
    )


def _plain(kind: pa.DataType) -> str:
    """Return a type as text, without details that libraries write differently."""
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {_plain(field.type)}' for field in kind)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{_plain(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_plain(kind.key_type)}, {_plain(kind.item_type)}>"
    return str(kind).removeprefix("large_")
