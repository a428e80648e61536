"""Writes the journal of a commit, and makes the moves that it lists; `sparklog.log.journal` has the format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Self

import numpy as np

from sparklog.errors import CommitError, PathNotFoundError, StorageError
from sparklog.log import files
from sparklog.log.damage import is_zero
from sparklog.log.files import offset_file_name
from sparklog.log.journal import Append, Journal, Move, Rename, pending
from sparklog.log.places import LogDirectory, folder_of
from sparklog.storage.base import ReadableFile
from sparklog.write.group_offsets import add_transaction
from sparklog.write.locking import hold, opening
from sparklog.write.small_files import write_atomically

_COMPARED_BYTES: Final = 1 << 20
_SMALL_BYTES_MAX: Final = 1 << 14
"""Up to this size, a piece is read and written in less time than its file is opened to be copied from."""
_READ_BYTES: Final = 1 << 17


@contextmanager
def only_writer(directory: LogDirectory, lock_timeout_seconds: float) -> Iterator[None]:
    """Keep out brokers, other processes, and threads of this one that open a log; finish a decided commit."""
    with hold(directory, lock_timeout_seconds, is_shared=True), opening():
        apply_journal(directory)
        yield


def write_journal(directory: LogDirectory, journal: Journal) -> None:
    """Write the journal. This is the commit; its sources must be on the disk by now.

    The caller has checked with `refuse_foreign_changes` that it can be carried out.
    """
    write_atomically(directory, files.JOURNAL, journal.to_json())


def apply_journal(directory: LogDirectory, decided: Journal | None = None) -> Journal | None:
    """Make the moves of a journal, and remove it. The caller holds the lock of the directory.

    Parameters
    ----------
    decided : Journal, optional
        The journal, if the caller has just written it and has held the lock since, so that nobody else has written.

    Returns
    -------
    Journal or None
        The journal that was carried out; None if there is none.

    Raises
    ------
    CommitError
        Something else has changed the logs since the journal was written, or a file of the commit is gone.
    """
    journal = decided or pending(directory)
    if journal is None:
        return None
    if decided is None:
        refuse_foreign_changes(directory, journal)
    _make_folders(directory, journal.partitions)
    unsynced: list[Move] = []
    with _Source(directory) as small_pieces:
        for move in journal.moves:
            if isinstance(move, Append):
                _append(directory, move, small_pieces)
            else:
                if not folder_of(move.target):
                    # A broker believes the directory's own files, so the logs must be on the disk before them.
                    _sync(directory, unsynced)
                    unsynced.clear()
                _rename(directory, move)
            unsynced.append(move)
    _sync(directory, unsynced)
    if journal.offsets is not None:
        add_transaction(directory, journal.offsets)
    storage = directory.writable
    storage.rename(directory.file(files.JOURNAL), directory.file(files.LAST_COMMIT))
    storage.sync_folder(directory.path)
    for source in sorted({move.source for move in journal.moves if isinstance(move, Append)}):
        storage.remove(directory.file(source))
    return journal


def _make_folders(directory: LogDirectory, logs: Iterable[str]) -> None:
    """Make the folders of new logs. Their names are on the disk before anything is put into them."""
    storage = directory.writable
    missing = sorted(name for name in logs if not storage.is_folder(directory.file(name)))
    for name in missing:
        storage.make_folder(directory.file(name))
    if missing:
        storage.sync_folder(directory.path)


class _Source:
    """The source of the last small piece, which stays open: a commit takes the pieces of all its logs from one file."""

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self._file: ReadableFile | None = None
        # Bytes of that file, and the position of the first.
        self._data, self._position = memoryview(b""), 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def read(self, move: Append) -> memoryview:
        path = self._directory.file(move.source)
        if self._file is None or self._file.path != path:
            self.__exit__()
            self._file, self._data = self._directory.writable.open(path), memoryview(b"")
        if not self._position <= move.source_position <= self._position + len(self._data) - move.length_bytes:
            self._position = move.source_position
            self._data = self._file.read(self._position, _READ_BYTES)
        start = move.source_position - self._position
        data = self._data[start : start + move.length_bytes]
        if len(data) < move.length_bytes:
            raise StorageError(
                f"{path} ends {move.length_bytes - len(data)} bytes early: it was cut since it was written"
            )
        return data


def _append(directory: LogDirectory, move: Append, small_pieces: _Source) -> None:
    with directory.writable.open_for_append(directory.file(move.target)) as target:
        if target.size_bytes() != move.position:
            target.truncate(move.position)
        if move.length_bytes > _SMALL_BYTES_MAX:
            target.append_from(directory.file(move.source), move.source_position, move.length_bytes)
        elif move.length_bytes:
            target.append(small_pieces.read(move))


def _rename(directory: LogDirectory, move: Rename) -> None:
    try:
        directory.writable.rename(directory.file(move.source), directory.file(move.target))
    except PathNotFoundError:
        # Done before, or lost; refuse_foreign_changes has ruled out the latter.
        return


def _sync(directory: LogDirectory, moves: Sequence[Move]) -> None:
    # An empty file has no content to lose, and its name is in its folder.
    appended = {move.target for move in moves if isinstance(move, Append) and move.end_position}
    directory.writable.sync_files([directory.file(target) for target in sorted(appended)])
    folders = {folder_of(move.target) for move in moves}
    directory.writable.sync_folders([directory.file(name) for name in sorted(folders) if name])
    # After the others: the old names of renamed files must not be gone before the new ones are on the disk.
    if "" in folders:
        directory.writable.sync_folder(directory.path)


def refuse_foreign_changes(directory: LogDirectory, journal: Journal) -> None:
    """Raise `CommitError` unless the files are as the journal found or left them, perhaps carried out in part."""
    appended: dict[str, list[Append]] = {}
    renamed: set[str] = set()
    for move in journal.moves:
        if isinstance(move, Rename):
            if not any(map(directory.storage.identity, (directory.file(move.source), directory.file(move.target)))):
                raise CommitError(f"a file of the commit is gone: {directory.file(move.source)}. {_WAY_OUT}")
            renamed.add(move.target)
        elif move.target not in renamed:
            appended.setdefault(move.target, []).append(move)
    for folder, bound in journal.partitions.items():
        last = directory.folder(folder).relative(offset_file_name(max(bound.segment, 0), files.LOG))
        if bound.segment >= 0:
            appended.setdefault(last, [Append("", 0, 0, last, bound.position)])
    for target, parts in appended.items():
        _check_target(directory, target, parts)


_WAY_OUT: Final = (
    f"To keep the logs as they are, without the rest of this commit, remove {files.JOURNAL}; its files end in "
    f"{files.STAGED}"
)


def _check_target(directory: LogDirectory, name: str, parts: list[Append]) -> None:
    """Check that a target reaches the position of its first part, and holds nothing of others after that."""
    path = directory.file(name)
    # Most targets end where the commit goes on: their size is enough, and they need not be opened.
    found = directory.storage.stamp(path)
    if found is None:
        if parts[0].position:
            raise CommitError(f"a file that the commit continues is gone: {path}. {_WAY_OUT}")
        return
    if found.size_bytes < parts[0].position:
        raise CommitError(
            f"{path} was cut to {found.size_bytes} bytes since the commit, which continues at {parts[0].position}. "
            f"{_WAY_OUT}"
        )
    if found.size_bytes == parts[0].position:
        return
    with directory.storage.open(path) as target:
        if not (
            all(_is_of(directory, target, part) for part in parts)
            and is_zero(target, parts[-1].end_position, target.size_bytes())
        ):
            raise CommitError(f"{path} has been written to by others since the commit. {_WAY_OUT}")


def _is_of(directory: LogDirectory, target: ReadableFile, part: Append) -> bool:
    """Return whether a target differs from a part only by zeros, which are bytes that were not synced."""
    if not part.length_bytes:
        return True
    with directory.storage.open(directory.file(part.source)) as source:
        for start in range(0, part.length_bytes, _COMPARED_BYTES):
            length_bytes = min(_COMPARED_BYTES, part.length_bytes - start)
            found = np.frombuffer(target.read(part.position + start, length_bytes), np.uint8)
            wanted = np.frombuffer(source.read(part.source_position + start, length_bytes), np.uint8)
            if len(wanted) < length_bytes or ((found != wanted[: len(found)]) & (found != 0)).any():
                return False
            if len(found) < length_bytes:
                return True
    return True
