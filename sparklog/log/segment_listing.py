"""Lists the segments of a partition's folder, as a broker would load them, while a cleaner may rename its files.

Sealed segments are kept for the process, each with the facts that searches have found in it, and a later listing that
has the same file with the same stamp returns them again. A stamp proves that only if it was old when it was taken, see
`is_settled`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

from sparklog.errors import UnreadableLogError
from sparklog.log import files
from sparklog.log.clock import wall_clock_ns
from sparklog.log.files import OffsetFile
from sparklog.log.kept_by_stamp import LastUsed, is_settled
from sparklog.log.places import PartitionFolder
from sparklog.log.segment import SealedFile, Segment
from sparklog.record.format.v2 import OFFSET_MAX
from sparklog.storage.base import Entry, Stamp
from sparklog.storage.kept_files import KeptFiles

_log = logging.getLogger("sparklog")

_SWAPPED_LOG: Final = files.LOG + files.SWAP
_LISTINGS_MAX: Final = 100
_AT_ONCE_MAX: Final = 4
_PAUSE_SECONDS_MAX: Final = 0.02
_CLOCK_TICK_NS: Final = 20_000_000
"""An upper bound of the steps of a file system's clock, except for clocks of whole seconds."""
_SEALED_MAX: Final = 1 << 16
"""How many sealed segments are kept in all, about 30 MB."""

_sealed: LastUsed[PartitionFolder, Mapping[int, Segment]] = LastUsed(_SEALED_MAX, len)


def list_segments(
    folder: PartitionFolder,
    entries: Sequence[Entry] | None = None,
    named: Sequence[tuple[OffsetFile, Entry]] | None = None,
    kept: KeptFiles | None = None,
) -> tuple[Segment, ...]:
    """List the segments that a broker would load from a folder.

    Parameters
    ----------
    entries : sequence of Entry, optional
        The entries of the folder, if already listed.
    named : sequence of (OffsetFile, Entry), optional
        The entries named for an offset, if already selected.
    kept : KeptFiles, optional
        Keeps the files of the segments open.
    """
    keeps, now_ns = entries is None and kept is None, wall_clock_ns()
    entries = _listed(folder) if entries is None else entries
    _warn_of_links(folder, entries)
    named = list(files.offset_files(entries)) if named is None else named
    swapped = _finished_swaps(named)
    found = {file.offset: (entry, "") for file, entry in named if file.suffix == files.LOG}
    for offset, entry in sorted(swapped.items()):
        found = _replaced(folder, found, offset, entry)
    _refuse_compressed(folder, entries, found)
    bases = sorted(found)
    known = (_sealed.get(folder) or {}) if keeps else {}
    segments = list[Segment]()
    for base, upper in pairwise([*bases, OFFSET_MAX]):
        (entry, swap), old, is_last = found[base], known.get(base), base == bases[-1]
        if old is not None and not is_last and _is_same(old, upper, swap, entry.stamp):
            segments.append(old)
            continue
        is_proof = keeps and not is_last and entry.stamp is not None and is_settled(entry.stamp, now_ns)
        sealed = SealedFile(entry.stamp) if is_proof and entry.stamp else None
        segments.append(Segment(folder, base, upper, entry.size_bytes, is_last, swap, kept=kept, sealed=sealed))
    if keeps and len(segments) > 1:
        _sealed.put(folder, {segment.base_offset: segment for segment in segments if segment.sealed is not None})
    return tuple(segments)


def _is_same(old: Segment, upper_offset: int, swap: str, stamp: Stamp | None) -> bool:
    return old.sealed is not None and (old.upper_offset, old.swap, old.sealed.stamp) == (upper_offset, swap, stamp)


def _listed(folder: PartitionFolder) -> list[Entry]:
    """List the names that tell of segments, at a moment when no cleaner renames any.

    A file renamed during the listing may be missed under both names. The modification time of the folder shows that,
    unless the clock of its file system has not ticked since: then the folder is listed until two listings are equal.
    A folder that changes again and again is waited for: a listing that nothing proves may hide whole segments.
    """
    storage, path = folder.storage, folder.location
    before, earlier = storage.stamp(path), list[Entry]()
    for number in range(_LISTINGS_MAX):
        entries = _entries(folder)
        after = storage.stamp(path)
        is_settled = after is None or abs(wall_clock_ns() - after.modified_ns) > _CLOCK_TICK_NS
        if before == after and (is_settled or entries == earlier):
            return entries
        before, earlier = after, entries
        if number >= _AT_ONCE_MAX:
            time.sleep(min(number / 1000, _PAUSE_SECONDS_MAX))
            before = storage.stamp(path)
    return earlier


def _entries(folder: PartitionFolder) -> list[Entry]:
    return folder.storage.entries(folder.location, files.tells_of_segments)


def _warn_of_links(folder: PartitionFolder, entries: Iterable[Entry]) -> None:
    """Warn of segment names that are not regular files: a broken link would otherwise hide records silently."""
    for entry in entries:
        found = None if entry.is_file else files.parse_offset_file(entry.name)
        if found is not None and found.suffix == files.LOG:
            warn_once(f"{folder.file(entry.name)} is not a regular file, nor a link to one: it is skipped")


def _refuse_compressed(folder: PartitionFolder, entries: Iterable[Entry], found: Collection[int]) -> None:
    """Raise if a segment is there only as a compressed file: the log would have a gap that nobody notices."""
    for entry in entries:
        plain = entry.name.removesuffix(".gz").removesuffix(".zst")
        of_plain = files.parse_offset_file(plain) if plain != entry.name else None
        if of_plain is not None and of_plain.suffix == files.LOG and of_plain.offset not in found:
            raise UnreadableLogError(
                f"{folder.file(entry.name)} is a compressed segment, and is not read as it is: decompress it (gunzip, "
                f"unzstd), or pack the whole directory with tar, whose archives are read"
            )


def _finished_swaps(named: Sequence[tuple[OffsetFile, Entry]]) -> dict[int, Entry]:
    """Return the ``.log.swap`` files of finished cleanings, which a broker would put in place."""
    cleaned = [found.offset for found, _ in named if found.suffix.endswith(files.CLEANED)]
    lowest_cleaned = min(cleaned, default=None)
    return {
        found.offset: entry
        for found, entry in named
        if found.suffix == _SWAPPED_LOG and (lowest_cleaned is None or found.offset < lowest_cleaned)
    }


def _replaced(
    folder: PartitionFolder, kept: dict[int, tuple[Entry, str]], offset: int, entry: Entry
) -> dict[int, tuple[Entry, str]]:
    """Replace the segments that a finished swap was made from with the swap."""
    swap = Segment(folder, offset, OFFSET_MAX, entry.size_bytes, True, files.SWAP)
    with swap.open() as log:
        end_offset = log.end().offset
    outside = {base: found for base, found in kept.items() if found[1] or not offset <= base < end_offset}
    return {**outside, offset: (entry, files.SWAP)}


@lru_cache(maxsize=1024)
def warn_once(message: str) -> None:
    """Log a warning once: a layout is read many times."""
    _log.warning("%s", message)
