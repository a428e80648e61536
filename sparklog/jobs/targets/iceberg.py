"""Exports to Iceberg tables: adds our files in a commit of the table that also records our offsets.

Each snapshot that a job makes has the property ``sparklog.offsets``: JSON by ``<topic>-<partition>``, for all
partitions so far, with the next offset to move, ``to``, the identity of the log, and the start and the number of rows
of the range that was moved last. The table has the same property, for when snapshots have expired. The newest snapshot
with the property counts, among those that led to the current one. Files get their names before the commit, when no
reader knows of them. A file lists them, so that the next run removes those of a run that died in between.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from sparklog.errors import CommitError, InvalidOptionError, PathNotFoundError, SeglogError
from sparklog.jobs.ledger import Moved
from sparklog.jobs.targets.lake import (
    LakeTarget,
    refuse_moved_meanwhile,
    refuse_other_columns,
    settings_of,
    typed_error,
)
from sparklog.jobs.targets.table_log import MarkedCommit, TableFile, TableLog, ends_of, to_commits
from sparklog.jobs.targets.targets import (
    CommitNotKnownError,
    MovedLast,
    TableShape,
    name_files,
    refuse_other_settings,
    sweep_staged,
    sync_names,
)
from sparklog.jobs.targets.unfinished_files import forget_pending, from_mark, remember_pending, to_marks, unfinished_of
from sparklog.log.files import TopicPartition
from sparklog.log.places import join_path
from sparklog.topic.places.discovery import places_at
from sparklog.values.imports import import_optional

_OFFSETS: Final = "sparklog.offsets"
_RUN: Final = "sparklog.run"
_SETTINGS: Final = "sparklog.settings"
_ATTEMPTS: Final = 10
_TRANSFORMS: Final = {
    "topic": ("topic", "identity"),
    "partition": ("partition", "identity"),
    "date": ("timestamp", "day"),
    "hour": ("timestamp", "hour"),
}


@dataclass(frozen=True)
class IcebergTarget(LakeTarget):
    """An Iceberg table in a folder of this machine; it is created if it does not exist.

    Attributes
    ----------
    table : str
        The table's name in the catalog.
    catalog : tuple of (str, str)
        The properties of the catalog, as for pyiceberg, and its ``name``.
    """

    table: str
    catalog: tuple[tuple[str, str], ...]

    # A file's columns tell which partition of the table it belongs to.
    keeps_columns: ClassVar[bool] = True
    # The years 1 to 9999, since pyiceberg makes Python dates from the statistics of files.
    times_ms: ClassVar[tuple[int, int]] = (-62_135_596_800_000, 253_402_300_799_999)

    def check(self) -> None:
        import_optional("pyiceberg", "pyiceberg", "iceberg")
        if "." not in self.table.strip("."):
            raise InvalidOptionError(f"the table {self.table!r} has no namespace: give it as namespace.table")
        super().check()

    def moved(self, table: TableShape, *, adopts: bool = False) -> MovedLast:  # noqa: ARG002 - marks go with their rows
        for name in table.folders:
            column, _ = _TRANSFORMS[name]
            if column not in table.schema.names:
                raise InvalidOptionError(f"a table that is partitioned by {name} needs the column {column}")
        with self._opened() as catalog:
            found = self._made(catalog, table)
            marks = _marks(found)
            refuse_other_settings(self.table, json.loads(found.properties.get(_SETTINGS, "{}")), settings_of(table))

        def last(at: TopicPartition) -> Moved | None:
            return from_mark(at, marks[str(at)]) if str(at) in marks else None

        return last

    def commit(self, moved: Sequence[Moved], table: TableShape, run: str, now_ms: int) -> None:  # noqa: ARG002
        settings = json.dumps(dict(settings_of(table).values))
        storage = self.writable
        every = [file for each in moved for file in each.all_files]
        with self._opened() as catalog:
            found = catalog.load_table(self.table)
            refuse_moved_meanwhile(moved, partial(_of, _marks(found)))
            remember_pending(storage, self.path, moved)
            name_files(storage, self.path, every)
            sync_names(storage, self.path, every)
            try:
                self._add(found, moved, run, settings)
            except SeglogError:
                raise
            except Exception as error:
                if not self._has_taken(catalog, moved, run, error):
                    raise
        forget_pending(storage, self.path)

    def _add(self, found: Any, moved: Sequence[Moved], run: str, settings: str) -> None:
        """Add files to the table, after any commits that others make meanwhile."""
        paths = [_url(join_path(self.path, file.path)) for each in moved for file in each.files]
        conflict = _exceptions().CommitFailedException
        for attempt in range(1, _ATTEMPTS + 1):
            marks = _marks(found)
            refuse_moved_meanwhile(moved, partial(_of, marks))
            text = json.dumps({**marks, **to_marks(moved)})
            # pyiceberg would retry by itself, without checking offsets again. This changes only our copy of the table.
            found.metadata.properties["commit.retry.num-retries"] = "0"
            try:
                with found.transaction() as transaction:
                    transaction.set_properties({_OFFSETS: text, _SETTINGS: settings})
                    transaction.add_files(paths, snapshot_properties={_OFFSETS: text, _RUN: run})
                return
            except conflict:
                if attempt == _ATTEMPTS:
                    raise
                found = found.refresh()

    def _has_taken(self, catalog: Any, moved: Sequence[Moved], run: str, error: Exception) -> bool:
        """Return whether the table has a commit that seemed to fail: only the answer may have been lost."""
        try:
            ours = [
                json.loads(snapshot.summary.additional_properties[_OFFSETS])
                for snapshot in _snapshots(catalog.load_table(self.table))
                if snapshot.summary and snapshot.summary.additional_properties.get(_RUN) == run
            ]
            marks = ours[-1] if ours else {}
            has_taken = all((_of(marks, each.topic_partition) or 0) >= each.end_offset for each in moved)
        except Exception as other:
            raise CommitNotKnownError(
                f"it is not known whether the table {self.table} has taken a commit: {error}. Repeat the job once the "
                f"catalog answers: it finds out, and moves nothing twice"
            ) from other
        if isinstance(error, _exceptions().CommitStateUnknownException) and not has_taken:
            raise CommitNotKnownError(
                f"the table {self.table} may still take a commit whose answer was lost: {error}. Repeat the job later: "
                f"it finds out, and moves nothing twice"
            ) from error
        return has_taken

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """Open the catalog; errors of its library that leave the ``with`` block are converted to ours."""
        properties = dict(self.catalog)
        library = import_optional("pyiceberg.catalog", "pyiceberg", "iceberg")
        try:
            catalog = library.load_catalog(properties.pop("name", "default"), **properties)
        except Exception as error:
            # A catalog raises errors of its own library, for a database or HTTP.
            raise InvalidOptionError(f"the catalog of {self.table} cannot be opened: {error}") from error
        with closing(catalog):
            try:
                yield catalog
            except Exception as error:
                typed = self._typed(error)
                if typed is None or typed is error:
                    raise
                raise typed from error

    def _typed(self, error: Exception) -> SeglogError | None:
        known = _exceptions()
        if isinstance(error, known.NoSuchTableError | known.NoSuchNamespaceError):
            return CommitError(
                f"the table {self.table} is gone from its catalog, and nothing is moved: {error}. Put it back, or move "
                f"to another table"
            )
        rights = (known.ForbiddenError, known.UnauthorizedError, known.AuthorizationExpiredError, known.OAuthError)
        return typed_error(error, self.table, (known.CommitFailedException,), rights)

    def _made(self, catalog: Any, table: TableShape) -> Any:
        exceptions = _exceptions()
        try:
            found = catalog.load_table(self.table)
        except exceptions.NoSuchTableError:
            return self._make(catalog, table)
        except exceptions.NoSuchNamespaceError as error:
            raise InvalidOptionError(f"there is no namespace of {self.table} in the catalog: make it first") from error
        ((_, there),) = places_at(found.location(), "the location of the table")
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

    def log(self) -> TableLog:
        exceptions = _exceptions()
        with self._opened() as catalog:
            try:
                found = catalog.load_table(self.table)
            except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError) as error:
                raise PathNotFoundError(f"there is no table {self.table} in the catalog: {error}") from error
            snapshots = _snapshots(found)
            tasks = () if not snapshots else found.scan().plan_files()
            files = tuple(
                TableFile(self._relative(each.file.file_path), each.file.file_size_in_bytes, each.file.record_count)
                for each in tasks
            )
        marked = []
        for number, snapshot in enumerate(snapshots):
            said = snapshot.summary.additional_properties if snapshot.summary else {}
            if _RUN in said:
                marks = json.loads(said[_OFFSETS])
                marked.append(MarkedCommit(number, said[_RUN], snapshot.timestamp_ms, marks))
        is_whole = not snapshots or snapshots[0].parent_snapshot_id is None
        only_adds = all(each.summary and each.summary.operation.value == "append" for each in snapshots)
        keeps = all(each.summary and each.summary.operation.value in ("append", "replace") for each in snapshots)
        ends, commits = ends_of(_marks(found)), to_commits(marked, files)
        return TableLog(commits, ends, files, is_whole and only_adds, is_whole and keeps)

    def _relative(self, url: str) -> str:
        """Return the path of a file relative to the table's folder; a path elsewhere is unchanged."""
        path = url.removeprefix("file://")
        return path.removeprefix(join_path(self.path, ""))

    def _settle(self) -> None:
        """Remove files that a dead run has staged, or named and never committed."""
        storage = self.writable
        left = unfinished_of(storage, self.path)
        if left:
            with self._opened() as catalog:
                marks = _marks(catalog.load_table(self.table)) if catalog.table_exists(self.table) else {}
            for at, end_offset, path in left:
                if (_of(marks, at) or 0) < end_offset:
                    storage.remove(path)
        forget_pending(storage, self.path)
        sweep_staged(storage, self.path)


