"""Defines the targets of exports, which stage files and make them visible together with their ledger entries.

A target is a small frozen value. `TableFolder` is a folder of files with its ledger.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import ClassVar, Final, Protocol

import pyarrow as pa

from sparklog.errors import CommitError, InvalidOptionError, LockedError, OutputNameError, SeglogError, StorageError
from sparklog.jobs.ledger import (
    Ledger,
    LedgerEntry,
    Moved,
    MovedFile,
    Settings,
    commits,
    encode_commit,
    next_number,
    read_ledger,
)
from sparklog.jobs.targets.staged_file import crc32c_of
from sparklog.log.files import META_PROPERTIES, STAGED, TopicPartition, parse_partition_folder
from sparklog.log.places import folder_of, folders_of, join_path, split_path
from sparklog.storage.base import HeldLock, Storage, WritableStorage
from sparklog.storage.beneath import names_beneath
from sparklog.storage.capabilities import to_writable

FOLDER_OF_JOBS: Final = "_seglog"
"""The folder of jobs in a folder of tables. Readers of tables skip names that begin with ``_``."""
UNFINISHED: Final = "unfinished"
"""A file that exists while files of a commit get their names."""
LEDGER: Final = "ledger.jsonl"
_LOCK: Final = "lock"
_FILTER: Final = "where"


class CommitNotKnownError(CommitError):
    """A table did not answer, and may still accept the commit: its files must stay in place until the next run."""


MovedLast = Callable[[TopicPartition], Moved | None]


class Target(Protocol):
    """The interface of targets, which receive the files of an export."""

    @property
    def storage(self) -> Storage: ...

    @property
    def path(self) -> str:
        """The folder of the table."""

    @property
    def writable(self) -> WritableStorage:
        """The storage, writable only below the folder, since ledgers and lists of files may be forged."""

    @property
    def keeps_columns(self) -> bool:
        """Whether the columns that are folders are also in the files."""

    @property
    def keeps_unlisted_files(self) -> bool:
        """Whether the folder may have files of undone versions of the table, which keep their names."""

    def check(self) -> None:
        """Raise `InvalidOptionError` if the target cannot exist; nothing is created."""

    def held(self) -> AbstractContextManager[None]:
        """Keep other runs out, finish commits that a dead run has decided, and remove whatever is not committed."""

    def shape(self, table: TableShape) -> TableShape:
        """Return the shape of a table in this target, which may change types of columns."""

    def moved(self, table: TableShape, *, adopts: bool = False) -> MovedLast:
        """Return a function that returns the range of a partition that was moved last; the target is held.

        The function raises `DataLossError` if rows that were moved are gone, unless ``adopts`` accepts that.

        Raises
        ------
        InvalidOptionError
            The table in the target has another shape.
        """

    def staged_path(self, name: str) -> str:
        """Return the path at which a task stages a file; the commit renames it."""

    def commit(self, moved: Sequence[Moved], table: TableShape, run: str, now_ms: int) -> None:
        """Make files visible, and record them in the ledger, at once; the target is held."""


@dataclass(frozen=True)
class TableShape:
    """The shape of a table: columns, folders and settings, which do not change between exports to it.

    Attributes
    ----------
    schema : pyarrow.Schema
        The columns of the table's files.
    folders : tuple of str
        The columns that are folders.
    settings : Settings
        The columns, the folders and further settings, as text.
    times_ms : tuple of int, or None
        The first and the last time that the table can hold, ms since the epoch; None if it holds all.
    """

    schema: pa.Schema
    folders: tuple[str, ...]
    settings: Settings
    times_ms: tuple[int, int] | None = None


@dataclass(frozen=True)
class FolderTarget(ABC):
    """The base of targets in a folder: the lock, and the paths of staged files.

    Attributes
    ----------
    lock_timeout_seconds : float
        The time to wait for another run.
    """

    storage: Storage
    path: str
    lock_timeout_seconds: float = field(default=600.0, kw_only=True)

    keeps_columns: ClassVar[bool] = False
    keeps_unlisted_files: ClassVar[bool] = False

    @property
    def writable(self) -> WritableStorage:
        return to_writable(self.storage, self.path).beneath(self.path)

    def check(self) -> None:
        refuse_as_folder(self.storage, self.path)

    def staged_path(self, name: str) -> str:
        return own_path(self.path, name + STAGED)

    @contextmanager
    def held(self) -> Iterator[None]:
        with hold_folder(to_writable(self.storage, self.path), self.path, self.lock_timeout_seconds):
            self._settle()
            try:
                yield
            except CommitNotKnownError:
                raise
            except BaseException:
                # The next run would do this first. An error here must not replace the error that ended the run.
                with suppress(SeglogError):
                    self._settle()
                raise
            self._settle()

    @abstractmethod
    def _settle(self) -> None:
        """Finish or undo what a dead run has left; the folder is held."""


@dataclass(frozen=True)
class TableFolder(FolderTarget):
    """A folder of files, such as Parquet, and its ledger.

    A commit is decided when its lines of the ledger are on the disk. Then its files get their names. Until that is
    finished a marker file exists; a run that finds the marker finishes the naming.
    """

    @property
    def ledger_path(self) -> str:
        return own_path(self.path, LEDGER)

    @property
    def _folder(self) -> str:
        return join_path(self.path, FOLDER_OF_JOBS)

    def ledger(self) -> Ledger:
        """Read the ledger; errors: see `sparklog.jobs.ledger.read_ledger`."""
        return read_ledger(self.storage, self.ledger_path)

    def shape(self, table: TableShape) -> TableShape:
        return table

    def moved(self, table: TableShape, *, adopts: bool = False) -> MovedLast:  # noqa: ARG002 - a ledger is whole
        ledger = self.ledger()
        refuse_other_settings(self.path, dict(ledger.settings.values) if ledger.settings else {}, table.settings)
        blocked = {each.topic_partition: file for each, file in self._unnamed()} if ledger.last else {}

        def last(at: TopicPartition) -> Moved | None:
            if at in blocked:
                raise OutputNameError(
                    f"rows of {at} that were moved before are in {self.staged_path(blocked[at].staged)}, which cannot "
                    f"get its name {join_path(self.path, blocked[at].path)}. Move away the file of that name, and "
                    f"repeat the job, or take the rows from the staged file and move that away"
                )
            return ledger.moved.get(at)

        return last

    def commit(self, moved: Sequence[Moved], table: TableShape, run: str, now_ms: int) -> None:
        storage, staged = self.writable, staged_names(self.storage, self.path)
        files = [file for each in moved for file in each.all_files]
        for file in files:
            if file.staged not in staged:
                raise CommitError(f"{self.staged_path(file.staged)} is gone, which a task has staged; nothing is moved")
        number = next_number(storage, self.ledger_path)
        entries: list[LedgerEntry] = [*moved] if number else [table.settings, *moved]
        storage.open_for_append(own_path(self.path, UNFINISHED)).close()
        # Tasks have synced the files' contents; this syncs their names.
        storage.sync_folder(self._folder)
        self._decide(encode_commit(number, "export", run, now_ms, entries))
        for error in self._put_in_place(files)[:1]:
            raise error

    def tell(self, entries: Sequence[LedgerEntry], job: str, run: str, now_ms: int) -> None:
        """Record in the ledger files that are in place already; the target is held."""
        self._decide(encode_commit(next_number(self.writable, self.ledger_path), job, run, now_ms, entries))

    def _decide(self, lines: bytes) -> None:
        storage = self.writable
        with storage.open_for_append(self.ledger_path) as ledger:
            before = ledger.size_bytes()
            try:
                ledger.append(lines)
                ledger.sync()
            except SeglogError:
                # The lines may be complete but not on the disk, so they must not count.
                with suppress(SeglogError):
                    ledger.truncate(before)
                    ledger.sync()
                raise
        storage.sync_folder(self._folder)

    def _settle(self) -> None:
        """Finish the last commit of the ledger, cut off bytes after it, and remove staged files."""
        storage = self.writable
        is_unfinished = storage.identity(own_path(self.path, UNFINISHED)) is not None
        if not is_unfinished and not staged_names(storage, self.path):
            return
        # Staged files may belong to a ledger that cannot be read.
        ledger = self.ledger()
        if is_unfinished:
            # The last commit may not be on the disk yet if its run died; it must be there before files get names.
            with storage.open_for_append(self.ledger_path) as file:
                file.truncate(ledger.size_bytes)
                file.sync()
        entries = ledger.last.entries if is_unfinished and ledger.last else ()
        named = [file for each in entries if isinstance(each, Moved) for file in each.all_files]
        unnamed = [file for _, file in self._unnamed()]
        # A taken name keeps only the partition of its file from being moved: see `moved`.
        self._put_in_place({file.staged: file for file in (*named, *unnamed)}.values())
        sweep_staged(storage, self.path, {file.staged for file in unnamed})

    def _unnamed(self) -> list[tuple[Moved, MovedFile]]:
        """Return the files of ledger commits that are still staged: no other file has their rows."""
        staged = staged_names(self.storage, self.path)
        found = commits(self.storage, self.ledger_path) if staged else ()
        moved = (each for commit in found for each in commit.moved)
        return [(each, file) for each in moved for file in each.all_files if file.staged in staged]

    def _put_in_place(self, files: Collection[MovedFile]) -> list[OutputNameError]:
        """Give files their names, unless they have them, and record that this is finished.

        Returns
        -------
        list of OutputNameError
            The errors of files whose names are taken; the other files still get their names.
        """
        storage, staged = self.writable, staged_names(self.storage, self.path)
        errors: list[OutputNameError] = []
        for file in files:
            try:
                name_files(storage, self.path, [file] if file.staged in staged else [])
            except OutputNameError as error:
                errors.append(error)
        # After a dead run, also sync the names that it gave; people may have removed some of its files since.
        sync_names(storage, self.path, files)
        storage.remove(own_path(self.path, UNFINISHED))
        return errors


def refuse_other_settings(path: str, before: Mapping[str, str], now: Settings) -> None:
    """Raise `InvalidOptionError` if a table was written with other settings; empty settings mean a new table."""
    for name, value in now.values:
        # Settings that a ledger of an earlier version lacks are unknown, except the filter, which did not exist then.
        was = before.get(name, "" if before and name == _FILTER else value)
        if was != value:
            raise InvalidOptionError(
                f"the target {path} has {name} {was or 'of nothing'!r}, and now it is "
                f"{value or 'nothing'!r}: a table has one shape. Give the same again, or move to another target"
            )


def refuse_as_folder(storage: Storage, path: str) -> None:
    """Raise `InvalidOptionError` if no table can be at a path: it is a file, or is or is in a log directory."""
    if storage.identity(path) is not None and not storage.is_folder(path):
        raise InvalidOptionError(f"the target {path} is a file, and must be a folder")
    parent, _ = split_path(path)
    for folder in (path, parent):
        names = storage.names(folder) if storage.is_folder(folder) else []
        is_log_directory = any(each.name == META_PROPERTIES for each in names)
        has_logs = folder == path and any(each.is_folder and parse_partition_folder(each.name) for each in names)
        if is_log_directory or has_logs:
            raise InvalidOptionError(
                f"the target {path} {'is' if folder == path else 'is in'} a log directory, where a folder of others "
                f"stops a broker: move to another folder"
            )


@contextmanager
def hold_folder(storage: WritableStorage, path: str, timeout_seconds: float) -> Iterator[None]:
    """Create the folder of jobs in a table's folder, and keep other runs out of it."""
    own, beneath = join_path(path, FOLDER_OF_JOBS), storage.beneath(path)
    # From below up to the first that exists; until something is committed none of them may be on the disk.
    above = [path]
    while above[-1] != "/" and not storage.is_folder(above[-1]):
        above.append(split_path(above[-1])[0])
    is_new = storage.identity(own_path(path, LEDGER)) is None
    beneath.make_folder(own)
    if is_new:
        storage.sync_folders(above if len(above) > 1 else [*above, split_path(path)[0]])
    with _locked(beneath, path, timeout_seconds):
        yield


