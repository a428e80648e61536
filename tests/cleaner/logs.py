"""Small logs of several segments, and editors that change them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sparklog
from sparklog.cleaner.editor import Editor
from sparklog.cleaner.rewriting import Rewriter, Rewritten
from sparklog.cleaner.segment_groups import grouped_segments
from sparklog.inspect.verify import verify_partition
from sparklog.inspect.verify_segment import Finding, Severity
from sparklog.log.config import LogConfig
from sparklog.log.layout import read_layout
from sparklog.log.windows import Window
from sparklog.storage.base import Storage
from sparklog.write.recovery import recover_log
from tests.build import write_partition
from tests.log.logs import batches
from tests.places import LOCAL, folder_at

ALL = [b"value of %d" % n for n in range(120)]
NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=6_000, index_interval_bytes=300, file_delete_delay_ms=0)


class KeepingSome(Editor):
    """Keeps the batches for which something is true of their base offset."""

    def __init__(self, keeps: Callable[[int], bool]) -> None:
        self._keeps = keeps

    def edit(self, window: Window) -> Iterator[memoryview]:
        for row, offset in enumerate(window.headers.column("base_offset").tolist()):
            if self._keeps(offset):
                yield window.batch(row)


def every_third(offset: int) -> bool:
    return offset // 10 % 3 == 0


def write(folder: Path, count: int = 12, segment_bytes: int = 600, **fields: Any) -> None:
    """Write a log of ``count`` batches of ten records in several segments."""
    write_partition(folder, batches(count, **fields), segment_bytes=segment_bytes, index_interval_bytes=300)


def clean(
    folder: Path,
    editor: Editor | None = None,
    config: LogConfig = CONFIG,
    storage: Storage = LOCAL,
    now_ms: int = NOW_MS,
    **options: object,
) -> list[Rewritten]:
    """Open a log as a writer does, and rewrite all of its sealed segments."""
    at = folder_at(folder, storage)
    recover_log(at, config, now_ms)
    groups = grouped_segments(read_layout(at).segments[:-1], config)
    rewriter = Rewriter(at, config, now_ms, **options)  # type: ignore[arg-type]
    return [rewriter.rewrite(group, editor or Editor()) for group in groups]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def logs(folder: Path) -> list[int]:
    return [segment.base_offset for segment in read_layout(folder_at(folder)).segments]


def values(folder: Path) -> list[bytes]:
    with sparklog.open_log(str(folder)) as log:
        found: list[bytes] = log.read(columns=["value"])["value"].to_pylist()
    return found


def findings(folder: Path) -> list[str]:
    events = verify_partition(folder_at(folder))
    return [str(each) for each in events if isinstance(each, Finding) and each.severity != Severity.NOTE]
