"""`sparklog.clean`: checks the arguments, and builds and runs one `CleanJob` for each log directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Unpack

from sparklog.cleaner.compaction_pass import CompactionPass
from sparklog.cleaner.partition import Cleaned
from sparklog.errors import InvalidOptionError
from sparklog.jobs.clean.beside import erase_beside
from sparklog.jobs.clean.job import CleanJob
from sparklog.jobs.clean.keys import Keys, read_keys
from sparklog.jobs.clean.passes import conversion_passes, erasure_passes
from sparklog.jobs.run.job import run_job
from sparklog.jobs.run.local import runner_of
from sparklog.jobs.run.options import LogJobArguments, LogJobOptions, with_options
from sparklog.log.clock import wall_clock_ms
from sparklog.log.config import LogConfig
from sparklog.log.properties import taken
from sparklog.record.decode.where import Where
from sparklog.record.rewrite.offset_map import DEDUPE_BUFFER_BYTES, OffsetMap
from sparklog.storage.registry import PathText, paths_of
from sparklog.topic.places.discovery import discover, log_directories
from sparklog.topic.selection import Selection
from sparklog.values.imports import imported
from sparklog.write.running_jobs import new_job


@dataclass(frozen=True)
class CleanSummary:
    """The outcome of a cleaning, or in a dry run the changes that it would make.

    Attributes
    ----------
    partitions : tuple of Cleaned
        The outcome for each partition, sorted by topic and partition.
    removed : tuple of str
        Paths outside of logs that an erasure has removed: folders of deleted topics, and staged files.
    """

    partitions: tuple[Cleaned, ...]
    is_dry: bool = False
    removed: tuple[str, ...] = ()

    @property
    def freed_bytes(self) -> int:
        """The bytes by which logs are smaller."""
        return sum(each.freed_bytes for each in self.partitions)

    @property
    def changed(self) -> tuple[Cleaned, ...]:
        """The partitions that were changed."""
        return tuple(each for each in self.partitions if each.is_changed)

    def __repr__(self) -> str:
        done = "would free" if self.is_dry else "freed"
        return f"CleanSummary({done} {self.freed_bytes} bytes of {len(self.changed)} partitions)"


@with_options(LogJobOptions)
def clean(
    path: PathText | Sequence[PathText],
    *,
    topics: str | Sequence[str] = (),
    partitions: Sequence[tuple[str, int]] = (),
    cleanup_policy: str | None = None,
    retention_ms: int | None = None,
    retention_bytes: int | None = None,
    config: Mapping[str, str] | None = None,
    retention_policy: str | None = None,
    erase: Keys | None = None,
    erase_where: str | Where | None = None,
    blank: str | None = None,
    recompress: str | None = None,
    format: int | None = None,  # noqa: A002 - as the terminal has it
    lossy: bool = False,
    dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES,
    bytes_per_second: float | None = None,
    **shared: Unpack[LogJobArguments],
) -> CleanSummary:
    """Clean partition logs like a broker: delete segments beyond the retention, or keep the last record of each key.

    The topics' stored properties apply (``topics.properties``, or the cluster's metadata in the directory), unless an
    argument overrides them. If neither sets a retention, nothing is deleted: Kafka's default of a week, or a broker's
    own properties, do not count. Segments before the log start offset are removed in any case.

    Parameters
    ----------
    path : str, os.PathLike or a sequence of them
        Log directories without a running broker (all topics except those that begin with ``__``), topic paths,
        partition folders, patterns.
    topics : str or sequence of str
        Only these topics; internal ones too.
    partitions : sequence of (topic, partition)
        Only these partitions; topics or partitions, not both.
    cleanup_policy : str, optional
        ``delete``, ``compact``, or both separated by a comma.
    retention_ms, retention_bytes : int, optional
        The largest age of a segment, and the largest size of a log; -1 is no limit.
    config : mapping of str to str, optional
        Further properties of topics, such as ``file.delete.delay.ms``.
    retention_policy : str, optional
        A policy of your own, ``package.module:Class``; see `sparklog.cleaner.retention.RetentionPolicy`.
    erase : str, os.PathLike, sequence of bytes or str, or pyarrow.Array, optional
        Erase the records with these keys, also in the active segment. A file is Parquet, or CSV with a line of names,
        and has a column ``key``. In a log directory, folders of deleted topics are removed as well, and staged files
        with such a record: a write that has not committed it yet fails.
    erase_where : str, optional
        Erase the records that pass this filter; see `sparklog.log.filters.where_parser`.
    blank : str, optional
        ``null`` or ``empty``: erased records stay, and their values become null or empty.
    recompress : str, optional
        The codec that all batches get, by Kafka's name, or ``none``.
    format : int, optional
        The record format (magic) that all batches get: 0, 1 or 2.
    lossy : bool
        Whether a conversion to format 0 or 1 may lose headers, producers and transactions, and in 0 timestamps.
        Otherwise it is refused, and the error names what would be lost.
    dedupe_buffer_bytes : int
        The memory of each process for the offsets of keys in a compaction, 24 bytes per key. A log with more keys is
        compacted in several rounds. Kafka: ``log.cleaner.dedupe.buffer.size``.
    bytes_per_second : float, optional
        The largest rate of reading and writing, of all workers together.

    Returns
    -------
    CleanSummary

    Raises
    ------
    PathNotFoundError, InvalidOptionError
        Arguments are wrong; nothing was done.
    BrokerRunningError, LockedError
        A broker runs on the directory, or another writer works there.
    CorruptLogError
        The error of the first damaged partition, with further errors in ``others``. Damaged partitions are unchanged,
        and the others were cleaned.
    """
    options, selection = taken(LogJobOptions, shared), taken(Selection, {"topics": topics, "partitions": partitions})
    runner = runner_of(options.processes, options.spark)
    if bytes_per_second is not None and not bytes_per_second > 0:
        raise InvalidOptionError(f"bytes_per_second is {bytes_per_second}, and must be more than 0")
    # A buffer without room is refused once here, and not by each task.
    OffsetMap(dedupe_buffer_bytes)
    if retention_policy is not None:
        imported(retention_policy, "the retention policy")
    given = {"cleanup.policy": cleanup_policy, "retention.ms": retention_ms, "retention.bytes": retention_bytes}
    properties = dict(config or {}) | {name: str(value) for name, value in given.items() if value is not None}
    passes = (*erasure_passes(erase, erase_where, blank), *conversion_passes(recompress, format, lossy))
    now_ms = wall_clock_ms()
    cleaned: list[Cleaned] = []
    folders = sorted(discover(paths_of(path)).select(selection), key=lambda folder: folder.directory.path)
    for directory, of_directory in groupby(folders, key=lambda folder: folder.directory):
        job = CleanJob(
            directory=directory,
            folders=tuple(of_directory),
            config=LogConfig.from_properties(properties),
            run_id=new_job(now_ms),
            now_ms=now_ms,
            passes=(CompactionPass(dedupe_buffer_bytes), *passes),
            retention_policy=retention_policy,
            bytes_per_second=bytes_per_second,
            workers=runner.workers,
            options=options,
        )
        cleaned += [each for result in run_job(job, runner, options.watch) for each in result]
    removed: list[str] = []
    if (erase is not None or erase_where is not None) and not selection.partitions:
        keys = None if erase is None else read_keys(erase)
        for directory in log_directories(paths_of(path)):
            removed += erase_beside(directory, keys, selection.topics, options)
    cleaned.sort(key=lambda each: (each.topic, each.partition))
    return CleanSummary(tuple(cleaned), options.dry_run, tuple(removed))
