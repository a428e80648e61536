"""Mirrors log directories: looks for the logs that have changed, and follows each in a task.

A look costs two stamps for a log that has not changed. The mirror's checkpoints of offsets say what the source's say,
up to the ends of the mirror's logs; recovery points are the base offsets of last segments, whose indexes a broker makes
when it starts there.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import ne
from typing import Final

from sparklog.errors import PathNotFoundError, SeglogError
from sparklog.jobs.mirror.following import LogMirror, Mirrored, is_other_log, may_be_cut, put_small
from sparklog.jobs.mirror.state import read_state
from sparklog.jobs.mirror.taken import BESIDE_LOGS, TakenLog, logs_of, look_to_copy
from sparklog.jobs.run.job import OF_ONE_PARTITION, Report, Runner, found_by
from sparklog.jobs.run.options import LogJobOptions
from sparklog.jobs.run.pieces import PiecesWork
from sparklog.log import files
from sparklog.log.clock import wall_clock_ms, wall_clock_ns
from sparklog.log.directory_view import DirectoryView
from sparklog.log.files import TopicPartition
from sparklog.log.kept_by_stamp import is_settled, names_in
from sparklog.log.layout import at_one_time, read_layout
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.storage.base import Stamp
from sparklog.topic.log_manager import remove_folder
from sparklog.write.small_files import BEFORE_LOG_END, keep_offsets, set_checkpoint_offsets

_PASSES_MAX: Final = 10
_TOKEN_DIGITS: Final = 19
_CHECKPOINTS: Final = (
    files.LOG_START_CHECKPOINT,
    files.RECOVERY_POINT_CHECKPOINT,
    files.HIGH_WATERMARK_CHECKPOINT,
    files.CLEANER_CHECKPOINT,
)


@dataclass(frozen=True)
class MirrorSummary:
    """The outcome of one pass of a mirror.

    Attributes
    ----------
    logs : tuple of Mirrored
        The logs that had changed, and were brought up to their source.
    behind_bytes, behind_offsets : int
        How far the mirror was behind when the pass began.
    errors : tuple of SeglogError
        The errors of logs that are damaged, or that changed again while they were copied.
    """

    logs: tuple[Mirrored, ...] = ()
    behind_bytes: int = 0
    behind_offsets: int = 0
    errors: tuple[SeglogError, ...] = ()

    @property
    def copied_bytes(self) -> int:
        return sum(each.copied_bytes for each in self.logs)

    @property
    def is_to_be_repeated(self) -> bool:
        """Whether a log changed while it was copied, so that it is not up to its source."""
        return any(isinstance(each, PathNotFoundError) for each in self.errors)


@dataclass(frozen=True)
class MirrorPiece:
    """A log to follow, and how many bytes and offsets of it the mirror does not have."""

    taken: TakenLog
    log_bytes: int
    behind_offsets: int

    @property
    def name(self) -> str:
        return self.taken.folder.name


def _mirror(target: LogDirectory, piece: MirrorPiece, report: Report) -> Mirrored | SeglogError:
    """Follow a log; return the error of one that cannot be followed, so that it does not keep others from it."""
    try:
        return LogMirror(piece.taken, target.folder(piece.name), report).follow()
    except (*OF_ONE_PARTITION, PathNotFoundError) as error:
        error.add_note(f"in {piece.name}")
        return error


class Follower:
    """Follows a log directory, pass after pass. The caller has claimed and locked the mirror, unless it only looks."""

    def __init__(self, source: LogDirectory, target: LogDirectory, runner: Runner, options: LogJobOptions) -> None:
        self._source, self._target, self._runner, self._options = source, target, runner, options
        # By the name of the log: the stamps of its folder and its last file, with that file's path, if they prove
        # that it has not changed; and the log as it was mirrored.
        self._proofs: dict[str, tuple[str, tuple[Stamp | None, ...]]] = {}
        self._mirrored: dict[str, Mirrored] = {}
        self._beside: dict[str, Stamp] = {}
        self._offsets: list[Mapping[TopicPartition, int]] = []

    def look(self) -> tuple[list[MirrorPiece], MirrorSummary]:
        """Find the logs that have changed, and how far they are behind; remove logs that the source has no more."""
        folders = logs_of(self._source)
        self._remove_gone({folder.name for folder in folders})
        now_ns = wall_clock_ns()
        changed = [folder for folder in folders if not self._is_unchanged(folder)]
        before = {folder: folder.storage.stamp(folder.location) for folder in changed}
        pieces, errors = list[MirrorPiece](), list[SeglogError]()
        for folder, taken in zip(changed, at_one_time(changed, look_to_copy), strict=True):
            if isinstance(taken, SeglogError):
                errors.append(taken)
                continue
            last = taken.logs[-1:]
            stamps = (before[folder], *(each.stamp for each in last))
            self._proofs.pop(folder.name, None)
            if all(each is not None and is_settled(each, now_ns) for each in stamps):
                self._proofs[folder.name] = (folder.file(last[0].name) if last else "", stamps)
            pieces.append(self._piece(taken))
        behind_bytes, behind_offsets = (sum(each.log_bytes for each in pieces), sum(e.behind_offsets for e in pieces))
        return pieces, MirrorSummary((), behind_bytes, behind_offsets, tuple(errors))

    def _piece(self, taken: TakenLog) -> MirrorPiece:
        folder = self._target.folder(taken.folder.name)
        is_anew = is_other_log(taken, folder)
        state = {} if is_anew else read_state(folder)
        if not self._options.dry_run:
            if is_anew:
                self._remove([folder])
            elif folder.partition is not None and may_be_cut(taken, folder, state):
                # No checkpoint may say that more was on the disk than the log has once it is cut.
                self._forget_offsets(folder, BEFORE_LOG_END)
        behind_bytes = sum(
            max(each.size_bytes - (state[each.name].copied_bytes if each.name in state else 0), 0)
            for each in taken.logs
        )
        layout = taken.layout
        end_offset = layout.start_offset if is_anew else max(self._end_offset(folder), layout.start_offset)
        return MirrorPiece(taken, behind_bytes, max(layout.end_offset - end_offset, 0))

    def run_pass(self) -> MirrorSummary:
        """Look at all logs once, and follow the changed ones."""
        pieces, looked = self.look()
        act = partial(_mirror, self._target)
        work = PiecesWork(tuple(pieces), act, self._runner.workers, self._options.task_bytes)
        done, failed = list[Mirrored](), list[SeglogError]()
        for piece, each in zip(
            pieces, found_by(work, self._runner, self._options.watch) if pieces else (), strict=True
        ):
            if isinstance(each, Mirrored):
                self._mirrored[piece.name] = each
                done.append(each)
                continue
            failed.append(each)
            if isinstance(each, PathNotFoundError):
                # It is to be looked at again; other failures wait for a change.
                self._proofs.pop(piece.name, None)
        self._write_beside()
        self._write_checkpoints(has_new_ends=bool(done))
        return MirrorSummary(tuple(done), looked.behind_bytes, looked.behind_offsets, (*looked.errors, *failed))

    def run_until_still(self) -> MirrorSummary:
        """Run passes until no log has changed while it was copied, and return the sum of all."""
        passes = [self.run_pass()]
        while passes[-1].is_to_be_repeated and len(passes) < _PASSES_MAX:
            passes.append(self.run_pass())
        kept = [each for run in passes for each in run.errors if not isinstance(each, PathNotFoundError)]
        errors = (*kept, *(each for each in passes[-1].errors if isinstance(each, PathNotFoundError)))
        logs = tuple(each for run in passes for each in run.logs)
        return MirrorSummary(logs, passes[0].behind_bytes, passes[0].behind_offsets, errors)

    def follow(self, interval_seconds: float, each_pass: Callable[[MirrorSummary], object]) -> MirrorSummary:
        """Run passes until Ctrl-C, or until ``each_pass`` returns False; return the summary of the last."""
        summary = MirrorSummary()
        with suppress(KeyboardInterrupt):
            while each_pass(summary := self.run_pass()) is not False:
                time.sleep(0 if summary.is_to_be_repeated else interval_seconds)
        return summary

    def _is_unchanged(self, folder: PartitionFolder) -> bool:
        last_path, stamps = self._proofs.get(folder.name, ("", None))
        if stamps is None:
            return False
        storage = self._source.storage
        return (storage.stamp(folder.location), *([storage.stamp(last_path)] if last_path else [])) == stamps

    def _end_offset(self, folder: PartitionFolder) -> int:
        """Return the end of the mirror's log; 0 if it cannot be read."""
        if folder.name in self._mirrored:
            return self._mirrored[folder.name].end_offset
        with suppress(SeglogError):
            return read_layout(folder).end_offset
        return 0

    def _remove_gone(self, names: Collection[str]) -> None:
        """Remove the logs of deleted topics, and what a dead run has left of some."""
        if self._options.dry_run:
            return
        for name in names_in(self._target).others:
            if files.deleted_topic(name) is not None:
                remove_folder(self._target, name)
        self._remove(each for each in logs_of(self._target) if each.name not in names)

    def _remove(self, folders: Iterable[PartitionFolder]) -> None:
        """Remove logs, with their lines in the checkpoints."""
        for folder in folders:
            deleted = files.deleted_folder_name(folder.name, wall_clock_ms(), secrets.token_hex(16)[:_TOKEN_DIGITS])
            if folder.partition is not None:
                self._forget_offsets(folder, _CHECKPOINTS)
            self._target.writable.rename(folder.location, self._target.file(deleted))
            self._target.writable.sync_folder(self._target.path)
            remove_folder(self._target, deleted)
            self._mirrored.pop(folder.name, None)

    def _forget_offsets(self, folder: PartitionFolder, checkpoints: Iterable[str]) -> None:
        for name in checkpoints:
            keep_offsets(self._target, name, folder.topic, partial(ne, folder.topic_partition))

    def _write_beside(self) -> None:
        """Copy the files beside the logs that have changed, and remove files that the source does not have."""
        storage = self._source.storage
        for name in BESIDE_LOGS:
            path = self._source.file(name)
            stamp = storage.stamp(path)
            if stamp is None or self._beside.get(name) != stamp or not is_settled(stamp):
                put_small(self._target, name, None if stamp is None else storage.read_small(path))
                if stamp is not None:
                    self._beside[name] = stamp

    def _write_checkpoints(self, *, has_new_ends: bool) -> None:
        view = DirectoryView(self._source)
        theirs = [view.offsets(name) for name in _CHECKPOINTS]
        if not has_new_ends and theirs == self._offsets:
            return
        ends = {files.parse_partition_folder(name): each for name, each in self._mirrored.items()}
        for name, offsets in zip(_CHECKPOINTS, theirs, strict=True):
            lines = dict[TopicPartition, int]()
            for at, mirrored in ends.items():
                if at is None:
                    continue
                if name == files.RECOVERY_POINT_CHECKPOINT:
                    lines[at] = mirrored.synced_offset
                elif name == files.LOG_START_CHECKPOINT:
                    lines[at] = max(mirrored.start_offset, min(offsets.get(at, 0), mirrored.end_offset))
                elif at in offsets:
                    lines[at] = min(offsets[at], mirrored.end_offset)
            set_checkpoint_offsets(self._target, name, lines)
        self._offsets = theirs
