"""Exports to Delta Lake tables: our files, added by a transaction of the table that also says how far we are.

The version of the application ``sparklog:<topic>-<partition>`` in a table is the offset that is moved next. It changes
in the very commit that adds the files, so that nothing else has to agree with it. Files get their names before that
commit, when no reader knows of them; those of a run that died in between are listed in a file, and the next run removes
them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from sparklog.errors import CommitError, InvalidOptionError, SeglogError
from sparklog.jobs.ledger import Moved, MovedFile
from sparklog.jobs.outputs import NO_TIME
from sparklog.jobs.pending import forget_pending, from_mark, pending, remember_pending, to_marks
from sparklog.jobs.targets import (
    MovedLast,
    TableShape,
    hold_folder,
    name_files,
    own_path,
    refuse_as_folder,
    staged_names,
    sweep_staged,
    sync_names,
)
from sparklog.log.files import STAGED, TopicPartition
from sparklog.log.places import folders_of
from sparklog.storage.base import Storage, WritableStorage
from sparklog.storage.capabilities import to_writable
from sparklog.values.libraries import import_optional

_FOLDER_TYPES = {"topic": pa.string(), "partition": pa.int32(), "date": pa.date32(), "hour": pa.int32()}
_COMMITS_LOOKED_AT = 100
_MICROSECONDS = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class DeltaTarget:
    """A Delta Lake table in a folder of this machine; made where it is not there."""

    storage: Storage
    path: str
    lock_timeout_seconds: float = 600.0

    keeps_columns: ClassVar[bool] = False

    @property
    def _writable(self) -> WritableStorage:
        return to_writable(self.storage, self.path)

    def staged_path(self, name: str) -> str:
        return own_path(self.path, name + STAGED)

    def check(self) -> None:
        _library()
        refuse_as_folder(self.storage, self.path)

    def shape(self, table: TableShape) -> TableShape:
        return replace(table, schema=with_microseconds(table.schema))

    @contextmanager
    def held(self) -> Iterator[None]:
        with hold_folder(self._writable, self.path, self.lock_timeout_seconds):
            self._settle()
            try:
                yield
            except BaseException:
                with suppress(SeglogError):
                    self._settle()
                raise
            self._settle()

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


def with_microseconds(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose times of records are in microseconds: tables of others have none in milliseconds."""
    return pa.schema(
        [field.with_type(_MICROSECONDS) if field.type == pa.timestamp("ms", "UTC") else field for field in schema]
    )


def refuse_moved_meanwhile(moved: Sequence[Moved], end_offset: Callable[[TopicPartition], int | None]) -> None:
    """Raise `CommitError` where a table has offsets already that are to be committed: a run elsewhere moved them."""
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
    """Raise `InvalidOptionError` where a table has other columns than those that are to be written."""
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
    """Return a type as text, without what libraries say of it in ways of their own."""
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {_plain(field.type)}' for field in kind)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{_plain(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_plain(kind.key_type)}, {_plain(kind.item_type)}>"
    return str(kind).removeprefix("large_")


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
