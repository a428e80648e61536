"""Exports to Delta Lake tables: adds our files in a transaction of the table that also records our offsets.

The version of the application ``sparklog:<topic>-<partition>`` in a table is the next offset to move. It changes in
the same commit that adds the files, so nothing else has to agree with it. Files get their names before that commit,
when no reader knows of them. A file lists them, so that the next run removes those of a run that died in between.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from sparklog.errors import DataLossError, InvalidOptionError, PathNotFoundError, StorageError
from sparklog.jobs.ledger import Moved, MovedFile
from sparklog.jobs.targets.lake import (
    LakeTarget,
    refuse_moved_meanwhile,
    refuse_other_columns,
    settings_of,
    typed_error,
)
from sparklog.jobs.targets.outputs import NO_TIME
from sparklog.jobs.targets.table_log import MarkedCommit, TableFile, TableLog, ends_of, to_commits
from sparklog.jobs.targets.targets import (
    MovedLast,
    TableShape,
    name_files,
    refuse_other_settings,
    staged_names,
    sweep_staged,
    sync_names,
)
from sparklog.jobs.targets.unfinished_files import forget_pending, from_mark, remember_pending, to_marks, unfinished_of
from sparklog.log.files import TopicPartition
from sparklog.log.places import folders_of
from sparklog.values.imports import import_optional

_log = logging.getLogger("sparklog")

_OUTLIVED = "offsets up to {} of {} count as moved, and the table was restored to a version before them"
_OF_OUTLIVED = (
    "These marks outlived their rows, which are not moved again. Restore the table to a version that has them, or move "
    "to another table; or continue after them with adopt (--adopt)"
)
_FOLDER_TYPES = {"topic": pa.string(), "partition": pa.int32(), "date": pa.date32(), "hour": pa.int32()}
_COMMITS_LOOKED_AT = 100
_LEAVE_FILES_ALONE = ("CREATE TABLE", "SET TBLPROPERTIES", "ADD COLUMN", "ADD FEATURE", "VACUUM START", "VACUUM END")


class DeltaTarget(LakeTarget):
    """A Delta Lake table in a folder of this machine; it is created if it does not exist."""

    def check(self) -> None:
        _library()
        super().check()

    def moved(self, table: TableShape, *, adopts: bool = False) -> MovedLast:
        library = _library()
        schema = pa.schema([*table.schema, *((name, _FOLDER_TYPES[name]) for name in table.folders)])
        try:
            found = library.DeltaTable.create(
                self.path, schema, mode="ignore", partition_by=list(table.folders) or None
            )
            there = pa.schema(found.schema().to_arrow())
            folders = tuple(found.metadata().partition_columns)
        except library.exceptions.DeltaError as error:
            raise InvalidOptionError(f"no Delta table of these columns can be at {self.path}: {error}") from error
        refuse_other_columns(self.path, schema, there)
        if folders != table.folders:
            raise InvalidOptionError(
                f"the table {self.path} is partitioned by {', '.join(folders) or 'nothing'}, and this job by "
                f"{', '.join(table.folders) or 'nothing'}: give the same, or move to another target"
            )

        history = _History(found)
        refuse_other_settings(self.path, history.settings(), settings_of(table))

        def last(at: TopicPartition) -> Moved | None:
            end_offset = found.transaction_version(_application(at))
            if end_offset is None:
                return None
            mark, is_taken_away = history.mark(at)
            if mark.get("to") != end_offset:
                _log.warning(
                    "no commit of %s tells any longer which log %s was read from up to %d", self.path, at, end_offset
                )
                return from_mark(at, {"to": end_offset})
            if is_taken_away and not adopts:
                raise DataLossError(f"{self.path}: {_OUTLIVED.format(end_offset, at)}. {_OF_OUTLIVED}")
            return from_mark(at, mark)

        return last

    def commit(self, moved: Sequence[Moved], table: TableShape, run: str, now_ms: int) -> None:
        storage, library = self.writable, _library()
        transaction = import_optional("deltalake.transaction", "deltalake", "delta")
        every = [file for each in moved for file in each.all_files]
        last = {each.topic_partition: each.end_offset for each in moved}
        said = json.dumps({"run": run, "settings": dict(settings_of(table).values), "offsets": to_marks(moved)})
        properties = transaction.CommitProperties(
            custom_metadata={"sparklog": said},
            app_transactions=[transaction.Transaction(_application(at), end) for at, end in last.items()],
        )
        with self._typed():
            found = library.DeltaTable(self.path)
            refuse_moved_meanwhile(moved, lambda at: found.transaction_version(_application(at)))
            remember_pending(storage, self.path, moved)
            name_files(storage, self.path, every)
            sync_names(storage, self.path, every)
            try:
                found.create_write_transaction(
                    [_action(transaction, file, now_ms) for each in moved for file in each.files],
                    "append",
                    found.schema(),
                    partition_by=list(table.folders) or None,
                    commit_properties=properties,
                )
            except Exception:
                # Steps after a commit, such as a checkpoint, may fail as well.
                there = library.DeltaTable(self.path).history(_COMMITS_LOOKED_AT)
                if all(commit.get("sparklog") != said for commit in there):
                    raise
        forget_pending(storage, self.path)

    @contextmanager
    def _typed(self) -> Iterator[None]:
        """Convert errors of the library that leave the ``with`` block to ours."""
        try:
            yield
        except Exception as error:
            conflicts = (_library().exceptions.CommitFailedError,)
            typed = typed_error(error, self.path, conflicts, ())
            if typed is None or typed is error:
                raise
            raise typed from error

    def log(self) -> TableLog:
        library = _library()
        try:
            found = library.DeltaTable(self.path)
            history = list(reversed(found.history()))
        except library.exceptions.TableNotFoundError as error:
            raise PathNotFoundError(f"there is no Delta table at {self.path}: nothing was moved to it") from error
        except (library.exceptions.DeltaError, OSError) as error:
            raise StorageError(f"the Delta table {self.path} cannot be read: {error}") from error
        of_jobs = [(commit, json.loads(commit["sparklog"])) for commit in history if "sparklog" in commit]
        marked = [
            MarkedCommit(commit["version"], said["run"], commit["timestamp"], said["offsets"])
            for commit, said in of_jobs
        ]
        added = pa.table(found.get_add_actions(flatten=True)).select(["path", "size_bytes", "num_records"]).to_pylist()
        files = tuple(TableFile(unquote(row["path"]), row["size_bytes"], row["num_records"]) for row in added)
        partitions = {at for each in marked for at in ends_of(each.marks)}
        partitions |= {file.name.topic_partition for file in files if file.name is not None}
        ends = {at: found.transaction_version(_application(at)) or 0 for at in partitions}
        is_whole = history[0]["version"] == 0
        is_append_only, keeps_rows = is_whole and all(map(_only_adds, history)), is_whole and all(map(_keeps, history))
        said = _Said(history[::-1])
        outlived = tuple(_OUTLIVED.format(end, at) for at, end in ends.items() if end and said.mark(at)[1])
        return TableLog(to_commits(marked, files), ends, files, is_append_only, keeps_rows, outlived)

    def _settle(self) -> None:
        """Remove files that a dead run has staged, or named and never committed."""
        storage, library = self.writable, _library()
        left = unfinished_of(storage, self.path)
        if left:
            with self._typed():
                found = library.DeltaTable(self.path) if library.DeltaTable.is_deltatable(self.path) else None
                versions = {at: found and found.transaction_version(_application(at)) for at, _, _ in left}
            for at, end_offset, path in left:
                if (versions[at] or 0) < end_offset:
                    storage.remove(path)
        forget_pending(storage, self.path)
        if staged_names(storage, self.path):
            sweep_staged(storage, self.path)


def _action(transaction: Any, file: MovedFile, now_ms: int) -> Any:
    return transaction.AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values=partition_values(file.path),
        modification_time=now_ms,
        data_change=True,
        stats=json.dumps({"numRecords": file.rows}),
    )


def partition_values(path: str) -> Mapping[str, str | None]:
    """Return the values in the names of the folders that a file is in."""
    found: dict[str, str | None] = {}
    for folder in folders_of(path):
        name, _, value = folder.partition("=")
        found[name] = None if value == NO_TIME else str(int(value)) if name == "hour" else value
    return found


class _Said:
    """The records of some commits, newest first, of the logs that they moved.

    Attributes
    ----------
    marks : dict of str to (int, dict)
        By the names of partitions: the version that moved each last, and its mark.
    settings : dict of str to str
        How the table is written, from the newest commit that has settings.
    """

    def __init__(self, history: Sequence[Mapping[str, Any]]) -> None:
        self.marks: dict[str, tuple[int, dict[str, Any]]] = {}
        self.settings: dict[str, str] = {}
        self._visible = _visible(history)
        for commit in history:
            said = json.loads(commit.get("sparklog", "{}"))
            self.settings = self.settings or said.get("settings", {})
            for name, mark in said.get("offsets", {}).items():
                self.marks.setdefault(name, (commit["version"], mark))

    def mark(self, at: TopicPartition) -> tuple[dict[str, Any], bool]:
        """Return the last mark of a partition, and whether the table was restored to a version before it."""
        version, mark = self.marks.get(str(at), (None, {}))
        return mark, version is not None and version not in self._visible


class _History:
    """Looks up marks and settings in the newest commits of a table, and in all if those lack them."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self._newest = _Said(table.history(_COMMITS_LOOKED_AT))

    @cached_property
    def _whole(self) -> _Said:
        return _Said(self._table.history())

    def mark(self, at: TopicPartition) -> tuple[dict[str, Any], bool]:
        return (self._newest if str(at) in self._newest.marks else self._whole).mark(at)

    def settings(self) -> dict[str, str]:
        return self._newest.settings or self._whole.settings


