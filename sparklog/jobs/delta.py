"""Exports to Delta Lake tables: our files, added by a transaction of the table that also says how far we are.

The version of the application ``sparklog:<topic>-<partition>`` in a table is the offset that is moved next. It changes
in the very commit that adds the files, so that nothing else has to agree with it. Files get their names before that
commit, when no reader knows of them; those of a run that died in between are listed in a file, and the next run removes
them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sparklog.errors import CommitError, InvalidOptionError
from sparklog.jobs.lake import LakeTarget, refuse_moved_meanwhile, refuse_other_columns
from sparklog.jobs.ledger import Moved, MovedFile
from sparklog.jobs.outputs import NO_TIME
from sparklog.jobs.pending import forget_pending, from_mark, pending, remember_pending, to_marks
from sparklog.jobs.targets import (
    MovedLast,
    TableShape,
    name_files,
    staged_names,
    sweep_staged,
    sync_names,
)
from sparklog.log.files import TopicPartition
from sparklog.log.places import folders_of
from sparklog.values.libraries import import_optional

_FOLDER_TYPES = {"topic": pa.string(), "partition": pa.int32(), "date": pa.date32(), "hour": pa.int32()}
_COMMITS_LOOKED_AT = 100


class DeltaTarget(LakeTarget):
    """A Delta Lake table in a folder of this machine; made where it is not there."""

    def check(self) -> None:
        _library()
        super().check()

    def moved(self, table: TableShape) -> MovedLast:
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

        marks = _newest_marks(found)

        def last(at: TopicPartition) -> Moved | None:
            end_offset = found.transaction_version(_application(at))
            if end_offset is None:
                return None
            mark = marks.get(str(at), {})
            return from_mark(at, mark if mark.get("to") == end_offset else {"to": end_offset})

        return last

    def commit(self, moved: Sequence[Moved], table: TableShape, run: str, now_ms: int) -> None:
        storage, library = self._writable, _library()
        transaction = import_optional("deltalake.transaction", "deltalake", "delta")
        found = library.DeltaTable(self.path)
        refuse_moved_meanwhile(moved, lambda at: found.transaction_version(_application(at)))
        every = [file for each in moved for file in each.all_files]
        remember_pending(storage, self.path, moved)
        name_files(storage, self.path, every)
        sync_names(storage, self.path, every)
        last = {each.topic_partition: each.end_offset for each in moved}
        properties = transaction.CommitProperties(
            custom_metadata={"sparklog": json.dumps({"run": run, "offsets": to_marks(moved)})},
            app_transactions=[transaction.Transaction(_application(at), end) for at, end in last.items()],
        )
        try:
            found.create_write_transaction(
                [_action(transaction, file, now_ms) for each in moved for file in each.files],
                "append",
                found.schema(),
                partition_by=list(table.folders) or None,
                commit_properties=properties,
            )
        except library.exceptions.DeltaError as error:
            raise CommitError(f"the table {self.path} does not take a commit, and nothing is moved: {error}") from error
        forget_pending(storage, self.path)

    def _settle(self) -> None:
        """Remove what a run that died has staged, or named and never committed."""
        storage, library = self._writable, _library()
        left = pending(storage, self.path)
        if left:
            found = library.DeltaTable(self.path) if library.DeltaTable.is_deltatable(self.path) else None
            for at, end_offset, path in left:
                version = None if found is None else found.transaction_version(_application(at))
                if version is None or version < end_offset:
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
    """Return the values of the folders that a file lies in."""
    found: dict[str, str | None] = {}
    for folder in folders_of(path):
        name, _, value = folder.partition("=")
        found[name] = None if value == NO_TIME else str(int(value)) if name == "hour" else value
    return found


def _newest_marks(table: Any) -> dict[str, dict[str, Any]]:
    """Return what the newest commits say of the logs that they moved; nothing of those that only older ones moved."""
    marks: dict[str, dict[str, Any]] = {}
    for commit in table.history(_COMMITS_LOOKED_AT):
        for name, mark in json.loads(commit.get("sparklog", "{}")).get("offsets", {}).items():
            marks.setdefault(name, mark)
    return marks


def _application(at: TopicPartition) -> str:
    return f"sparklog:{at}"


def _library() -> Any:
    import_optional("deltalake.exceptions", "deltalake", "delta")
    return import_optional("deltalake", "deltalake", "delta")
