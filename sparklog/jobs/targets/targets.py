"""Where an export goes: what is staged there, and how files become visible together with what the ledger says.

A target is a small frozen value. `TableFolder` is a folder of files, whose ledger lies in it.
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
    Entry,
    Ledger,
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
"""In a folder of tables: readers of tables pass over names that begin with ``_``."""
UNFINISHED: Final = "unfinished"
"""Is there while files of a commit get their names."""
LEDGER: Final = "ledger.jsonl"
_LOCK: Final = "lock"
_FILTER: Final = "where"


class CommitNotKnownError(CommitError):
    """A table did not answer, and may take a commit yet: its files must stay where they are until the next run."""


MovedLast = Callable[[TopicPartition], Moved | None]


class Target(Protocol):
    """Takes the files of an export."""

    @property
    def storage(self) -> Storage: ...

    @property
    def path(self) -> str:
        """The folder of the table."""

    @property
    def writable(self) -> WritableStorage:
        """The storage, to be changed beneath the folder alone: ledgers and lists of files may be forged."""

    @property
    def keeps_columns(self) -> bool:
        """Whether files have the columns by which they lie in folders."""

    @property
    def keeps_unlisted_files(self) -> bool:
        """Whether the folder may have files of versions of the table that were taken back; they keep their names."""

    def check(self) -> None:
        """Raise `InvalidOptionError` where there can be no such target; nothing is made."""

    def held(self) -> AbstractContextManager[None]:
        """Keep other runs out; finish what one that died has decided, and leave nothing that is not committed."""

    def shape(self, table: TableShape) -> TableShape:
        """Return what a table is like here, where types of columns may be others."""

    def moved(self, table: TableShape, *, adopts: bool = False) -> MovedLast:
        """Return what says what was moved last of a partition; the target is held.

        What is returned raises `DataLossError` where rows are gone that were moved, unless ``adopts`` takes that as it
        is.

        Raises
        ------
        InvalidOptionError
            What was moved there before has another shape.
        """

    def staged_path(self, name: str) -> str:
        """Return where a task puts a file that is to be committed under another name."""

    def commit(self, moved: Sequence[Moved], table: TableShape, run: str, now_ms: int) -> None:
        """Make files visible, and say so in the ledger, at once; the target is held."""


@dataclass(frozen=True)
class TableShape:
    """What a table is like, which does not change while it is moved to.

    Attributes
    ----------
    schema : pyarrow.Schema
        The columns of its files.
    folders : tuple of str
        The columns by which its files lie in folders.
    settings : Settings
        The same, and more, as text.
    times_ms : tuple of int, or None
        The first and the last time that it holds, ms since the epoch; None where it holds all.
    """

    schema: pa.Schema
    folders: tuple[str, ...]
    settings: Settings
    times_ms: tuple[int, int] | None = None


@dataclass(frozen=True)
class FolderTarget(ABC):
    """What all targets in a folder share: who holds it, and where files are staged.

    Attributes
    ----------
    lock_timeout_seconds : float
        How long to wait for another run.
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
                # What the next run would do first. If it cannot be done now, that is not what went wrong.
                with suppress(SeglogError):
                    self._settle()
                raise
            self._settle()

    @abstractmethod
    def _settle(self) -> None:
        """Finish or undo what a run that died has left; the folder is held."""


@dataclass(frozen=True)
class TableFolder(FolderTarget):
    """A folder of files, such as Parquet, and its ledger.

    A commit is decided when its lines of the ledger are on the disk. Its files get their names then; where that was not
    finished, which a file says that is there as long, the next run does it.
    """

    @property
    def ledger_path(self) -> str:
        return own_path(self.path, LEDGER)

    @property
    def _folder(self) -> str:
        return join_path(self.path, FOLDER_OF_JOBS)

    def ledger(self) -> Ledger:
        """Read the ledger; errors as of `sparklog.jobs.ledger.read_ledger`."""
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
                    f"what was moved of {at} before is in {self.staged_path(blocked[at].staged)}, and could not get "
                    f"its name {join_path(self.path, blocked[at].path)}. Move away what is there, and repeat the job, "
                    f"or take the rows from the staged file and move that away"
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
        entries: list[Entry] = [*moved] if number else [table.settings, *moved]
        storage.open_for_append(own_path(self.path, UNFINISHED)).close()
        # The files are on the disk, by their tasks; now their names are.
        storage.sync_folder(self._folder)
        self._decide(encode_commit(number, "export", run, now_ms, entries))
        for error in self._put_in_place(files)[:1]:
            raise error

    def tell(self, entries: Sequence[Entry], job: str, run: str, now_ms: int) -> None:
        """Say in the ledger what is in place already; the target is held."""
        self._decide(encode_commit(next_number(self.writable, self.ledger_path), job, run, now_ms, entries))

    def _decide(self, lines: bytes) -> None:
        storage = self.writable
        with storage.open_for_append(self.ledger_path) as ledger:
            before = ledger.size_bytes()
            try:
                ledger.append(lines)
                ledger.sync()
            except SeglogError:
                # The lines may be whole, and yet not be on the disk: they must not count.
                with suppress(SeglogError):
                    ledger.truncate(before)
                    ledger.sync()
                raise
        storage.sync_folder(self._folder)

    def _settle(self) -> None:
        """Finish the last commit of the ledger, cut off what is behind it, and remove what is staged."""
        storage = self.writable
        is_unfinished = storage.identity(own_path(self.path, UNFINISHED)) is not None
        if not is_unfinished and not staged_names(storage, self.path):
            return
        # What is staged may be of a ledger that cannot be read.
        ledger = self.ledger()
        if is_unfinished:
            # Whoever wrote the last commit may have died before it was on the disk, and files are given names now.
            with storage.open_for_append(self.ledger_path) as file:
                file.truncate(ledger.size_bytes)
                file.sync()
        entries = ledger.last.entries if is_unfinished and ledger.last else ()
        named = [file for each in entries if isinstance(each, Moved) for file in each.all_files]
        unnamed = [file for _, file in self._unnamed()]
        # What is in the way of a file keeps its partition from being moved, and no other: see `moved`.
        self._put_in_place({file.staged: file for file in (*named, *unnamed)}.values())
        sweep_staged(storage, self.path, {file.staged for file in unnamed})

    def _unnamed(self) -> list[tuple[Moved, MovedFile]]:
        """Return the files that commits of the ledger name and that are still staged: nobody else has their rows."""
        staged = staged_names(self.storage, self.path)
        found = commits(self.storage, self.ledger_path) if staged else ()
        moved = (each for commit in found for each in commit.moved)
        return [(each, file) for each in moved for file in each.all_files if file.staged in staged]

    def _put_in_place(self, files: Collection[MovedFile]) -> list[OutputNameError]:
        """Give files their names, those left out that have them, and say that this is finished.

        Returns
        -------
        list of OutputNameError
            Why some stay as they are: a name that is taken keeps no other file from getting its own.
        """
        storage, staged = self.writable, staged_names(self.storage, self.path)
        errors: list[OutputNameError] = []
        for file in files:
            try:
                name_files(storage, self.path, [file] if file.staged in staged else [])
            except OutputNameError as error:
                errors.append(error)
        # Of a run that died, also those of the files that it has named; people may have removed some since.
        sync_names(storage, self.path, files)
        storage.remove(own_path(self.path, UNFINISHED))
        return errors