def _visible(history: Sequence[Mapping[str, Any]]) -> set[int]:
    """Return the versions that led to the current content of a table, without those undone by a restore."""
    by_version = {commit["version"]: commit for commit in history}
    version, found = max(by_version, default=-1), set[int]()
    while version in by_version and version not in found:
        found.add(version)
        commit = by_version[version]
        if commit.get("operation") == "RESTORE":
            restored = str(commit.get("operationParameters", {}).get("version"))
            # After a restore to a time, no earlier version is known to be still visible.
            version = int(restored) if restored.isdecimal() else -1
        else:
            version -= 1
    return found


def _keeps(commit: Mapping[str, Any]) -> bool:
    """Return whether a commit leaves all rows in the table, in the same or other files."""
    return _only_adds(commit) or commit.get("operation") == "OPTIMIZE"


def _only_adds(commit: Mapping[str, Any]) -> bool:
    """Return whether a commit leaves all earlier files of the table alone."""
    operation, given = commit.get("operation"), commit.get("operationParameters", {})
    return operation in _LEAVE_FILES_ALONE or (operation == "WRITE" and given.get("mode") == "Append")


def _application(at: TopicPartition) -> str:
    return f"sparklog:{at}"


def _library() -> Any:
    import_optional("deltalake.exceptions", "deltalake", "delta")
    return import_optional("deltalake", "deltalake", "delta")
