"""Compares the leader epochs of a partition's batches with each other and with ``leader-epoch-checkpoint``.

Epochs never fall from batch to batch. The checkpoint has a line for each epoch, written before the first batch of the
epoch. When records or segments are deleted, the first lines of the checkpoint are cut at once, but the log start offset
is written up to a minute later, so batches before the first line are no damage.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from sparklog.errors import SeglogError
from sparklog.inspect.verify_segment import Finding, Severity, unreadable
from sparklog.log import files
from sparklog.log.checkpoints import parse_leader_epochs
from sparklog.log.places import join_path, split_path
from sparklog.log.scans.past_damage import CheckedBatches
from sparklog.log.segment import Segment
from sparklog.storage.base import Storage


@dataclass(frozen=True)
class EpochRun:
    """Consecutive batches with the same leader epoch.

    Attributes
    ----------
    path : str
        The ``.log`` file of the batches.
    position : int
        The position of the first batch, bytes.
    base_offset : int
        The base offset of the first batch.
    first_last_offset : int
        The last offset of the first batch.
    last_offset : int
        The last offset of the last batch.
    """

    path: str
    position: int
    epoch: int
    base_offset: int
    first_last_offset: int
    last_offset: int


class EpochRuns:
    """Collects the leader epochs of one segment; batches without one, such as magic 0 and 1, are left out."""

    def __init__(self, segment: Segment) -> None:
        self._path = segment.path()
        self.runs: list[EpochRun] = []

    def add(self, batches: CheckedBatches) -> None:
        headers = batches.headers.where(batches.headers.column("leader_epoch") >= 0)
        if not len(headers):
            return
        epochs, lasts = headers.column("leader_epoch"), headers.column("last_offset")
        starts = np.append(0, np.flatnonzero(epochs[1:] != epochs[:-1]) + 1)
        ends = np.append(starts[1:], len(epochs)) - 1
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            first = headers.table[start]
            run = EpochRun(
                self._path,
                int(first["position"]),
                int(epochs[start]),
                int(first["base_offset"]),
                int(lasts[start]),
                int(lasts[end]),
            )
            self._append(run)

    def _append(self, run: EpochRun) -> None:
        before = self.runs[-1] if self.runs else None
        if before is not None and before.epoch == run.epoch:
            self.runs[-1] = EpochRun(
                before.path,
                before.position,
                before.epoch,
                before.base_offset,
                before.first_last_offset,
                run.last_offset,
            )
        else:
            self.runs.append(run)


def check_epochs(storage: Storage, folder: str, runs: list[EpochRun], start_offset: int) -> list[Finding]:
    """Judge the leader epochs of a partition, once all of its segments have been scanned.

    Parameters
    ----------
    runs : list of EpochRun
        The runs of all segments, in order.
    start_offset : int
        The log start offset in the checkpoint; 0 if it has none.
    """
    path = join_path(folder, files.LEADER_EPOCH_CHECKPOINT)
    findings: list[Finding] = []
    lines: list[tuple[int, int]] = []
    try:
        # After the scan, not before: a broker records an epoch before it appends the epoch's first batch.
        data = storage.read_small(path)
        lines = [] if data is None else parse_leader_epochs(data, path)
    except SeglogError as error:
        findings.append(unreadable(error, path))
    if any(later[0] <= earlier[0] or later[1] <= earlier[1] for earlier, later in pairwise(lines)):
        findings.append(Finding(Severity.ERROR, "leader-epoch", path, "epochs and their start offsets must ascend"))
        lines = []
    wrong = _first_wrong(path, runs, lines)
    if wrong is not None:
        return [*findings, wrong]
    if runs and lines and start_offset < lines[0][1] and runs[0].base_offset < lines[0][1]:
        message = (
            f"batches from offset {runs[0].base_offset} on are before offset {lines[0][1]}, where the first epoch of "
            f"the checkpoint starts: a broker that deletes records cuts the checkpoint at once, and writes the new log "
            f"start offset down up to a minute later"
        )
        findings.append(Finding(Severity.NOTE, "leader-epoch", path, message, None, lines[0][1]))
    return findings


def _first_wrong(path: str, runs: list[EpochRun], lines: list[tuple[int, int]]) -> Finding | None:
    """Return the finding about the first batch with a wrong epoch; None if there is none."""
    starts = np.array([start for _, start in lines], dtype=np.int64)
    last_epoch = -1
    for run in runs:
        if run.epoch < last_epoch:
            message = (
                f"the batch at offset {run.base_offset} has leader epoch {run.epoch}, "
                f"lower than the {last_epoch} of the batch before it"
            )
            return Finding(Severity.ERROR, "leader-epoch", run.path, message, run.position, run.base_offset)
        last_epoch = run.epoch
        first, last = (np.searchsorted(starts, [run.first_last_offset, run.last_offset], side="right") - 1).tolist()
        # The run has one epoch, so one line must cover it all.
        if last < 0 or (lines[last][0] == run.epoch and max(first, 0) == last):
            continue
        row = max(first, 0)
        offset = run.base_offset if lines[row][0] != run.epoch else lines[row + 1][1]
        message = (
            f"the batch at offset {offset} of {split_path(run.path)[1]} has leader epoch {run.epoch}, "
            f"not the one in the checkpoint"
        )
        return Finding(Severity.ERROR, "leader-epoch", path, message, None, offset)
    return None
