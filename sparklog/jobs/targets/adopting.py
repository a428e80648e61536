"""Adopts or refuses exported files that their ledger does not know, since it is lost or restored from an older copy.

The names of the files tell which offsets they hold. Moving these again would double rows, so an export refuses such
files. Or it adopts them: it records in the ledger that their offsets were moved, with the contents of the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from typing import Final

from crc32c import crc32c

from sparklog.errors import InvalidOptionError, OutputNameError
from sparklog.jobs.files.formats import format_of_file
from sparklog.jobs.files.seekable import SeekableFile
from sparklog.jobs.ledger import Ledger, LedgerEntry, Moved, MovedFile
from sparklog.jobs.targets.outputs import DEAD_LETTER, FileName, parse_file_name
from sparklog.jobs.targets.targets import FOLDER_OF_JOBS, MovedLast, TableFolder, TableShape
from sparklog.log.files import TopicPartition
from sparklog.log.places import folders_of, join_path, path_of
from sparklog.storage.base import Storage

_WINDOW_BYTES: Final = 1 << 22


def known_by_files(target: TableFolder, moved: MovedLast, *, adopts: bool) -> MovedLast:
    """Return the last moved ranges of partitions by the ledger, and by the names of files if they are adopted.

    Raises
    ------
    InvalidOptionError
        A file has offsets that are not moved according to the ledger, and ``adopts`` is False.
    """
    unknown = _unknown_files(target, moved)
    if unknown and not adopts:
        at, (name, path) = next(iter((each[0].topic_partition, each) for each in unknown))
        before = moved(at)
        end = 0 if before is None else before.end_offset
        raise InvalidOptionError(
            f"{join_path(target.path, path)} holds offsets up to {name.end_offset} of {at} by its name, and the ledger "
            f"{target.ledger_path} says that {at} is moved up to {end}: it is gone, or older than the files, and their "
            f"records would be there twice. Restore the ledger, move to another target, or take the files as moved "
            f"with adopt (--adopt)"
        )
    ends: dict[TopicPartition, int] = {}
    for name, _ in unknown:
        ends[name.topic_partition] = max(name.end_offset, ends.get(name.topic_partition, 0))

    def last(at: TopicPartition) -> Moved | None:
        return Moved(*at, ends[at], ends[at], 0, 0) if at in ends else moved(at)

    return last


def adopt_files(target: TableFolder, table: TableShape, run: str, now_ms: int) -> None:
    """Read the files that the ledger does not know, and record them in the ledger.

    Raises
    ------
    InvalidOptionError
        Two of them have the same offsets, or one has offsets that are moved according to the ledger.
    """
    with target.held():
        ledger = target.ledger()
        unknown = _unknown_files(target, target.moved(table))
        if unknown:
            entries: list[LedgerEntry] = [] if ledger.settings else [table.settings]
            target.tell([*entries, *_adopted(target, ledger, unknown)], "adopt", run, now_ms)


def _unknown_files(target: TableFolder, moved: MovedLast) -> list[tuple[FileName, str]]:
    """Return the files with offsets from the ends of the ledger on, sorted by partition and offset."""
    found = []
    for path in files_below(target.storage, target.path):
        name = parse_file_name(path)
        # If a file of a partition is still staged, the ledger knows it, and the partition is not moved anyway.
        with suppress(OutputNameError):
            last = None if name is None else moved(name.topic_partition)
            if name is not None and name.end_offset > (0 if last is None else last.end_offset):
                found.append((name, path))
    return sorted(found, key=lambda each: (each[0].topic_partition, each[0].start_offset, each[0].end_offset, each[1]))


def _adopted(target: TableFolder, ledger: Ledger, unknown: list[tuple[FileName, str]]) -> Iterator[Moved]:
    """Yield a range for all files with the same one; it begins where the previous ends, like all in a ledger."""
    last: dict[TopicPartition, int] = {at: moved.end_offset for at, moved in ledger.moved.items()}
    for name, group in groupby(unknown, key=lambda each: each[0]):
        paths = [path for _, path in group]
        at, start = name.topic_partition, last.get(name.topic_partition, name.start_offset)
        if name.start_offset < start:
            raise InvalidOptionError(
                f"{join_path(target.path, paths[0])} holds offsets from {name.start_offset} on of {at}, and those up "
                f"to {start} are in other files: remove the files with the same rows, or move to another target"
            )
        last[at] = name.end_offset
        both = [_read(target, path) for path in paths]
        dead_letters = tuple(file for file in both if folders_of(file.path)[:1] == [DEAD_LETTER])
        yield Moved(
            at.topic,
            at.partition,
            start,
            name.end_offset,
            sum(file.rows for file in both),
            log_bytes=0,
            files=tuple(file for file in both if file not in dead_letters),
            dead_letters=dead_letters,
        )


def _read(target: TableFolder, path: str) -> MovedFile:
    kind, checksum, position = format_of_file(path), 0, 0
    with target.writable.open(join_path(target.path, path)) as file:
        while window := file.read(position, _WINDOW_BYTES):
            checksum, position = crc32c(window, checksum), position + len(window)
        rows = 0 if kind is None else kind.count_rows(SeekableFile(file))
    return MovedFile(path, position, rows, checksum, "")


def files_below(storage: Storage, root: str, relative: str = "") -> Iterator[str]:
    """Yield the paths of the files in a folder of tables, relative to it, except those of jobs."""
    for entry in storage.names(join_path(root, relative) if relative else root) if storage.is_folder(root) else ():
        path = path_of(relative, entry.name)
        if entry.is_folder and path != FOLDER_OF_JOBS:
            yield from files_below(storage, root, path)
        elif not entry.is_folder:
            yield path
