"""``delete-records`` and ``truncate``: say what goes, ask, cut, and say what the log has then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparklog.cleaner.cuts import Cut, Extent
from sparklog.cleaner.truncation import delete_records, look_at_deletion, look_at_truncation, truncate_as_seen
from sparklog.cli import render
from sparklog.cli.text import bytes_text, counted
from sparklog.errors import InvalidOptionError
from sparklog.jobs.job import OF_ONE_PARTITION
from sparklog.log.config import LogConfig
from sparklog.log.places import PartitionFolder
from sparklog.storage.registry import expand_one, locate
from sparklog.topic.configs import stored_configs, topic_config


def delete(
    path: str,
    before_offset: int | None,
    before_time_ms: int | None,
    lock_timeout_seconds: float,
    *,
    asks: bool,
    as_json: bool,
) -> bool:
    """Delete the records before an offset or a time, if the user wants it; tell whether the log is sound."""

    def act(cut: Cut) -> Extent:
        # By the offset that was said, also where the log has grown since.
        return delete_records(
            path,
            before_offset=cut.after.start_offset,
            config=_config_of(path),
            lock_timeout_seconds=lock_timeout_seconds,
        )

    return _carry_out(
        path,
        lambda: look_at_deletion(path, before_offset=before_offset, before_time=before_time_ms),
        act,
        asks=asks,
        as_json=as_json,
    )


def truncate(path: str, offset: int, lock_timeout_seconds: float, *, asks: bool, as_json: bool) -> bool:
    """Cut a log at an offset, if the user wants it; tell whether the log is sound."""

    def act(cut: Cut) -> Extent:
        return truncate_as_seen(
            path, offset, cut.before, config=_config_of(path), lock_timeout_seconds=lock_timeout_seconds
        )

    return _carry_out(path, lambda: look_at_truncation(path, offset), act, asks=asks, as_json=as_json)


def _carry_out(path: str, look: Callable[[], Cut], act: Callable[[Cut], Extent], *, asks: bool, as_json: bool) -> bool:
    try:
        cut = look()
        is_wanted = bool(cut.offsets) and (not asks or _is_confirmed(path, cut))
        left = act(cut) if is_wanted else cut.before
    except OF_ONE_PARTITION as error:
        render.complain("error", str(error))
        render.complain("note", "nothing was changed")
        return False
    if as_json:
        render.json_lines([_row(path, cut, is_done=is_wanted)])
    elif not cut.offsets:
        render.say(f"nothing to cut: {_extent(left)}")
    elif is_wanted:
        render.say(f"{_what_goes(cut)} went: {_extent(left)}")
    else:
        render.say(f"nothing was changed: {_extent(left)}")
    return True


def _is_confirmed(path: str, cut: Cut) -> bool:
    answer = render.asked(f"{path}: {_what_goes(cut)} would go, then {_extent(cut.after)}. Cut the log? [y/N] ")
    if answer is None:
        raise InvalidOptionError("nobody is there to be asked, and nothing was changed: --yes does not ask")
    return answer.strip().lower() in ("y", "yes")


def _what_goes(cut: Cut) -> str:
    segments = f"{counted(cut.segments, 'segment')} and " if cut.segments else ""
    return f"{counted(cut.offsets, 'offset')}, {segments}{bytes_text(cut.size_bytes)}"


def _extent(extent: Extent) -> str:
    return f"the log has offsets [{extent.start_offset}, {extent.end_offset})"


def _row(path: str, cut: Cut, *, is_done: bool) -> dict[str, Any]:
    folder = _folder(path)
    return {
        "topic": folder.topic,
        "partition": folder.partition,
        "is_done": is_done,
        "start_offset": cut.after.start_offset,
        "end_offset": cut.after.end_offset,
        "dropped_segments": cut.segments,
        "dropped_offsets": cut.offsets,
        "dropped_bytes": cut.size_bytes,
    }


def _config_of(path: str) -> LogConfig:
    """Return what is stored for the topic, such as ``file.delete.delay.ms``."""
    folder = _folder(path)
    return topic_config(folder.topic, LogConfig(), stored_configs(folder.directory))


def _folder(path: str) -> PartitionFolder:
    return PartitionFolder.at(*expand_one(locate(path)))