def _locked(storage: WritableStorage, path: str, timeout_seconds: float) -> HeldLock:
    try:
        return storage.lock(own_path(path, _LOCK), timeout_seconds)
    except LockedError as error:
        raise LockedError(
            f"another job moves to {path}, and did not finish in {timeout_seconds:g} s. Nothing was "
            f"moved; repeat it, or wait longer for the lock"
        ) from error


def staged_names(storage: Storage, path: str) -> set[str]:
    """Return the names of staged files in the folder of jobs, as they were given to `Target.staged_path`."""
    names = (entry.name for entry in storage.names(join_path(path, FOLDER_OF_JOBS)))
    return {name.removesuffix(STAGED) for name in names if name.endswith(STAGED)}


def name_files(storage: WritableStorage, path: str, files: Sequence[MovedFile]) -> None:
    """Give staged files their names in the table's folder; no other file is overwritten."""
    for folder in sorted({folder_of(file.path) for file in files} - {""}):
        storage.make_folder(join_path(path, folder))
    for file in files:
        names_beneath(path, join_path(path, file.path))
        try:
            refuse_taken(storage, path, file.path)
        except OutputNameError:
            # If a machine died while the file was renamed, both names may exist.
            if not _holds(storage, join_path(path, file.path), file):
                raise
        storage.rename(own_path(path, file.staged + STAGED), join_path(path, file.path))


