"""Rewrites groups of sealed segments by an editor's decisions and swaps the new segments in. All cleanings use it.

Offsets never change, and a crash at any call leaves the old segments or the new ones. To clean the active segment,
roll it first.

A broker that finishes a swap removes the segments whose base offset is below the end of the new one. So the result of a
group must reach into its last source: if that loses all records, its last batch stays, emptied. There are no empty
batches of magic 0 and 1. A source that ends with one, and loses all records, becomes an empty segment by a swap of
its own, and the next cleaning removes that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from sparklog.cleaner.editor import Editor
from sparklog.cleaner.new_segments import NewSegment, NewSegments
from sparklog.cleaner.swap import swap
from sparklog.log.config import LogConfig
from sparklog.log.places import PartitionFolder
from sparklog.log.scans.losses import refuse_cut_end
from sparklog.log.scans.of_range import refuse_damaged_window
from sparklog.log.segment import Segment
from sparklog.log.windows import Window
from sparklog.record.format import v2


class Throttle:
    """Sleeps when more bytes are moved than a rate allows.

    Parameters
    ----------
    bytes_per_second : float
        The limit for bytes read and written, together.
    clock, sleep : callable
        Returns seconds since any fixed time; and sleeps for a number of seconds.
    """

    def __init__(
        self,
        bytes_per_second: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = bytes_per_second, clock, sleep
        self._due = clock()

    def add(self, size_bytes: int) -> None:
        """Count moved bytes, and sleep until more may be moved."""
        now = self._clock()
        # Idle time earns no credit.
        self._due = max(self._due, now) + size_bytes / self._rate
        if self._due > now:
            self._sleep(self._due - now)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The result of rewriting a group.

    Attributes
    ----------
    base_offset, end_offset : int
        The offsets of the group, the end exclusive.
    old_segments, new_segments : int
        How many segments the group had, and has now.
    old_bytes, new_bytes, old_batches, new_batches : int
        Sizes of their logs, and how many batches these have.
    is_changed : bool
        Whether anything was written; if not, the only segment stays as it was.
    """

    base_offset: int
    end_offset: int
    old_segments: int
    new_segments: int
    old_bytes: int
    new_bytes: int
    old_batches: int
    new_batches: int
    is_changed: bool


@dataclass(frozen=True)
class Rewriter:
    """Rewrites groups of sealed segments of one log, whose directory is locked; in a dry run it only counts.

    Attributes
    ----------
    config : LogConfig
        The topic's configuration: segment sizes, index intervals, and how long old files stay.
    now_ms : int
        Wall-clock time, ms since the epoch.
    throttle : Throttle or None
        Limits how fast segments are read and written.
    report : callable
        Called with the number of bytes read since the last call.
    before_swap : callable
        Called before a swap is decided; raises to prevent it, if another process has taken the log over.
    """

    folder: PartitionFolder
    config: LogConfig
    now_ms: int
    throttle: Throttle | None = None
    report: Callable[[int], None] = field(default=lambda _: None)
    before_swap: Callable[[], None] = lambda: None
    dry_run: bool = False

    def rewrite(self, group: Sequence[Segment], editor: Editor) -> Rewritten:
        """Rewrite consecutive sealed segments into one, and swap it in.

        Raises
        ------
        CorruptLogError
            A source is damaged. The group stays as it was.
        """
        new = self._new(group[0], group)
        try:
            old_batches, reached = self._edit(group, editor, new)
            written = new.finish(_modified_ns(group[reached]))
        except BaseException:
            new.discard()
            raise
        if written:
            self._swap(written, group[: reached + 1])
            for source in group[reached + 1 :]:
                self._empty(source)
        return Rewritten(
            base_offset=group[0].base_offset,
            end_offset=group[-1].upper_offset,
            old_segments=len(group),
            new_segments=(len(written) + len(group) - 1 - reached) or 1,
            old_bytes=sum(each.size_bytes for each in group),
            new_bytes=new.size_bytes,
            old_batches=old_batches,
            new_batches=new.batches,
            is_changed=bool(written),
        )

    def _new(self, first: Segment, group: Sequence[Segment]) -> NewSegments:
        return NewSegments(
            self.folder,
            first.base_offset,
            self.config,
            source_path=first.path() if len(group) == 1 else None,
            source_bytes=sum(each.size_bytes for each in group),
            dry_run=self.dry_run,
        )

    def _edit(self, group: Sequence[Segment], editor: Editor, new: NewSegments) -> tuple[int, int]:
        """Write the edited batches of the sources; return how many they had, and the row of the last one reached."""
        old_batches, reached = 0, len(group) - 1
        last_batch = b""
        last_source = -1
        for row, source in enumerate(group):
            editor.begin(source)
            with source.open() as log:
                offset = source.base_offset
                for window in log.windows(log.start):
                    refuse_damaged_window(source, window)
                    self._edit_window(window, editor, new)
                    old_batches += len(window.headers)
                    offset = int(window.headers.column("last_offset")[-1]) + 1
                    last_batch, last_source = bytes(window.batch(len(window.headers) - 1)[: v2.HEADER_BYTES]), row
                refuse_cut_end(log, offset)
            new.add_aborted(editor.aborted())
        if last_source > 0 and new.end_offset <= group[last_source].base_offset:
            if last_batch[16] == 2:
                new.append(memoryview(v2.emptied(last_batch)))
            else:
                reached = max((row for row, each in enumerate(group) if each.base_offset < new.end_offset), default=0)
        return old_batches, reached

    def _edit_window(self, window: Window, editor: Editor, new: NewSegments) -> None:
        start, length_bytes = _address(window.buffer), window.headers.valid_bytes
        written_bytes = 0
        for batches in editor.edit(window):
            if len(batches):
                position = _address(batches) - start
                is_of_window = 0 <= position <= length_bytes - len(batches)
                new.append(batches, window.headers.origin + position if is_of_window else None)
                written_bytes += len(batches)
        if self.throttle is not None:
            self.throttle.add(length_bytes + (0 if new.is_unchanged else written_bytes))
        self.report(length_bytes)

    def _swap(self, written: Sequence[NewSegment], sources: Sequence[Segment]) -> None:
        if not self.dry_run:
            self.before_swap()
            bases = [each.base_offset for each in sources]
            swap(self.folder, written, bases, self.config.file_delete_delay_ms, self.now_ms)

    def _empty(self, source: Segment) -> None:
        """Replace a segment that loses all records by an empty one."""
        new = NewSegments(
            self.folder, source.base_offset, self.config, source_path=None, source_bytes=0, dry_run=self.dry_run
        )
        self._swap(new.finish(_modified_ns(source)), [source])


def _modified_ns(source: Segment) -> int:
    with source.file() as log:
        return log.modified_ns()


def _address(buffer: memoryview) -> int:
    address: int = np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]
    return address
