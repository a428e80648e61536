"""Changes the files of a partition's folder for recovery; in a dry run the changes are only recorded."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Self

from sparklog.errors import PathNotFoundError
from sparklog.log import files
from sparklog.log.directory_view import DirectoryView
from sparklog.log.files import OffsetFile, cut_file_name, offset_files, parse_offset_file, tells_of_segments
from sparklog.log.layout import PartitionLayout, at_one_time, layout_of
from sparklog.log.log_identity import encode_log_id, new_log_id
from sparklog.log.places import PartitionFolder
from sparklog.log.segment import Segment
from sparklog.log.segment_listing import list_segments
from sparklog.storage.base import Entry, ReadableFile
from sparklog.storage.kept_files import KeptFiles
from sparklog.write.small_files import write_atomically

KEPT: Final = "kept until 'sparklog recover --drop-cut'"
LOSSY: Final = "'sparklog recover --truncate' cuts the log there, which loses what follows; a replica may be whole"

_COMPARED_BYTES: Final = 1 << 20

_log = logging.getLogger("sparklog")


class Action(NamedTuple):
    """A change of a file; in a dry run, the change that would be made."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


class RecoveryActions:
    """Carries out recovery's decisions; in a dry run it only records them.

    The folder is listed once, and again after files are added to it, since nobody else changes it meanwhile.

    Parameters
    ----------
    folder : PartitionFolder
        The folder to recover.
    view : DirectoryView
        The files of its log directory about its logs.
    """

    def __init__(self, folder: PartitionFolder, view: DirectoryView, *, dry_run: bool, is_quiet: bool) -> None:
        self.storage, self.folder, self.view = folder.writable, folder, view
        self.is_dry, self._is_quiet = dry_run, is_quiet
        self.done: list[Action] = []
        self._removed: set[str] = set()
        self._unlisted: set[str] = set()
        self._entries: list[Entry] | None = None
        self._named: list[tuple[OffsetFile, Entry]] = []
        self._names: list[tuple[OffsetFile, str]] = []
        self._name_set: set[str] = set()
        self._segments: tuple[Segment, ...] | None = None
        self._kept = KeptFiles()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._kept.close()

    def layout(self) -> PartitionLayout:
        """Return the layout of the log. The files of its segments stay open for later reads."""
        if not self.is_dry:
            return layout_of(self.view, self.folder, self.segments(), is_to_be_cut=True)
        # In a dry run nobody holds the lock, and a commit may be carried out meanwhile.
        return at_one_time(
            [self.folder], lambda each, view: layout_of(view, each, list_segments(each), is_to_be_cut=True)
        )[0]

    def opened(self, name: str) -> AbstractContextManager[ReadableFile]:
        """Open a file of the folder for a ``with`` block. It stays open for the next block, too."""
        path = self.folder.file(name)
        return self.storage.open(path) if self.is_dry else self._kept.open(self.storage, path)

    def _change(self, *names: str) -> None:
        """Forget the folder's list, and open files in it, before they are changed."""
        self._entries = self._segments = None
        self._unlisted.clear()
        for name in names:
            self._kept.forget(self.folder.file(name))

    def _listed(self) -> list[Entry]:
        if self._entries is None:
            self._entries = self._entries_there()
            self._name(list(offset_files(self._entries)))
        elif self._unlisted:
            # Nobody else changes the folder: removals are known without listing it again.
            self._entries = [entry for entry in self._entries if entry.name not in self._unlisted]
            self._name([each for each in self._named if each[1].name not in self._unlisted])
            self._segments = None if any(map(tells_of_segments, self._unlisted)) else self._segments
            self._unlisted.clear()
        return self._entries

    def _name(self, named: list[tuple[OffsetFile, Entry]]) -> None:
        self._named = named
        self._names = [(found, entry.name) for found, entry in self._named]
        self._name_set = {name for _, name in self._names}

    def _entries_there(self) -> list[Entry]:
        try:
            return self.storage.entries(self.folder.location)
        except PathNotFoundError:
            # A commit plans before it is decided, and makes the folder of a new log after that.
            return []

    def names(self) -> list[tuple[OffsetFile, str]]:
        """List the files whose names start with an offset, without those that this dry run would have removed."""
        self._listed()
        return [each for each in self._names if each[1] not in self._removed] if self._removed else self._names

    def lists(self, name: str) -> bool:
        """Return whether `names` lists a file."""
        self._listed()
        return name in self._name_set and name not in self._removed

    def segments(self) -> tuple[Segment, ...]:
        """List the segments that a broker would load, including segments that this dry run would have removed."""
        entries = self._listed()
        if self._segments is None:
            self._segments = list_segments(self.folder, entries, self._named, None if self.is_dry else self._kept)
        return self._segments

    def has(self, name: str) -> bool:
        """Return whether the folder has a file of a name, even if this dry run would have removed it."""
        return any(entry.name == name for entry in self._listed())

    def remove(self, name: str, why: str) -> None:
        self._note(name, f"removed, {why}")
        if self.is_dry:
            self._removed.add(name)
        else:
            path = self.folder.file(name)
            self._kept.forget(path)
            self.storage.remove(path)
            self._unlisted.add(name)

    def rename(self, name: str, new_name: str, why: str) -> None:
        self._note(name, f"renamed to {new_name}, {why}")
        if self.is_dry:
            self._removed.add(name)
        else:
            self._change(name, new_name)
            self.storage.rename(self.folder.file(name), self.folder.file(new_name))

    def sync(self) -> None:
        """Wait until the names in the folder are on the disk."""
        if not self.is_dry:
            self.storage.sync_folder(self.folder.location)

    def cut(self, name: str, size_bytes: int, why: str) -> None:
        self._note(name, f"cut to {size_bytes} bytes, {why}")
        if not self.is_dry:
            self._change(name)
            with self.storage.open_for_append(self.folder.file(name)) as file:
                file.truncate(size_bytes)
                file.sync()

    def keep(self, name: str, position: int, end_position: int) -> str:
        """Copy a part of a segment's file to a file beside it, and sync that; return the name of that file."""
        base_offset = self.base_offset(name)
        number = 0
        while not self._is_free(kept := cut_file_name(base_offset, position, number), name, position, end_position):
            number += 1
        if not self.is_dry:
            self._change(kept)
            with self.storage.create(self.folder.file(kept), like=self.folder.file(name)) as file:
                file.append_from(self.folder.file(name), position, end_position - position)
                file.sync()
            self.storage.sync_folder(self.folder.location)
            self._change(kept)
        return kept

    @staticmethod
    def base_offset(name: str) -> int:
        """Return the base offset of a file's segment."""
        found = parse_offset_file(name)
        if found is None:
            raise AssertionError(f"a segment's file, and not {name}")
        return found.offset

    def _is_free(self, kept: str, name: str, position: int, end_position: int) -> bool:
        """Return whether no file has that name, or only one that a crash left with the first of the bytes."""
        try:
            old = self.storage.open(self.folder.file(kept))
        except PathNotFoundError:
            return True
        with old, self.storage.open(self.folder.file(name)) as log:
            size_bytes = old.size_bytes()
            if size_bytes > end_position - position:
                return False
            for start in range(0, size_bytes, _COMPARED_BYTES):
                length_bytes = min(_COMPARED_BYTES, size_bytes - start)
                if old.read(start, length_bytes) != log.read(position + start, length_bytes):
                    return False
        return True

    def warn(self, message: str) -> None:
        """Warn about a loss at once, unless the caller shows the actions anyway."""
        if not self._is_quiet and not self.is_dry:
            _log.warning("%s", message)

    def make(self, name: str, data: bytes, why: str) -> None:
        self._note(name, f"made, {why}")
        if not self.is_dry:
            self._change(name)
            write_atomically(self.folder, name, data)

    def begin_log(self, names: Iterable[str]) -> None:
        """Make the id of a new log, and the files of its first segment. This is not recorded as an action."""
        if not self.is_dry:
            # The id comes first: a log with the id of an older one would reuse its offsets unnoticed.
            write_atomically(self.folder, files.LOG_IDENTITY, encode_log_id(new_log_id()))
            self._change()
            for name in names:
                self.storage.open_for_append(self.folder.file(name)).close()
            self.storage.sync_folder(self.folder.location)

    def _note(self, name: str, what: str) -> None:
        self.done.append(Action(self.folder.file(name), what))
