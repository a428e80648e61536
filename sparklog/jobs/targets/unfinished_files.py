"""Lists the files of an unfinished commit: they are in a table's folder, but not yet part of the table.

Tables such as Delta Lake's have a log of their own, which lists their files. Our files exist before the log lists
them. A file in the folder of jobs names them, and the next run removes those that never became part of the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sparklog.errors import CorruptCheckpointError
from sparklog.jobs.ledger import Moved, lost_of
from sparklog.jobs.targets.outputs import parse_file_name
from sparklog.jobs.targets.targets import FOLDER_OF_JOBS, UNFINISHED, own_path
from sparklog.log.files import TopicPartition
from sparklog.log.log_identity import LogIdentity
from sparklog.log.places import join_path
from sparklog.storage.base import Storage, WritableStorage


def remember_pending(storage: WritableStorage, path: str, moved: Sequence[Moved]) -> None:
    """Write the list of a commit's files, before they get their names."""
    lines = [[each.topic, each.partition, each.end_offset, file.path] for each in moved for file in each.all_files]
    with storage.open_for_append(own_path(path, UNFINISHED)) as file:
        file.truncate(0)
        file.append("".join(json.dumps(line) + "\n" for line in lines).encode())
        file.sync()
    storage.sync_folder(join_path(path, FOLDER_OF_JOBS))


def unfinished_of(storage: Storage, path: str) -> list[tuple[TopicPartition, int, str]]:
    """Return partition, end offset and path of each file that may not have become part of the table.

    Raises
    ------
    CorruptCheckpointError
        No job has written this list.
    """
    listed = own_path(path, UNFINISHED)
    data = storage.read_small(listed) or b""
    # A line is cut off if the list was not synced; then no file had its name yet.
    lines = [line for line in data.split(b"\n")[:-1] if line.startswith(b"[") and line.endswith(b"]")]
    try:
        return [_pending(path, *json.loads(line)) for line in lines]
    except (TypeError, ValueError, RecursionError) as error:
        raise CorruptCheckpointError(
            f"not a list of the files of an export: {error}",
            path=listed,
            hint="Nothing is removed. See which files of the folder are part of the table, and remove the list",
        ) from error


def _pending(path: str, topic: str, partition: int, end: int, name: str) -> tuple[TopicPartition, int, str]:
    of_file = parse_file_name(name)
    if of_file is None or (of_file.topic_partition, of_file.end_offset) != ((topic, partition), end):
        raise ValueError(f"{name!r} is not the file of offsets up to {end!r} of {topic!r}-{partition!r}")
    return of_file.topic_partition, end, join_path(path, name)


def forget_pending(storage: WritableStorage, path: str) -> None:
    """Remove the list, since the commit is finished or undone."""
    storage.remove(own_path(path, UNFINISHED))


def to_marks(moved: Iterable[Moved]) -> dict[str, dict[str, Any]]:
    """Return a mark for each partition: its next offset, its log, and the range that a commit moved."""
    marks: dict[str, dict[str, Any]] = {}
    for each in moved:
        before = marks.get(str(each.topic_partition), {"from": each.start_offset, "rows": 0})
        marks[str(each.topic_partition)] = {
            "from": before["from"],
            "to": each.end_offset,
            "rows": before["rows"] + sum(file.rows for file in each.files),
            "leader_epoch": each.leader_epoch,
            **each.identity.fields(),
        }
        lost = [*before.get("lost", ()), *each.to_json().get("lost", ())]
        if lost:
            marks[str(each.topic_partition)]["lost"] = lost
    return marks


def from_mark(at: TopicPartition, mark: Mapping[str, Any]) -> Moved:
    """Return the last move of a partition from its mark, as an empty range at its end."""
    end_offset = int(mark["to"])
    identity = LogIdentity.of_fields(mark)
    return Moved(
        *at, end_offset, end_offset, 0, 0, identity.topic_id, mark.get("leader_epoch"), log_id=identity.log_id,
        end_batch=identity.end_batch, lost=lost_of(at, mark),
    )  # fmt: skip
