"""Rolls a log that nobody has open: seals its active segment and begins the next one."""

from __future__ import annotations

from sparklog.log import files
from sparklog.log.files import offset_file_name
from sparklog.log.places import PartitionFolder
from sparklog.log.producer_state import Producers
from sparklog.write.active_segment import ActiveSegmentState, new_segment, seal
from sparklog.write.recovery import FIRST_SEGMENT
from sparklog.write.small_files import write_atomically


def seal_active(folder: PartitionFolder, state: ActiveSegmentState, producers: Producers) -> ActiveSegmentState:
    """Complete the active segment's indexes, sync it, and write a snapshot of the producers at its end.

    Parameters
    ----------
    state, producers
        The log's state and producers from `sparklog.write.recovery.recover_log`: its indexes end as in the state.
    """
    sealed, last_entry = seal(state)
    base_offset, storage = state.segment.base_offset, folder.writable
    if last_entry:
        with storage.open_for_append(folder.path(base_offset, files.TIME_INDEX)) as index:
            index.append(last_entry)
    storage.sync_files([folder.path(base_offset, suffix) for suffix in FIRST_SEGMENT])
    write_atomically(folder, offset_file_name(state.end_offset, files.SNAPSHOT), producers.encode())
    return sealed


def roll(folder: PartitionFolder, state: ActiveSegmentState, producers: Producers, now_ms: int) -> ActiveSegmentState:
    """Seal the active segment, and begin an empty one at the end of the log; keep it if it is empty already."""
    if not state.segment.size_bytes:
        return state
    seal_active(folder, state, producers)
    for suffix in FIRST_SEGMENT:
        like = folder.path(state.segment.base_offset, suffix)
        folder.writable.create(folder.path(state.end_offset, suffix), like).close()
    folder.writable.sync_folder(folder.location)
    return new_segment(state.end_offset, now_ms)
