"""Stores a log in a set of backups, piece by piece.

A file whose stamp is that of the last backup is not read. Of a segment that has grown, the stored part is read to
compare its checksum, and only the rest is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from sparklog.errors import CorruptLogError, PathNotFoundError
from sparklog.jobs.backup.manifest import BackupFile, BackupPartition
from sparklog.jobs.backup.pieces import Piece, PieceStore, piece_of
from sparklog.jobs.mirror.taken import SoundBatches, TakenFile, TakenLog
from sparklog.jobs.run.job import OF_ONE_PARTITION, Amount, Report
from sparklog.log import files
from sparklog.log.places import LogDirectory
from sparklog.log.segment import Segment
from sparklog.storage.base import Stamp

_PIECES_MAX: Final = 64
"""A file with more pieces is stored anew, as one."""
_COMPARED_BYTES: Final = 1 << 20
NO_STAMP: Final = Stamp((0, 0), 0, 0)


@dataclass(frozen=True)
class BackupPiece:
    """A log to store, and its files in the last backup, by name."""

    taken: TakenLog
    known: Mapping[str, BackupFile]
    high_watermark: int | None

    @property
    def name(self) -> str:
        return self.taken.folder.name

    @property
    def log_bytes(self) -> int:
        return sum(each.size_bytes for each in self.taken.logs if not _is_stored(self.known.get(each.name), each))


class Stored(NamedTuple):
    """A log in a backup, also that of the cluster's metadata, and how many bytes were stored."""

    log: BackupPartition
    new_bytes: int


def store_log(place: LogDirectory, piece: BackupPiece, report: Report) -> Stored | PathNotFoundError:
    """Store a log in a set, where it does not count until a manifest names it.

    Returns
    -------
    Stored or PathNotFoundError
        The error if it has changed meanwhile, and is to be looked at again.
    """
    with PieceStore(place) as store:
        try:
            found = _LogStoring(piece, store, report).run()
        except PathNotFoundError as error:
            return error
        store.publish()
    return found


class _LogStoring:
    def __init__(self, piece: BackupPiece, store: PieceStore, report: Report) -> None:
        self._piece, self._taken, self._store, self._report = piece, piece.taken, store, report
        self._source, self._files, self._new_bytes = SoundBatches(), list[BackupFile](), 0

    def run(self) -> Stored:
        layout, error, end_offset = self._taken.layout, None, self._taken.layout.end_offset
        try:
            for segment, file in self._taken.pairs():
                self._store_log(segment, file)
        except OF_ONE_PARTITION as damage:
            error = str(damage)
            offset = damage.offset if isinstance(damage, CorruptLogError) else None
            end_offset = layout.start_offset if offset is None else max(offset, layout.start_offset)
        for file in self._taken.others:
            # Indexes and snapshots may be of what comes after the damage.
            if error is None or files.parse_offset_file(file.name) is None:
                self._store_small(file)
        epochs, folder = self._taken.epochs_taken(), layout.folder
        if epochs is not None:
            self._files.append(BackupFile(files.LEADER_EPOCH_CHECKPOINT, NO_STAMP, self._store.put([epochs])))
        log = BackupPartition(
            files.METADATA_TOPIC if folder.partition is None else folder.topic,
            folder.partition or 0,
            layout.start_offset,
            end_offset,
            self._piece.high_watermark,
            error,
            tuple(self._files),
        )
        return Stored(log, self._new_bytes)

    def _store_log(self, segment: Segment, file: TakenFile) -> None:
        pieces = self._stored_part(segment, file, self._piece.known.get(file.name))
        position = sum(piece.size_bytes for piece in pieces)
        try:
            if position < file.size_bytes:
                pieces = (*pieces, *self._store.put(self._counted(segment, position, file.size_bytes)))
        except OF_ONE_PARTITION:
            pieces = (*pieces, *self._store.last)
            raise
        finally:
            self._files.append(BackupFile(file.name, file.lasting, pieces))

    def _counted(self, segment: Segment, position: int, end_position: int) -> Iterator[memoryview]:
        for data in self._source.read(segment, position, end_position):
            self._new_bytes += len(data)
            self._report(Amount(len(data)))
            yield data

    def _stored_part(self, segment: Segment, file: TakenFile, known: BackupFile | None) -> tuple[Piece, ...]:
        """Return the pieces of the last backup with which a segment begins; none if it does not begin with all."""
        if known is None or file.size_bytes < known.size_bytes or not all(map(self._store.has, known.pieces)):
            return ()
        if _is_stored(known, file):
            self._source.pass_over(segment, file)
            return known.pieces
        if len(known.pieces) >= _PIECES_MAX:
            return ()
        position, compared_from = 0, max(known.size_bytes - _COMPARED_BYTES, 0)
        with segment.file() as source:
            compared = bytes(source.read(compared_from, known.size_bytes - compared_from))
            for piece in known.pieces:
                if piece_of(source, position, piece.size_bytes) != piece:
                    return ()
                position += piece.size_bytes
        self._source.follow(segment, compared_from, compared)
        return known.pieces

    def _store_small(self, file: TakenFile) -> None:
        known = self._piece.known.get(file.name)
        if known is None or not _is_stored(known, file) or not all(map(self._store.has, known.pieces)):
            known = BackupFile(file.name, file.lasting, self._store.put([self._taken.read_small(file)]))
        self._files.append(known)


def _is_stored(known: BackupFile | None, file: TakenFile) -> bool:
    """Return whether a file has not changed since the last backup, by its stamp."""
    return known is not None and known.stamp == file.stamp and known.size_bytes == file.size_bytes
