"""Checks a Delta Lake or Iceberg table: compares the offsets that it records as moved with its files and rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet

from sparklog.errors import ForeignNameError, InvalidOptionError, PathNotFoundError, SeglogError
from sparklog.jobs.check.findings import LedgerFinding, unjoined_ranges
from sparklog.jobs.files.seekable import SeekableFile
from sparklog.jobs.ledger import Moved
from sparklog.jobs.targets.delta import DeltaTarget
from sparklog.jobs.targets.iceberg import IcebergTarget
from sparklog.jobs.targets.lake import LakeTarget
from sparklog.jobs.targets.outputs import FileName, parse_file_name
from sparklog.jobs.targets.table_log import TableFile, TableLog
from sparklog.jobs.targets.targets import FOLDER_OF_JOBS, own_path, staged_names
from sparklog.jobs.targets.unfinished_files import unfinished_of
from sparklog.log.files import STAGED, TopicPartition
from sparklog.log.places import join_path, path_of
from sparklog.storage.base import Storage

_OF_DELTA = "_delta_log"
_OF_ICEBERG = "metadata"


def find_lake(storage: Storage, path: str, table: str | None, catalog: Mapping[str, str] | None) -> LakeTarget | None:
    """Return the table if its own log records what was moved to it; None for a folder with a ledger.

    Raises
    ------
    InvalidOptionError
        Only one of ``table`` and ``catalog`` is given, or none although it is an Iceberg table.
    """
    if table is not None and catalog is not None:
        return IcebergTarget(storage, path, table, tuple(sorted(catalog.items())))
    if table is not None or catalog is not None:
        raise InvalidOptionError("an Iceberg table needs a catalog and the name of the table in it: give both")
    if storage.is_folder(join_path(path, _OF_DELTA)):
        return DeltaTarget(storage, path)
    metadata = join_path(path, _OF_ICEBERG)
    if storage.is_folder(metadata) and any(each.name.endswith(".metadata.json") for each in storage.names(metadata)):
        raise InvalidOptionError(f"{path} is an Iceberg table: give its name and its catalog too")
    return None


def verify_lake(target: LakeTarget, *, reads_files: bool) -> Iterator[LedgerFinding]:
    """Compare the moved ranges in a table's own log with its files; see `sparklog.jobs.check.ledger.verify_ledger`."""
    log = target.log()
    if not log.ends:
        raise PathNotFoundError(f"nothing was moved to the table {target.path} by a job: none of its commits says so")
    last: dict[TopicPartition, Moved] = {}
    for commit in log.commits:
        yield from unjoined_ranges(commit, last, target.path)
    yield from _ends(log, last, target.path)
    yield from (LedgerFinding("ledger", target.path, reason) for reason in log.outlived)
    named = [(file.name, file) for file in log.files if file.name is not None]
    yield from _doubled(named)
    for name, file in named:
        end = log.ends.get(name.topic_partition, 0)
        if name.end_offset > end:
            yield LedgerFinding(
                "overlap", file.path, f"the table says that {name.topic_partition} is moved up to {end} only"
            )
        yield from _file(target, file, reads_files=reads_files)
    yield from _rows(log, target.path)
    yield from _unknown(target, log)


def _ends(log: TableLog, last: Mapping[TopicPartition, Moved], path: str) -> Iterator[LedgerFinding]:
    """Yield partitions whose end in the table differs from its last commit."""
    for at, moved in last.items():
        end = log.ends.get(at, 0)
        if end != moved.end_offset:
            reason = f"{at} is moved up to {end} by the table, and up to {moved.end_offset} by its last commit"
            yield LedgerFinding("ledger", path, reason)


def _doubled(named: list[tuple[FileName, TableFile]]) -> Iterator[LedgerFinding]:
    """Yield files with offsets that another file has as well; files of one range may be in several folders."""
    ranges: dict[TopicPartition, dict[tuple[int, int], str]] = {}
    for name, file in named:
        ranges.setdefault(name.topic_partition, {})[name.start_offset, name.end_offset] = file.path
    for at, of_partition in ranges.items():
        for (_, end), (start, other_end) in pairwise(sorted(of_partition)):
            if start < end:
                reason = f"another file has offsets up to {end} of {at} as well"
                yield LedgerFinding("doubled", of_partition[start, other_end], reason)


