"""What may come of opening a damaged log to write to it, and closing it again.

1. It is refused with an error of ours, and no byte of a ``.log`` file has changed.
2. It is opened. Then all that is gone is the end of the last segment, from a position on, and
   - only zeros are gone; or
   - a torn write is: behind it nothing whole follows, and it is not whole itself but for its size; it is at or above
     the recovery point of a directory that has no marker of a clean shutdown. A batch that is all there and has a wrong
     checksum may be one, since a disk writes pages in any order. A warning names the file and the position, and the
     bytes that are gone are kept as ``<offset>.<position>.cut``.
3. The log goes on where it ends: at the end of the sound log; where its end was cut, behind the batch before; where the
   format cannot see the damage, where the format says. (That the log then ends below the recovery point, since whole
   batches are missing at its end, is counted apart.)
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sparklog.errors import SeglogError
from sparklog.write.partition import LogWriter
from tests.fuzz.logs import LOG, SoundLog, segments_of
from tests.fuzz.model import OVERHEAD_BYTES, is_checked, model_of, whole_batch_behind
from tests.fuzz.queries import HEARD
from tests.fuzz.verdict import EQUAL, REFUSED, Verdict

CUT: Final = ".cut"
NOW_MS: Final = 1_800_000_000_000


def judge_opening(log: SoundLog, files: Mapping[str, bytes], directory: Path) -> Verdict:
    """Open the damaged files to write, close them, and hold what is left against the rules."""
    shutil.rmtree(directory, ignore_errors=True)
    folder = log.write(directory, files)
    HEARD.messages.clear()
    try:
        with LogWriter.open(folder, clock=lambda: NOW_MS, rng=lambda: 0) as opened:
            end_offset = opened.end_offset
    except SeglogError as error:
        if logs_in(folder) != {name: data for name, data in files.items() if name.endswith(LOG)}:
            return Verdict("changed", "opening refuses a log, and has changed it")
        return Verdict(f"{REFUSED} ({type(error).__name__})")
    except Exception as error:
        return Verdict("untyped", f"untyped error {type(error).__name__}")
    cut_at, finding = _what_is_gone(files, logs_in(folder))
    if finding is None and cut_at is not None:
        finding = _wrong_cut(log, files, cut_at) or _untold_cut(folder, files, cut_at)
    if finding is None:
        finding = _wrong_end(log, files, cut_at, end_offset)
    if finding is not None:
        return Verdict("wrong", finding)
    if cut_at is not None:
        return Verdict("a torn end is cut")
    return Verdict(EQUAL if end_offset >= log.recovery_point else "goes on below the recovery point")


def logs_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob(f"*{LOG}")}


def _what_is_gone(files: Mapping[str, bytes], after: Mapping[str, bytes]) -> tuple[int | None, str | None]:
    """Return the position where the last segment was cut, and what else is not as it was."""
    names = segments_of(files)
    for name in names[:-1]:
        if after.get(name) != files[name]:
            return None, "a sealed segment was changed by opening it to write"
    if not names:
        return None, None
    last, left = files[names[-1]], after.get(names[-1], b"")
    if not last.startswith(left):
        return None, "the last segment was changed by opening it to write"
    if len(left) == len(last) or not any(last[len(left) :]):
        return None, None
    return len(left), None


def _wrong_cut(log: SoundLog, files: Mapping[str, bytes], position: int) -> str | None:
    """Say why what was cut off the last segment is no torn write."""
    name = segments_of(files)[-1]
    rest = files[name][position:]
    if whole_batch_behind(files[name], position + 1, _offset_at(files, position)):
        return "whole batches are cut off"
    end = OVERHEAD_BYTES + int.from_bytes(rest[8:12], "big", signed=True)
    if 0 < end <= len(rest) and is_checked(rest[:end]):
        return "a whole batch is cut off"
    if is_checked(rest):
        return "a batch that is whole but for its size is cut off"
    if log.is_clean:
        return "cut behind the marker of a clean shutdown"
    if _offset_at(files, position) < log.recovery_point:
        return "cut below the recovery point"
    return None


def _untold_cut(folder: Path, files: Mapping[str, bytes], position: int) -> str | None:
    """Say what was not told, or not kept, of a cut that is right."""
    name = segments_of(files)[-1]
    if not any(name in message and str(position) in message for message in HEARD.messages):
        return "cut without a warning that names the file and the position"
    kept = [path for path in folder.iterdir() if path.name.endswith(f".{position}{CUT}")]
    if not kept or kept[0].read_bytes().rstrip(b"\0") != files[name][position:].rstrip(b"\0"):
        return "cut, and the bytes are not kept"
    return None


def _offset_at(files: Mapping[str, bytes], position: int) -> int:
    """Return the offset that is expected at a position of the last segment."""
    name = segments_of(files)[-1]
    return model_of({name: files[name][:position]}).end_offset


def _wrong_end(log: SoundLog, files: Mapping[str, bytes], cut_at: int | None, end_offset: int) -> str | None:
    """Say why the next offset is not right."""
    if end_offset == log.end_offset:
        return None
    if cut_at is not None:
        return None if end_offset == _offset_at(files, cut_at) else "the log goes on elsewhere than where it was cut"
    # What stands in the segments before is not read where it had been synced.
    last = segments_of(files)[-1]
    model = model_of({last: files[last]})
    if model.is_end_sound and end_offset == max(model.end_offset, log.start_offset):
        return None
    return "the log goes on at an offset that it has no sound batch before"