def _holds(storage: Storage, path: str, file: MovedFile) -> bool:
    try:
        with storage.open(path) as found:
            return found.size_bytes() == file.size_bytes and crc32c_of(found) == file.crc32c
    except SeglogError:
        return False


def refuse_taken(storage: Storage, path: str, relative: str) -> None:
    """Raise `OutputNameError` if no new file of a table can have this name."""
    for above in _folders_above(relative):
        folder = join_path(path, above)
        if storage.identity(folder) is not None and not storage.is_folder(folder):
            raise OutputNameError(f"{folder} is no folder, and is in the way of files of the table: move it away")
    whole = join_path(path, relative)
    try:
        # A folder that does not exist yet cannot tell how long names in it may be.
        for name in (split_path(whole)[1], *folders_of(relative)):
            storage.identity(join_path(path, name))
        is_taken = storage.identity(whole) is not None
    except StorageError as error:
        hint = "copy a topic with a long name to a shorter one (sparklog copy --renames), and move that"
        raise OutputNameError(f"no file can have the name that its rows need: {error.message}; {hint}") from error
    if is_taken:
        raise OutputNameError(f"{whole} is there, and no ledger knows it: move it away, and repeat the job")


def sync_names(storage: WritableStorage, path: str, files: Iterable[MovedFile]) -> None:
    """Sync the names of files, and of the folders that they are in."""
    above = sorted({join_path(path, folder) for file in files for folder in _folders_above(file.path)})
    there = [folder for folder in above if storage.is_folder(folder)]
    storage.sync_folders([path, *there, join_path(path, FOLDER_OF_JOBS)])


def sweep_staged(storage: WritableStorage, path: str, but: Collection[str] = ()) -> None:
    """Remove all staged files, except those with some names."""
    for name in sorted(staged_names(storage, path).difference(but)):
        storage.remove(own_path(path, name + STAGED))


def own_path(path: str, name: str) -> str:
    """Return the path of a file in the folder of jobs in a table's folder."""
    return join_path(join_path(path, FOLDER_OF_JOBS), name)


def _folders_above(relative: str) -> Iterator[str]:
    """Yield the folders that a file is in, by their paths relative to the target."""
    while relative := folder_of(relative):
        yield relative
