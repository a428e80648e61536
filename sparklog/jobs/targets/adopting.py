"""Files of an export that the ledger of their folder does not know: it is gone, or was restored from an older copy.

Their names say which offsets they hold. Moved again, these would be there twice, so that an export refuses them; or it
adopts them: the ledger then says that they were moved, with what the files hold.
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
from sparklog.jobs.ledger import Entry, Ledger, Moved, MovedFile
from sparklog.jobs.targets.outputs import DEAD_LETTER, FileName, parse_file_name
from sparklog.jobs.targets.targets import FOLDER_OF_JOBS, MovedLast, TableFolder, TableShape
from sparklog.log.files import TopicPartition
from sparklog.log.places import folders_of, join_path, path_of
from sparklog.storage.base import Storage

_WINDOW_BYTES: Final = 1 << 22


def known_by_files(target: TableFolder, moved: MovedLast, *, adopts: bool) -> MovedLast:
    """Return what was moved last of a partition by the ledger, and by the names of files where these are adopted.

    Raises
    ------
    InvalidOptionError
        A file has offsets that are not moved by the ledger, and files are not adopted.
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
    """Say in the ledger of what files it does not know; they are read.

    Raises
    ------
    InvalidOptionError
        Two of them have the same offsets, or one has some that the ledger says to be moved.
    """
    with target.held():
        ledger = target.ledger()
        unknown = _unknown_files(target, target.moved(table))
        if unknown:
            entries: list[Entry] = [] if ledger.settings else [table.settings]
            target.tell([*entries, *_adopted(target, ledger, unknown)], "adopt", run, now_ms)


def _unknown_files(target: TableFolder, moved: MovedLast) -> list[tuple[FileName, str]]:
    """Return the files behind the ends of the ledger, by partitions and offsets."""
    found = []
    for path in files_below(target.storage, target.path):
        name = parse_file_name(path)
        # Where a file of a partition waits for its name, the ledger knows it, and the partition is not moved anyway.
        with suppress(OutputNameError):
            last = None if name is None else moved(name.topic_partition)
            if name is not None and name.end_offset > (0 if last is None else last.end_offset):
                found.append((name, path))
    return sorted(found, key=lambda each: (each[0].topic_partition, each[0].start_offset, each[0].end_offset, each[1]))


def _adopted(target: TableFolder, ledger: Ledger, unknown: list[tuple[FileName, str]]) -> Iterator[Moved]:
    """Yield a range for the files that have the same one; it begins where the one before ends, as all of a ledger."""
    last: dict[TopicPartition, int] = {at: moved.end_offset for at, moved in ledger.moved.items()}
    for name, group in groupby(unknown, key=lambda each: each[0]):
        paths = [path for _, path in group]
        at, start = name.topic_partition, last.get(name.topic_partition, name.start_offset)
        if name.start_offset < start:
            raise InvalidOptionError(
                f"{join_path(target.path, paths[0])} holds offsets from {name.start_offset} on of {at}, and those up "
                f"to {start} are in other files: remove what is there twice, or move to another target"
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
    """Yield the paths of the files of a folder of tables, relative to it, but for those of jobs."""
    for entry in storage.names(join_path(root, relative) if relative else root) if storage.is_folder(root) else ():
        path = path_of(relative, entry.name)
        if entry.is_folder and path != FOLDER_OF_JOBS:
            yield from files_below(storage, root, path)
        elif not entry.is_folder:
            yield path
