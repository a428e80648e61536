"""Checks a set of backups: every manifest, and the checksum of every piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Final

from sparklog.errors import CorruptLogError, SeglogError
from sparklog.inspect.verify_segment import Finding, Severity
from sparklog.jobs.backup.arguments import set_at
from sparklog.jobs.backup.as_directory import PIECE_ADVICE
from sparklog.jobs.backup.manifest import BackupManifest, backup_ids, manifest_path, read_manifest
from sparklog.jobs.backup.pieces import Piece, open_piece, piece_of
from sparklog.jobs.run.job import Amount, Report, Runner, Watch, found_by
from sparklog.jobs.run.local import runner_of
from sparklog.jobs.run.pieces import PiecesWork
from sparklog.log.places import LogDirectory
from sparklog.storage.given_options import with_storage_options
from sparklog.storage.registry import PathText

_ERRORS_MAX: Final = 101


@dataclass(frozen=True)
class _UsedPiece:
    """A piece, and the first file that needs it: the backup, and the file's path in the log directory."""

    piece: Piece
    backup_id: str
    file: str
    files: int = 1

    @property
    def name(self) -> str:
        return self.piece.name

    @property
    def log_bytes(self) -> int:
        return self.piece.size_bytes


def _check(place: LogDirectory, used: _UsedPiece, report: Report) -> Finding | None:
    """Return the fault of a piece; None if it is sound."""
    path, needed = place.file(used.name), f"{used.file} of backup {used.backup_id} needs it"
    if used.files > 1:
        needed += f", and so do {used.files - 1} other files of backups"
    try:
        with open_piece(place, used.piece) as file:
            found = piece_of(file, 0, used.piece.size_bytes + 1)
    except SeglogError as error:
        return Finding(Severity.ERROR, "piece-missing", path, f"{error}; {needed}")
    report(Amount(found.size_bytes))
    if found == used.piece:
        return None
    message = f"its bytes have changed since the backup was made; {needed}"
    return Finding(Severity.ERROR, "piece-checksum", path, message)


def verify_backups(
    target: PathText,
    *,
    processes: int | None = None,
    spark: Any = None,
    watch: Watch | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Iterator[Finding]:
    """Check every manifest and every piece of a set of backups, and change nothing.

    Parameters
    ----------
    target : str or os.PathLike
        A set of backups.
    processes : int, optional
        The number of processes on this machine; by default as many as the work is worth.
    spark : SparkSession, optional
        Runs the work on its cluster instead.
    watch : Watch, optional
        Receives the progress of the work.
    storage_options : mapping of str to str, optional
        The options of paths that are URLs, such as ``endpoint``; see `sparklog.place`.

    Yields
    ------
    Finding
        An error for each manifest and each piece that is damaged or missing, and a warning for each log that was
        damaged when the backup was made.

    Raises
    ------
    PathNotFoundError
        There is no such set.
    """
    runner = runner_of(processes, spark)
    with with_storage_options(storage_options):
        place = set_at(target)
    used = dict[str, _UsedPiece]()
    for backup_id in backup_ids(place):
        path = place.file(manifest_path(backup_id))
        try:
            manifest = read_manifest(place, backup_id)
        except SeglogError as error:
            yield Finding(Severity.ERROR, "manifest", path, str(error))
            continue
        for partition in manifest.partitions:
            if partition.error is not None:
                message = f"{partition.topic_partition} was damaged when this backup was made: {partition.error}"
                yield Finding(Severity.WARNING, "backup-damaged", path, message, offset=partition.end_offset)
        _use(used, manifest)
    yield from _checked(place, used, runner, watch)


def refuse_damaged_backup(
    place: LogDirectory, manifest: BackupManifest, runner: Runner, watch: Watch | None = None
) -> None:
    """Read every piece of a backup, and raise `CorruptLogError` if one is damaged or missing.

    The error is of the first such piece, with up to 100 errors of other pieces.
    """
    used = dict[str, _UsedPiece]()
    _use(used, manifest)
    errors = [
        CorruptLogError(f"a piece is damaged or missing: {each.message}", path=each.path, hint=PIECE_ADVICE)
        for each in islice(_checked(place, used, runner, watch), _ERRORS_MAX)
    ]
    if errors:
        errors[0].others = tuple(errors[1:])
        raise errors[0]


def _use(used: dict[str, _UsedPiece], manifest: BackupManifest) -> None:
    for name, file in manifest.all_files():
        for piece in file.pieces:
            known = used.get(piece.sha256)
            used[piece.sha256] = (
                replace(known, files=known.files + 1) if known else _UsedPiece(piece, manifest.backup_id, name)
            )


def _checked(
    place: LogDirectory, used: dict[str, _UsedPiece], runner: Runner, watch: Watch | None
) -> Iterator[Finding]:
    if used:
        work = PiecesWork(tuple(used.values()), partial(_check, place), runner.workers)
        yield from (each for each in found_by(work, runner, watch) if each is not None)
