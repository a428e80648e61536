"""``delete-records`` and ``truncate``: print what would go, ask, cut, and print the log's new offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparklog.cleaner.cuts import Cut, Extent
from sparklog.cli.output import render
from sparklog.cli.output.fields import CUT_PARTITION
from sparklog.cli.output.text import bytes_text, counted
from sparklog.jobs.run.job import OF_ONE_PARTITION
from sparklog.log.places import PartitionFolder
from sparklog.topic.cutting import PlannedCut, plan_deletion, plan_truncation


def delete_if_confirmed(
    path: str,
    before_offset: int | None,
    before_time_ms: int | None,
    lock_timeout_seconds: float,
    *,
    asks: bool,
    as_json: bool,
) -> bool:
    """Delete the records before an offset or a time, if the user confirms; return whether the log is sound."""
    return _carry_out(
        path,
        lambda: plan_deletion(path, before_offset=before_offset, before_time=before_time_ms),
        lock_timeout_seconds,
        asks=asks,
        as_json=as_json,
    )


def truncate_if_confirmed(path: str, offset: int, lock_timeout_seconds: float, *, asks: bool, as_json: bool) -> bool:
    """Cut a log at an offset, if the user confirms; return whether the log is sound."""
    return _carry_out(path, lambda: plan_truncation(path, offset), lock_timeout_seconds, asks=asks, as_json=as_json)


def _carry_out(
    path: str, plan: Callable[[], PlannedCut], lock_timeout_seconds: float, *, asks: bool, as_json: bool
) -> bool:
    try:
        planned = plan()
        cut = planned.cut
        is_wanted = bool(cut.offsets) and (not asks or _is_confirmed(path, cut))
        left = planned.make(lock_timeout_seconds=lock_timeout_seconds) if is_wanted else cut.before
    except OF_ONE_PARTITION as error:
        render.complain("error", str(error))
        render.complain("note", "nothing was changed")
        return False
    if as_json:
        render.put_rows([_row(planned.folder, cut, is_done=is_wanted)])
    elif not cut.offsets:
        render.say(f"nothing to cut: {_extent(left)}")
    elif is_wanted:
        render.say(f"{_what_goes(cut)} went: {_extent(left)}")
    else:
        render.say(f"nothing was changed: {_extent(left)}")
    return True


def _is_confirmed(path: str, cut: Cut) -> bool:
    return render.confirmed(f"{path}: {_what_goes(cut)} would go, then {_extent(cut.after)}. Cut the log?")


def _what_goes(cut: Cut) -> str:
    segments = f"{counted(cut.segments, 'segment')} and " if cut.segments else ""
    return f"{counted(cut.offsets, 'offset')}, {segments}{bytes_text(cut.size_bytes)}"


def _extent(extent: Extent) -> str:
    return f"the log has offsets [{extent.start_offset}, {extent.end_offset})"


def _row(folder: PartitionFolder, cut: Cut, *, is_done: bool) -> dict[str, Any]:
    dropped = {"dropped_segments": cut.segments, "dropped_offsets": cut.offsets, "dropped_bytes": cut.size_bytes}
    return CUT_PARTITION.row(cut.after, topic=folder.topic, partition=folder.partition, is_done=is_done, **dropped)