def _file(target: LakeTarget, file: TableFile, *, reads_files: bool) -> Iterator[LedgerFinding]:
    path = _path(target, file)
    try:
        # A table may have files elsewhere, with absolute paths.
        is_within = not file.path.startswith("/")
        found = (target.storage.beneath(target.path) if is_within else target.storage).open(path)
    except ForeignNameError as error:
        yield LedgerFinding("foreign", path, error.message)
        return
    except PathNotFoundError:
        yield LedgerFinding("missing", path, "it is part of the table, and is not there")
        return
    with found:
        if found.size_bytes() != file.size_bytes:
            reason = f"it has {found.size_bytes()} bytes, and had {file.size_bytes}"
            yield LedgerFinding("size", path, reason)
            return
        if not reads_files:
            return
        try:
            # Without a checksum to compare, damage is found by reading the whole file.
            with pyarrow.parquet.ParquetFile(SeekableFile(found), page_checksum_verification=True) as parquet:
                rows = sum(batch.num_rows for batch in parquet.iter_batches())
        except (pa.ArrowException, OSError, SeglogError) as error:
            yield LedgerFinding("rows", path, f"it cannot be read: {error}")
            return
    if file.rows is not None and rows != file.rows:
        yield LedgerFinding("rows", path, f"it has {rows} rows, and {file.rows} were moved")


def _path(target: LakeTarget, file: TableFile) -> str:
    return file.path if file.path.startswith("/") else join_path(target.path, file.path)


def _rows(log: TableLog, path: str) -> Iterator[LedgerFinding]:
    """Yield ranges whose files do not have the moved rows; if others have rewritten files, one finding says so."""
    all_moved = [each for commit in log.commits for each in commit.moved]
    rows_there = sum(file.rows or 0 for file in log.files)
    if log.keeps_rows and not log.is_append_only and rows_there >= sum(moved.rows for moved in all_moved):
        return
    for moved in all_moved:
        rows = sum(file.rows for file in moved.files)
        if rows == moved.rows:
            continue
        of = f"offsets [{moved.start_offset}, {moved.end_offset}) of {moved.topic_partition}"
        if log.is_append_only:
            yield LedgerFinding("rows", path, f"the files of {of} have {rows} rows, and {moved.rows} were moved")
            continue
        reason = f"others have rewritten files, such as those of {of}, so that rows cannot be told from the log"
        yield LedgerFinding("rewritten", path, reason)
        return


def _unknown(target: LakeTarget, log: TableLog) -> Iterator[LedgerFinding]:
    """Yield files with names like ours that are not part of the table, and staged files."""
    storage, path = target.storage, target.path
    known = {storage.real(_path(target, file)) for file in log.files}
    unfinished = {each for _, _, each in unfinished_of(storage, path)}
    for relative in _walk(storage, path, ""):
        whole = join_path(path, relative)
        if storage.real(whole) in known or parse_file_name(relative) is None:
            continue
        if whole in unfinished:
            yield LedgerFinding("unfinished", whole, "its commit was not finished: the next run removes it")
        elif log.is_append_only:
            yield LedgerFinding("unknown", whole, "it is no part of the table")
    names = staged_names(storage, path) if storage.is_folder(join_path(path, FOLDER_OF_JOBS)) else set()
    for name in sorted(names):
        yield LedgerFinding("staged", own_path(path, name + STAGED), "a run goes on, or died: the next one removes it")


def _walk(storage: Storage, root: str, relative: str) -> Iterator[str]:
    """Yield the files below a table's folder, except those in folders that readers skip."""
    for entry in storage.names(join_path(root, relative) if relative else root):
        if entry.is_folder and not entry.name.startswith("_"):
            yield from _walk(storage, root, path_of(relative, entry.name))
        elif not entry.is_folder:
            yield path_of(relative, entry.name)