def refuse_other_settings(path: str, before: Mapping[str, str], now: Settings) -> None:
    """Raise `InvalidOptionError` where a table was written in another way; empty settings are of one that is new."""
    for name, value in now.values:
        # What a ledger of an earlier version does not say is not known, but for a filter, which was not there then.
        was = before.get(name, "" if before and name == _FILTER else value)
        if was != value:
            raise InvalidOptionError(
                f"what was moved to {path} before has {name} {was or 'of nothing'!r}, and now it is "
                f"{value or 'nothing'!r}: a table has one shape. Give the same again, or move to another target"
            )


def refuse_as_folder(storage: Storage, path: str) -> None:
    """Raise `InvalidOptionError` where no table can be: a file is there, or it is, or is in, a log directory."""
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
    """Make the folder of jobs in a table's folder, and keep other runs out of it."""
    own, beneath = join_path(path, FOLDER_OF_JOBS), storage.beneath(path)
    # From below up to the first that is there; until something is committed none of them may be on the disk.
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
    """Return the names of what is staged in the folder of jobs, as they were given to `Target.staged_path`."""
    names = (entry.name for entry in storage.names(join_path(path, FOLDER_OF_JOBS)))
    return {name.removesuffix(STAGED) for name in names if name.endswith(STAGED)}


def name_files(storage: WritableStorage, path: str, files: Sequence[MovedFile]) -> None:
    """Give staged files their names in the table's folder; nothing of others is overwritten."""
    for folder in sorted({folder_of(file.path) for file in files} - {""}):
        storage.make_folder(join_path(path, folder))
    for file in files:
        names_beneath(path, join_path(path, file.path))
        try:
            refuse_taken(storage, path, file.path)
        except OutputNameError:
            # A machine that died while the file was renamed may have both names.
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
    """Raise `OutputNameError` where no new file of a table can have a name."""
    for above in _folders_above(relative):
        folder = join_path(path, above)
        if storage.identity(folder) is not None and not storage.is_folder(folder):
            raise OutputNameError(f"{folder} is no folder, and is in the way of files of the table: move it away")
    whole = join_path(path, relative)
    try:
        # A folder that is not there yet does not say how long names in it may be.
        for name in (split_path(whole)[1], *folders_of(relative)):
            storage.identity(join_path(path, name))
        is_taken = storage.identity(whole) is not None
    except StorageError as error:
        hint = "copy a topic with a long name to a shorter one (sparklog copy --renames), and move that"
        raise OutputNameError(f"no file can have the name that its rows ask for: {error.message}; {hint}") from error
    if is_taken:
        raise OutputNameError(f"{whole} is there, and no ledger knows it: move it away, and repeat the job")


def sync_names(storage: WritableStorage, path: str, files: Iterable[MovedFile]) -> None:
    """Return when the names of files are on the disk, and those of the folders that they are in."""
    above = sorted({join_path(path, folder) for file in files for folder in _folders_above(file.path)})
    there = [folder for folder in above if storage.is_folder(folder)]
    storage.sync_folders([path, *there, join_path(path, FOLDER_OF_JOBS)])


def sweep_staged(storage: WritableStorage, path: str, but: Collection[str] = ()) -> None:
    """Remove all that is staged, but for some names."""
    for name in sorted(staged_names(storage, path).difference(but)):
        storage.remove(own_path(path, name + STAGED))


def own_path(path: str, name: str) -> str:
    """Return the path of a file in the folder of jobs of a table's folder."""
    return join_path(join_path(path, FOLDER_OF_JOBS), name)


def _folders_above(relative: str) -> Iterator[str]:
    """Yield the folders that a file lies in, by their paths relative to the target."""
    while relative := folder_of(relative):
        yield relative
