"""Exports to Iceberg tables: our files, added by a commit of the table that also says how far we are.

Each snapshot that a job makes has the property ``sparklog.offsets``, JSON by ``<topic>-<partition>`` of the offset that
is moved next, ``to``, and of which log it is, for all partitions so far; so has the table, for when snapshots have
expired. What counts is the newest snapshot that has it among those that led to the current one. Files get their names
before the commit, when no reader knows of them; those of a run that died in between are listed in a file, and the next
run removes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from sparklog.errors import CommitError, InvalidOptionError
from sparklog.jobs.lake import LakeTarget, refuse_moved_meanwhile, refuse_other_columns
from sparklog.jobs.ledger import Moved
from sparklog.jobs.pending import forget_pending, from_mark, pending, remember_pending, to_marks
from sparklog.jobs.targets import (
    MovedLast,
    TableShape,
    name_files,
    sweep_staged,
    sync_names,
)
from sparklog.log.files import TopicPartition
from sparklog.log.places import join_path
from sparklog.storage.registry import locate
from sparklog.values.libraries import import_optional

_OFFSETS: Final = "sparklog.offsets"
_ATTEMPTS: Final = 10
_TRANSFORMS: Final = {
    "topic": ("topic", "identity"),
    "partition": ("partition", "identity"),
    "date": ("timestamp", "day"),
    "hour": ("timestamp", "hour"),
}


@dataclass(frozen=True)
class IcebergTarget(LakeTarget):
    """An Iceberg table in a folder of this machine; made where it is not there.

    Attributes
    ----------
    table : str
        Its name in the catalog.
    catalog : tuple of (str, str)
        The properties of the catalog, as pyiceberg has them, and its ``name``.
    """

    table: str
    catalog: tuple[tuple[str, str], ...]

    # Which partition of the table a file is of is told by its columns.
    keeps_columns: ClassVar[bool] = True

    def check(self) -> None:
        import_optional("pyiceberg", "pyiceberg", "iceberg")
        if "." not in self.table.strip("."):
            raise InvalidOptionError(f"the table {self.table!r} has no namespace: give it as namespace.table")
        super().check()

    def moved(self, table: TableShape) -> MovedLast:
        for name in table.folders:
            column, _ = _TRANSFORMS[name]
            if column not in table.schema.names:
                raise InvalidOptionError(f"a table that is partitioned by {name} needs the column {column}")
        with self._opened() as catalog:
            found = self._made(catalog, table)
            marks = _marks(found)

        def last(at: TopicPartition) -> Moved | None:
            return from_mark(at, marks[str(at)]) if str(at) in marks else None

        return last

    def commit(self, moved: Sequence[Moved], table: TableShape, run: str, now_ms: int) -> None:  # noqa: ARG002
        storage = self._writable
        every = [file for each in moved for file in each.all_files]
        with self._opened() as catalog:
            found = catalog.load_table(self.table)
            refuse_moved_meanwhile(moved, partial(_of, _marks(found)))
            remember_pending(storage, self.path, moved)
            name_files(storage, self.path, every)
            sync_names(storage, self.path, every)
            self._add(found, moved, run)
        forget_pending(storage, self.path)

    def _add(self, found: Any, moved: Sequence[Moved], run: str) -> None:
        """Make files part of the table, after what others add meanwhile."""
        paths = [_url(join_path(self.path, file.path)) for each in moved for file in each.files]
        conflict = import_optional("pyiceberg.exceptions", "pyiceberg", "iceberg").CommitFailedException
        for attempt in range(1, _ATTEMPTS + 1):
            marks = _marks(found)
            refuse_moved_meanwhile(moved, partial(_of, marks))
            text = json.dumps({**marks, **to_marks(moved)})
            # It would try again by itself, and not ask which offsets are there by then. This is of our copy alone.
            found.metadata.properties["commit.retry.num-retries"] = "0"
            try:
                with found.transaction() as transaction:
                    transaction.set_properties({_OFFSETS: text})
                    transaction.add_files(paths, snapshot_properties={_OFFSETS: text, "sparklog.run": run})
                return
            except conflict as error:
                if attempt == _ATTEMPTS:
                    raise CommitError(
                        f"the table {self.table} does not take a commit, and nothing is moved: {error}"
                    ) from error
                found = found.refresh()

    def _opened(self) -> Any:
        properties = dict(self.catalog)
        library = import_optional("pyiceberg.catalog", "pyiceberg", "iceberg")
        try:
            return closing(library.load_catalog(properties.pop("name", "default"), **properties))
        except Exception as error:
            # What a catalog raises is that of its own library: of a data base, or of HTTP.
            raise InvalidOptionError(f"the catalog of {self.table} cannot be opened: {error}") from error

    def _made(self, catalog: Any, table: TableShape) -> Any:
        exceptions = import_optional("pyiceberg.exceptions", "pyiceberg", "iceberg")
        try:
            found = catalog.load_table(self.table)
        except exceptions.NoSuchTableError:
            return self._make(catalog, table)
        except exceptions.NoSuchNamespaceError as error:
            raise InvalidOptionError(f"there is no namespace of {self.table} in the catalog: make it first") from error
        there = locate(found.location(), "the location of the table").path
        if self.storage.real(there) != self.storage.real(self.path):
            raise InvalidOptionError(
                f"the table {self.table} is at {there}, and the target is {self.path}: give {there}"
            )
        refuse_other_columns(self.table, table.schema, found.schema().as_arrow())
        folders = tuple(field.name for field in found.spec().fields)
        if folders != _partition_names(table.folders):
            raise InvalidOptionError(
                f"the table {self.table} is partitioned by {', '.join(folders) or 'nothing'}, and this job by "
                f"{', '.join(table.folders) or 'nothing'}: give the same, or move to another table"
            )
        return found

    def _make(self, catalog: Any, table: TableShape) -> Any:
        try:
            catalog.create_namespace_if_not_exists(self.table.rpartition(".")[0])
            created = catalog.create_table_transaction(self.table, table.schema, location=_url(self.path))
            with created as transaction, transaction.update_spec() as spec:
                for name in _needed(table.folders):
                    column, transform = _TRANSFORMS[name]
                    spec.add_field(column, transform, _partition_names((name,))[0])
            return catalog.load_table(self.table)
        except (ValueError, TypeError) as error:
            raise InvalidOptionError(f"no Iceberg table of these columns can be made: {error}") from error

    def _settle(self) -> None:
        """Remove what a run that died has staged, or named and never committed."""
        storage = self._writable
        left = pending(storage, self.path)
        if left:
            with self._opened() as catalog:
                marks = _marks(catalog.load_table(self.table)) if catalog.table_exists(self.table) else {}
            for at, end_offset, path in left:
                if (_of(marks, at) or 0) < end_offset:
                    storage.remove(path)
        forget_pending(storage, self.path)
        sweep_staged(storage, self.path)


def _needed(folders: Sequence[str]) -> tuple[str, ...]:
    """Return the folders that are partitions of the table: an hour tells its date."""
    return tuple(name for name in folders if not (name == "date" and "hour" in folders))


def _partition_names(folders: Sequence[str]) -> tuple[str, ...]:
    """Return what fields of a partition are called: those that are not columns may not be called as one."""
    return tuple({"date": "timestamp_day", "hour": "timestamp_hour"}.get(name, name) for name in _needed(folders))


def _marks(table: Any) -> dict[str, dict[str, Any]]:
    """Return how far each partition is, by its name; `sparklog.jobs.pending.to_marks` made it."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots()}
    snapshot = table.current_snapshot()
    while snapshot is not None:
        text = snapshot.summary.additional_properties.get(_OFFSETS) if snapshot.summary else None
        if text is not None:
            return dict(json.loads(text))
        snapshot = by_id.get(snapshot.parent_snapshot_id)
    return dict(json.loads(table.properties.get(_OFFSETS, "{}")))


def _of(marks: Mapping[str, Mapping[str, Any]], at: TopicPartition) -> int | None:
    return int(marks[str(at)]["to"]) if str(at) in marks else None


def _url(path: str) -> str:
    return f"file://{path}"
