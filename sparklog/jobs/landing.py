"""Checks whether the logs that a load or a copy has written to still hold what it wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sparklog.errors import CorruptLogError
from sparklog.jobs.ledger import Landed
from sparklog.log.layout import read_layout
from sparklog.log.log_identity import read_log_id
from sparklog.log.places import LogDirectory
from sparklog.write.commit_plan import PartitionChange


def landed_of(directory: LogDirectory, changes: Mapping[str, PartitionChange]) -> list[Landed]:
    """Return the logs that a commit changes, with their ids and ends after it."""
    return [
        Landed(name, change.log_id or read_log_id(directory.folder(name)), change.end_offset)
        for name, change in changes.items()
    ]


def lost_since(directory: LogDirectory, landed: Iterable[Landed]) -> str | None:
    """Return why a log no longer holds what was written to it, for the first such log; None if all may hold it."""
    for each in landed:
        folder = directory.folder(each.folder)
        if not directory.storage.is_folder(folder.location):
            return f"{folder.location} is gone"
        found = read_log_id(folder)
        if None not in (each.log_id, found) and each.log_id != found:
            return f"{folder.location} was emptied, or deleted and made again, or is another log of that name"
        try:
            end_offset = read_layout(folder).end_offset
        except CorruptLogError:
            # The next writer to this log reports the damage.
            continue
        if end_offset < each.end_offset:
            return f"{folder.location} ends at offset {end_offset}, and ended at {each.end_offset}: it was cut"
    return None