def _needed(folders: Sequence[str]) -> tuple[str, ...]:
    """Return the folders that are partition fields of the table: without the date if there is an hour."""
    return tuple(name for name in folders if not (name == "date" and "hour" in folders))


def _partition_names(folders: Sequence[str]) -> tuple[str, ...]:
    """Return the names of partition fields: fields that are not columns need names unlike those of columns."""
    return tuple({"date": "timestamp_day", "hour": "timestamp_hour"}.get(name, name) for name in _needed(folders))


def _marks(table: Any) -> dict[str, dict[str, Any]]:
    """Return the marks of partitions by name; see `sparklog.jobs.targets.unfinished_files.to_marks`."""
    found = next(filter(None, map(_offsets_text, reversed(_snapshots(table)))), None)
    if found is None:
        # The table's own marks outlive a rollback: they count only if the snapshot with the marks has expired.
        found = table.properties.get(_OFFSETS, "{}")
        if found in map(_offsets_text, table.snapshots()):
            return {}
    return dict(json.loads(found))


def _offsets_text(snapshot: Any) -> str | None:
    return snapshot.summary.additional_properties.get(_OFFSETS) if snapshot.summary else None


def _snapshots(table: Any) -> list[Any]:
    """Return the snapshots that led to the current one, and that one, oldest first, without expired ones."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots()}
    snapshot, found = table.current_snapshot(), []
    while snapshot is not None:
        found.append(snapshot)
        snapshot = by_id.get(snapshot.parent_snapshot_id)
    return found[::-1]


def _of(marks: Mapping[str, Mapping[str, Any]], at: TopicPartition) -> int | None:
    return int(marks[str(at)]["to"]) if str(at) in marks else None


def _exceptions() -> Any:
    return import_optional("pyiceberg.exceptions", "pyiceberg", "iceberg")


def _url(path: str) -> str:
    return f"file://{path}"
