"""`sparklog.backup`: makes a backup of a log directory in a set; and lists and removes the backups of a set."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Unpack

import pyarrow as pa

from sparklog.errors import InvalidOptionError, LockedError, PathNotFoundError, SeglogError
from sparklog.jobs.backup.manifest import (
    MANIFESTS,
    SET_MARK,
    BackupFile,
    BackupManifest,
    BackupPartition,
    BackupTopic,
    backup_ids,
    manifest_path,
    new_backup_id,
    read_manifest,
    write_manifest,
)
from sparklog.jobs.backup.pieces import PIECES, PieceStore
from sparklog.jobs.backup.storing import NO_STAMP, BackupPiece, Stored, store_log
from sparklog.jobs.mirror.state import claim_target, identity_of, locked_name, places_of
from sparklog.jobs.mirror.taken import BESIDE_LOGS, TakenLog, logs_of, look_to_copy
from sparklog.jobs.run.job import Runner, found_by
from sparklog.jobs.run.local import runner_of
from sparklog.jobs.run.options import LogJobArguments, LogJobOptions, with_options
from sparklog.jobs.run.pieces import PiecesWork
from sparklog.log import files
from sparklog.log.clock import wall_clock_ms
from sparklog.log.directory_view import DirectoryView
from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import NO_OFFSET, GroupOffsets, OffsetCommit
from sparklog.log.layout import at_one_time, topic_id_of
from sparklog.log.places import LogDirectory, PartitionFolder, folder_of, path_of, split_path
from sparklog.log.properties import taken
from sparklog.storage.registry import Location, PathText
from sparklog.topic.internal.group_tables import commits_of
from sparklog.topic.internal.views import read, schema
from sparklog.topic.places.discovery import place_at
from sparklog.topic.write.configs import read_properties
from sparklog.write.small_files import make_directory

_log = logging.getLogger("sparklog")

_LOOKS_MAX: Final = 10
_MARK: Final = (SET_MARK, "set of backups")


@dataclass(frozen=True)
class BackupSummary:
    """The outcome of a backup.

    Attributes
    ----------
    manifest : BackupManifest or None
        The backup; None of a dry run.
    new_bytes : int
        The bytes of batches that were stored, and not shared with earlier backups; of a dry run, at most.
    """

    manifest: BackupManifest | None
    new_bytes: int


@with_options(LogJobOptions)
def backup(source: PathText, target: PathText, **shared: Unpack[LogJobArguments]) -> BackupSummary:
    """Make a backup of a log directory, which a broker may be writing to. Only new bytes are stored.

    All logs are taken as of one time. A backup that is killed leaves the earlier ones whole. The source is not changed.

    Parameters
    ----------
    source : str or os.PathLike
        A log directory.
    target : str or os.PathLike
        A set of backups of this directory: a folder, which is made if it is missing.

    Returns
    -------
    BackupSummary
        The backup. A log that is damaged is in it up to the damage, with the error in its ``error``.

    Raises
    ------
    PathNotFoundError, InvalidOptionError
        The arguments are wrong, or the target is no set of this source; nothing was changed.
    LockedError
        Another backup is made in the set.
    """
    options = taken(LogJobOptions, shared)
    runner, (theirs, place) = runner_of(options.processes, options.spark), places_of(source, target, *_MARK)
    if options.dry_run:
        pieces, _ = BackupRun(theirs, place, runner, options).look(logs_of(theirs))
        return BackupSummary(None, sum(piece.log_bytes for piece in pieces))
    make_directory(place)
    with locked_set(place, options.lock_timeout_seconds):
        claim_target(theirs, place, *_MARK)
        return BackupRun(theirs, place, runner, options).run()


@contextmanager
def locked_set(place: LogDirectory, timeout_seconds: float) -> Iterator[None]:
    """Keep other backups and prunes out of a set, and remove what a dead backup has staged."""
    try:
        held = place.writable.lock(place.file(locked_name(SET_MARK)), timeout_seconds)
    except LockedError as error:
        raise LockedError(
            f"a backup is made or removed in {place.path}, and took more than {timeout_seconds:g} s"
        ) from error
    with held:
        for each in place.storage.names(place.file(PIECES)) if place.storage.is_folder(place.file(PIECES)) else ():
            if not each.is_folder:
                # Staged by a backup that died.
                place.writable.remove(place.file(path_of(PIECES, each.name)))
        yield


class BackupRun:
    """Makes one backup in a set, which the caller has locked and claimed."""

    def __init__(self, source: LogDirectory, place: LogDirectory, runner: Runner, options: LogJobOptions) -> None:
        self._source, self._place, self._runner, self._options = source, place, runner, options
        self._known = _files_by_log(_last_backup(place))

    def run(self) -> BackupSummary:
        """Store all logs, and write the manifest."""
        for name in (PIECES, MANIFESTS):
            self._place.writable.make_folder(self._place.file(name))
        self._place.writable.sync_folder(self._place.path)
        made_ms = wall_clock_ms()
        while new_backup_id(made_ms) in backup_ids(self._place):
            made_ms += 1
        stored = self._store_all(logs_of(self._source))
        logs = [each.log for each in stored if each.log.topic != files.METADATA_TOPIC]
        beside = self._beside()
        for each in stored:
            if each.log.topic == files.METADATA_TOPIC:
                if each.log.error is not None:
                    _log.warning("the cluster's metadata are in the backup up to the damage: %s", each.log.error)
                beside += [replace(file, name=path_of(files.METADATA_FOLDER, file.name)) for file in each.log.files]
        manifest = BackupManifest(
            new_backup_id(made_ms),
            made_ms,
            identity_of(self._source),
            _topics_of(self._source, logs),
            tuple(logs),
            tuple(beside),
            _groups_of(self._source),
        )
        write_manifest(self._place, manifest)
        return BackupSummary(manifest, sum(each.new_bytes for each in stored))

    def look(self, folders: Iterable[PartitionFolder]) -> tuple[list[BackupPiece], list[PathNotFoundError]]:
        """Look at logs as of one time; return the errors of logs that are to be looked at again."""
        there = [each for each in folders if each.storage.is_folder(each.location)]
        high_watermarks = DirectoryView(self._source).offsets(files.HIGH_WATERMARK_CHECKPOINT)
        pieces, errors = list[BackupPiece](), list[PathNotFoundError]()
        for found in at_one_time(there, look_to_copy):
            if isinstance(found, TakenLog):
                at = found.folder.topic_partition
                known = -1 if at is None else high_watermarks.get(at, -1)
                high_watermark = None if known < 0 else min(known, found.layout.end_offset)
                pieces.append(BackupPiece(found, self._known.get(found.folder.name, {}), high_watermark))
            elif isinstance(found, PathNotFoundError):
                errors.append(found)
            else:
                raise found
        return pieces, errors

    def _store_all(self, folders: list[PartitionFolder]) -> list[Stored]:
        """Store logs; logs that change meanwhile are looked at again, and deleted ones left out."""
        found = dict[str, Stored]()
        for _ in range(_LOOKS_MAX):
            pieces, errors = self.look(each for each in folders if each.name not in found)
            act = partial(store_log, self._place)
            work = PiecesWork(tuple(pieces), act, self._runner.workers, self._options.task_bytes)
            outcomes = list(found_by(work, self._runner, self._options.watch)) if pieces else []
            for piece, each in zip(pieces, outcomes, strict=True):
                if isinstance(each, Stored):
                    found[piece.name] = each
                else:
                    errors.append(each)
            if not errors:
                return [found[each.name] for each in folders if each.name in found]
        raise errors[0]

    def _beside(self) -> list[BackupFile]:
        """Store the files beside the logs."""
        found = []
        with PieceStore(self._place) as store:
            for name in BESIDE_LOGS:
                data = self._source.storage.read_small(self._source.file(name))
                if data is not None:
                    found.append(BackupFile(name, NO_STAMP, store.put([data])))
            store.publish()
        return found


def _last_backup(place: LogDirectory) -> BackupManifest | None:
    """Return the newest backup that can be read; its pieces need not be stored again."""
    for backup_id in reversed(backup_ids(place)):
        try:
            return read_manifest(place, backup_id)
        except SeglogError as error:
            _log.warning("%s: the next backup shares nothing with it", error)
    return None


def _files_by_log(manifest: BackupManifest | None) -> dict[str, dict[str, BackupFile]]:
    """Return the files of the logs in a backup, by the name of the folder and their own."""
    found = dict[str, dict[str, BackupFile]]()
    for path, file in manifest.all_files() if manifest is not None else ():
        folder, name = split_path(path) if folder_of(path) else ("", path)
        found.setdefault(folder, {})[name] = replace(file, name=name)
    return found


def _topics_of(source: LogDirectory, logs: list[BackupPartition]) -> dict[str, BackupTopic]:
    """Return the topics that have logs here, or that the cluster's metadata names."""
    of_cluster = {row["topic"]: row for row in _view(source, "cluster_topics").to_pylist()}
    counts, ids = dict[str, int](), dict[str, str | None]()
    for each in logs:
        counts[each.topic] = max(counts.get(each.topic, 0), each.partition + 1)
        ids[each.topic] = ids.get(each.topic) or topic_id_of(source.folder(str(each.topic_partition)))
    stored = read_properties(source)
    found = dict[str, BackupTopic]()
    for topic in sorted({*counts, *filter(files.is_topic_name, of_cluster)}):
        row = of_cluster.get(topic, {})
        configs = {**dict(row.get("configs") or ()), **stored.get(topic, {})}
        count = max(row.get("partitions") or 0, counts.get(topic, 0))
        found[topic] = BackupTopic(row.get("topic_id") or ids.get(topic), count, configs)
    return found


