"""Where an export goes: what is staged there, and how files become visible together with what the ledger says.

A target is a small frozen value. `TableFolder` is a folder of files, whose ledger lies in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Protocol

from sparklog.errors import CommitError, LockedError, SeglogError
from sparklog.jobs.ledger import Ledger, Moved, MovedFile, encode_commit, next_number, read_ledger
from sparklog.log.files import STAGED, TopicPartition
from sparklog.log.places import join_path, split_path
from sparklog.storage.base import Storage, WritableStorage
from sparklog.storage.capabilities import to_writable

FOLDER_OF_JOBS: Final = "_seglog"
"""In a folder of tables: readers of tables pass over names that begin with ``_``."""
LEDGER: Final = "ledger.jsonl"
_LOCK: Final = "lock"


class Target(Protocol):
    """Takes the files of an export."""

    @property
    def storage(self) -> Storage: ...

    @property
    def path(self) -> str:
        """The folder of the table."""

    def held(self) -> AbstractContextManager[None]:
        """Keep other runs out; finish what one that died has decided, and leave nothing that is not committed."""

    def moved(self) -> Mapping[TopicPartition, Moved]:
        """Return what was moved last of each partition; the target is held."""

    def staged_path(self, name: str) -> str:
        """Return where a task puts a file that is to be committed under another name."""

    def commit(self, moved: Sequence[Moved], run: str, now_ms: int) -> None:
        """Make files visible, and say so in the ledger, at once; the target is held."""


@dataclass(frozen=True)
class TableFolder:
    """A folder of files, such as Parquet, and its ledger.

    A commit is decided when its lines of the ledger are on the disk. Its files get their names then; where that was not
    finished, the next run does it.
    """

    storage: Storage
    path: str
    lock_timeout_seconds: float = 600.0

    @property
    def ledger_path(self) -> str:
        return self._own(LEDGER)

    @property
    def _writable(self) -> WritableStorage:
        return to_writable(self.storage, self.path)

    def _own(self, name: str) -> str:
        return join_path(join_path(self.path, FOLDER_OF_JOBS), name)

    def staged_path(self, name: str) -> str:
        return self._own(name + STAGED)

    @contextmanager
    def held(self) -> Iterator[None]:
        self._writable.make_folder(join_path(self.path, FOLDER_OF_JOBS))
        try:
            lock = self._writable.lock(self._own(_LOCK), self.lock_timeout_seconds)
        except LockedError as error:
            raise LockedError(
                f"another job moves to {self.path}, and did not finish in {self.lock_timeout_seconds:g} s. Nothing was "
                f"moved; repeat it, or wait longer for the lock"
            ) from error
        with lock:
            self._settle()
            try:
                yield
            except BaseException:
                # What the next run would do first. If it cannot be done now, that is not what went wrong.
                with suppress(SeglogError):
                    self._settle()
                raise
            self._settle()

    def ledger(self) -> Ledger:
        """Read the ledger; errors as of `sparklog.jobs.ledger.read_ledger`."""
        return read_ledger(self.storage, self.ledger_path)

    def moved(self) -> Mapping[TopicPartition, Moved]:
        return self.ledger().moved

    def commit(self, moved: Sequence[Moved], run: str, now_ms: int) -> None:
        storage, staged = self._writable, self._staged()
        for file in (file for each in moved for file in each.files):
            if file.staged not in staged:
                raise CommitError(f"{self.staged_path(file.staged)} is gone, which a task has staged; nothing is moved")
        # The files are on the disk, by their tasks; now their names are.
        storage.sync_folder(join_path(self.path, FOLDER_OF_JOBS))
        lines = encode_commit(next_number(storage, self.ledger_path), "export", run, now_ms, moved)
        with storage.open_for_append(self.ledger_path) as ledger:
            ledger.append(lines)
            ledger.sync()
        storage.sync_folder(join_path(self.path, FOLDER_OF_JOBS))
        self._put_in_place([file for each in moved for file in each.files])

    def _settle(self) -> None:
        """Finish the last commit of the ledger, cut off what is behind it, and remove what is staged."""
        storage, ledger = self._writable, self.ledger()
        if storage.identity(self.ledger_path) is not None:
            with storage.open_for_append(self.ledger_path) as file:
                if file.size_bytes() > ledger.size_bytes:
                    file.truncate(ledger.size_bytes)
                    file.sync()
        entries = () if ledger.last is None else ledger.last.entries
        self._put_in_place([file for each in entries if isinstance(each, Moved) for file in each.files])
        for name in sorted(self._staged()):
            storage.remove(self.staged_path(name))

    def _staged(self) -> set[str]:
        """Return the names of what is staged, as they were given to `staged_path`."""
        names = (entry.name for entry in self.storage.names(join_path(self.path, FOLDER_OF_JOBS)))
        return {name.removesuffix(STAGED) for name in names if name.endswith(STAGED)}

    def _put_in_place(self, files: Sequence[MovedFile]) -> None:
        storage = self._writable
        staged = self._staged()
        left = [file for file in files if file.staged in staged]
        folders = sorted({split_path(join_path(self.path, file.path))[0] for file in left})
        for folder in folders:
            storage.make_folder(folder)
        for file in left:
            storage.rename(self.staged_path(file.staged), join_path(self.path, file.path))
        if left:
            above = {split_path(folder)[0] for folder in folders if folder != self.path}
            storage.sync_folders([*sorted({*folders, *above}), join_path(self.path, FOLDER_OF_JOBS)])
