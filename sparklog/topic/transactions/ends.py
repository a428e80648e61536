"""Stages the markers that end transactions, so that a commit adds them to their logs behind everything else."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

from sparklog.record.encode.end_markers import EndMarker, encode_end_markers
from sparklog.topic.write.commit import CommitRequest
from sparklog.write.staging import StagedRun, TaskStage, begin

_LAST_TASK: Final = (1 << 31) - 1
"""A number above those of all tasks of a job: the runs of a partition are committed in the order of tasks."""


class Ending(NamedTuple):
    """The end of one transaction in one log.

    Attributes
    ----------
    folder : str
        The partition's folder by its name.
    marker : EndMarker
        Its base offset does not matter.
    """

    folder: str
    marker: EndMarker


def stage_ends(job: CommitRequest, endings: Sequence[Ending], now_ms: int) -> list[StagedRun]:
    """Stage the markers of a job, and return them; several of one log stay in their order."""
    if not endings:
        return []
    folders: list[str] = []
    batch_ends: list[int] = []
    markers: list[EndMarker] = []
    for folder, of_folder in groupby(sorted(endings, key=lambda each: each.folder), key=lambda each: each.folder):
        folders.append(folder)
        markers += (each.marker._replace(base_offset=number) for number, each in enumerate(of_folder))
        batch_ends.append(len(markers))
    encoded = encode_end_markers(markers, now_ms)
    # A reader gets none of them.
    encoded.headers.table["record_count"] = 0
    begin(job.directory, job.job_id)
    stage = TaskStage(job.directory, job.job_id, _LAST_TASK, 0, job.config)
    stage.append(encoded, folders, batch_ends, now_ms)
    return stage.finish()