def _groups_of(source: LogDirectory) -> GroupOffsets:
    """Return the committed offsets of all groups: the later ones of the cluster and of sparklog's consumers."""
    found, rows = dict[str, dict[TopicPartition, OffsetCommit]](), _view(source, "consumer_offsets")
    keys = (rows[name].to_pylist() for name in ("group", "topic", "partition"))
    for group, topic, number, commit in zip(*keys, commits_of(rows), strict=True):
        if commit.offset != NO_OFFSET:
            timed = commit._replace(timestamp=max(commit.timestamp, 0))
            found.setdefault(group, {})[TopicPartition(topic, number)] = timed
    return found


def _view(source: LogDirectory, name: str) -> pa.Table:
    """Read a view; it is empty if the directory does not have its log, or the log is damaged."""
    try:
        return read(Location(source.storage, source.path), name)
    except PathNotFoundError:
        pass
    except SeglogError as error:
        _log.warning("the manifest is without the rows of %s, which cannot be read: %s", name, error)
    return schema(name).empty_table()


@dataclass(frozen=True)
class PruneSummary:
    """The backups that a prune has removed, or would remove, and the bytes of pieces that no other backup shares."""

    removed: tuple[str, ...]
    kept: tuple[str, ...]
    freed_bytes: int


def backups_in(target: PathText) -> list[BackupManifest]:
    """Return the backups of a set, the oldest first; for errors see `prune_backups`."""
    place = set_at(target)
    return [read_manifest(place, each) for each in backup_ids(place)]


