"""Compares a folder of tables with its ledger: finds files that are missing, doubled, changed or unknown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from sparklog.errors import CorruptCheckpointError, ForeignNameError, PathNotFoundError, SeglogError
from sparklog.jobs.check.findings import LedgerFinding, unjoined_ranges
from sparklog.jobs.check.lake import find_lake, verify_lake
from sparklog.jobs.files.formats import format_of_file
from sparklog.jobs.files.seekable import SeekableFile
from sparklog.jobs.ledger import LedgerCommit, Moved, MovedFile, commits
from sparklog.jobs.targets.adopting import files_below
from sparklog.jobs.targets.staged_file import crc32c_of
from sparklog.jobs.targets.targets import TableFolder, own_path, staged_names
from sparklog.log.files import STAGED, TopicPartition
from sparklog.log.places import join_path
from sparklog.storage.base import ReadableFile, Storage
from sparklog.storage.registry import PathText
from sparklog.topic.places.discovery import place_at


def verify_ledger(
    target: PathText,
    *,
    reads_files: bool = True,
    table: str | None = None,
    catalog: Mapping[str, str] | None = None,
) -> Iterator[LedgerFinding]:
    """Compare a folder of tables with its ledger; no job may write to the folder meanwhile.

    The log of a Delta Lake or Iceberg table is its ledger. It has sizes and numbers of rows of files, but no checksums.

    Parameters
    ----------
    target : str or os.PathLike
        The folder.
    reads_files : bool
        Whether to check checksums and numbers of rows as well, which reads all files.
    table, catalog
        The name of an Iceberg table and the properties of its catalog; see `sparklog.export`.

    Yields
    ------
    LedgerFinding
        The differences; none if all is well.

    Raises
    ------
    PathNotFoundError
        The folder does not exist, or has no ledger.
    InvalidOptionError
        It is an Iceberg table, and its catalog is not given.
    """
    storage, path = place_at(target, "target")
    lake = find_lake(storage, path, table, catalog)
    if lake is not None:
        yield from verify_lake(lake, reads_files=reads_files)
        return
    folder = TableFolder(storage, path)
    if storage.identity(folder.ledger_path) is None:
        raise PathNotFoundError(f"there is no ledger at {folder.ledger_path}: nothing was moved to {path} by a job")
    check = _Check(storage, path, reads_files=reads_files)
    last: dict[TopicPartition, Moved] = {}
    try:
        for commit in commits(storage, folder.ledger_path):
            yield from unjoined_ranges(commit, last, folder.ledger_path)
            yield from check.files(commit)
    except CorruptCheckpointError as error:
        yield LedgerFinding("ledger", folder.ledger_path, error.message)
        return
    yield from check.unknown()


class _Check:
    """Checks the files that commits name, and remembers them."""

    def __init__(self, storage: Storage, path: str, *, reads_files: bool) -> None:
        self._storage, self._path, self._reads_files = storage, path, reads_files
        self._named: set[str] = set()
        self._staged: set[str] = set()
        self._staged_there = staged_names(storage, path)

    def files(self, commit: LedgerCommit) -> Iterator[LedgerFinding]:
        for moved in commit.moved:
            if sum(file.rows for file in moved.all_files) != moved.rows:
                of = f"[{moved.start_offset}, {moved.end_offset}) of {moved.topic_partition}"
                yield LedgerFinding("rows", self._path, f"the files of {of} do not have its {moved.rows} rows")
            for file in moved.all_files:
                path = join_path(self._path, file.path)
                if path in self._named:
                    yield LedgerFinding("doubled", path, f"commit {commit.number} names it, and one before has")
                self._named.add(path)
                yield from self._file(file, path)

    def _file(self, file: MovedFile, path: str) -> Iterator[LedgerFinding]:
        try:
            found = self._storage.beneath(self._path).open(path)
        except ForeignNameError as error:
            yield LedgerFinding("foreign", path, error.message)
            return
        except PathNotFoundError:
            if file.staged not in self._staged_there:
                yield LedgerFinding("missing", path, "it was moved, and is not there")
            else:
                self._staged.add(file.staged)
                yield LedgerFinding("unfinished", path, "it is still staged: the next run gives it its name")
            return
        with found:
            size_bytes = found.size_bytes()
            if size_bytes != file.size_bytes:
                yield LedgerFinding("size", path, f"it has {size_bytes} bytes, and had {file.size_bytes}")
            elif self._reads_files:
                yield from _content(found, file, path)

    def unknown(self) -> Iterator[LedgerFinding]:
        """Yield the files of the target that no commit names."""
        for path in files_below(self._storage, self._path):
            whole = join_path(self._path, path)
            if whole not in self._named:
                yield LedgerFinding("unknown", whole, "no commit names it")
        for name in sorted(self._staged_there - self._staged):
            whole = own_path(self._path, name + STAGED)
            yield LedgerFinding("staged", whole, "a run goes on, or died: the next one removes it")


def _content(found: ReadableFile, file: MovedFile, path: str) -> Iterator[LedgerFinding]:
    checksum = crc32c_of(found)
    if checksum != file.crc32c:
        yield LedgerFinding("checksum", path, f"its CRC-32C is {checksum}, and was {file.crc32c}")
        return
    kind = format_of_file(file.path)
    if kind is None:
        return
    try:
        rows = kind.count_rows(SeekableFile(found))
    except (pa.ArrowException, OSError, SeglogError) as error:
        yield LedgerFinding("rows", path, f"it is no file of the format {kind.name}: {error}")
        return
    if rows != file.rows:
        yield LedgerFinding("rows", path, f"it has {rows} rows, and {file.rows} were moved")