def prune_backups(
    target: PathText, *, keep: int, dry_run: bool = False, lock_timeout_seconds: float = 60.0
) -> PruneSummary:
    """Remove old backups of a set, and the pieces that no other backup has.

    Parameters
    ----------
    target : str or os.PathLike
        A set of backups.
    keep : int
        How many of the newest whole backups stay. A backup with a damaged log does not count; it stays if it is newer
        than the oldest of them.
    dry_run : bool
        Remove nothing, and return what would go.
    lock_timeout_seconds : float
        The time to wait for a backup that is being made.

    Raises
    ------
    PathNotFoundError
        There is no such set.
    InvalidOptionError
        ``keep`` is no number from 1 on.
    CorruptCheckpointError
        A manifest is damaged, so that the pieces that it needs are unknown; nothing was removed.
    LockedError
        A backup is made in the set, and took too long.
    """
    if type(keep) is not int or keep < 1:
        raise InvalidOptionError(f"keep is {keep!r}, and must be a whole number from 1 on")
    place = set_at(target)
    if dry_run:
        return _pruned(place, keep)
    with locked_set(place, lock_timeout_seconds):
        summary = _pruned(place, keep)
        storage = place.writable
        for backup_id in summary.removed:
            storage.remove(place.file(manifest_path(backup_id)))
            storage.sync_folder(place.file(MANIFESTS))
        for name, _ in _unused(place, summary.kept):
            storage.remove(place.file(name))
    return summary


def _pruned(place: LogDirectory, keep: int) -> PruneSummary:
    ids = backup_ids(place)
    whole = [each for each in ids if read_manifest(place, each).is_whole]
    oldest = whole[-keep] if len(whole) >= keep else (ids[0] if ids else "")
    kept = tuple(each for each in ids if each >= oldest)
    removed = tuple(each for each in ids if each < oldest)
    return PruneSummary(removed, kept, sum(size_bytes for _, size_bytes in _unused(place, kept)))


def _unused(place: LogDirectory, kept: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Yield the paths and sizes of pieces that no kept backup has."""
    used = {piece.name for each in kept for _, file in read_manifest(place, each).all_files() for piece in file.pieces}
    folders = place.storage.names(place.file(PIECES)) if place.storage.is_folder(place.file(PIECES)) else []
    for folder in folders:
        for entry in place.storage.entries(place.file(path_of(PIECES, folder.name))) if folder.is_folder else ():
            name = path_of(PIECES, folder.name, entry.name)
            if entry.is_file and name not in used:
                yield name, entry.size_bytes


def set_at(target: PathText) -> LogDirectory:
    """Return the place of a set of backups; raise `PathNotFoundError` if there is none."""
    place = LogDirectory(*place_at(target, "target"))
    if place.storage.read_small(place.file(SET_MARK)) is None:
        raise PathNotFoundError(f"no set of backups at {place.path}: it has no {SET_MARK}")
    return place
