"""`sparklog.load`: checks the arguments, builds a `LoadJob` and runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from sparklog.errors import InvalidOptionError
from sparklog.jobs.files.row_sizes import ROW_BYTES_MAX
from sparklog.jobs.load.inputs import INPUT_FORMATS
from sparklog.jobs.load.job import LoadJob, LoadSummary, PlannedPart
from sparklog.jobs.load.mapping import ColumnRoles
from sparklog.jobs.load.row_files import Csv, known_rows
from sparklog.jobs.run.job import run_job
from sparklog.jobs.run.local import runner_of
from sparklog.jobs.run.options import JobArguments, JobOptions, with_options
from sparklog.log.clock import wall_clock_ms
from sparklog.log.config import LogConfig
from sparklog.log.properties import AT_COMMIT, taken
from sparklog.storage.registry import PathText
from sparklog.topic.places.discovery import place_at, places_at
from sparklog.topic.write.target import find_target
from sparklog.values.columns import parse_columns
from sparklog.write.running_jobs import new_job


def _dry_run(job: LoadJob) -> LoadSummary:
    target = job.target
    partitions = None if target.topic is None else target.partitions_of(target.topic) if target.partition is None else 1
    planned = [
        PlannedPart(
            task.number,
            part.file.name,
            known_rows(part.file, part.groups),
            part.size_bytes,
            target.topic,
            partitions,
        )
        for task in job.plan()
        for part in task.parts
    ]
    return LoadSummary(skipped=job.outcome.skipped, planned=tuple(planned))


def _csv_types(given: Mapping[str, Any] | str | None) -> dict[str, Any]:
    if isinstance(given, str):
        return {field.name: field.type for field in parse_columns(given, "csv_types")}
    return dict(given or {})


@with_options(JobOptions)
def load(
    sources: PathText | Sequence[PathText],
    log_directory: PathText,
    *,
    topic: str | None = None,
    num_partitions: int | None = None,
    config: Mapping[str, object] | None = None,
    partitioner: str = "default",
    key: str | None = "key",
    value: str | None = "value",
    headers: str | None = "headers",
    timestamp: str | None = "timestamp",
    partition: str | None = "partition",
    topic_column: str | None = "topic",
    value_json: bool = False,
    key_format: str | None = None,
    value_format: str | None = None,
    format: str | None = None,  # noqa: A002 - what Spark, polars and DuckDB call it
    csv_delimiter: str = ",",
    csv_columns: Sequence[str] = (),
    csv_types: Mapping[str, Any] | str | None = None,
    row_bytes_max: int = ROW_BYTES_MAX,
    again: bool = False,
    **shared: Unpack[JobArguments],
) -> LoadSummary:
    """Load files of rows into partition logs; all rows become visible at once, or none.

    A rerun of the same load skips files that have been loaded and have not changed, by their path, size and time; the
    log directory's ledger, ``seglog.ledger.jsonl``, records them. No broker may run on the directory.

    Parameters
    ----------
    sources : path, or sequence of paths
        Files, patterns, or folders with everything below them: Parquet, Arrow IPC (files and streams), CSV and JSON
        lines, text also compressed, by the suffixes of their names. Names that begin with ``_`` or ``.`` are skipped.
        Folders that are named ``column=value`` give their files a column.
    log_directory : path
        A log directory, which is created if it does not exist, or the path of a topic or partition's folder in one.
    topic : str, optional
        The topic of all rows. Without it rows name their topics in the column `topic_column`.
    num_partitions : int, optional
        The number of partitions of a new topic; without it a topic that does not exist is an error.
    config : mapping of str to object, optional
        Topic properties by Kafka's names, such as ``{"compression.type": "zstd"}``.
    partitioner : str
        How a row that names no partition gets one; see the option ``partitioner`` of Spark's writes.
    key, value, headers, timestamp, partition, topic_column : str, optional
        The names of columns; None if there is no such column. Other columns are left out. Every column except the value
        may be missing; a name that you give must be in some file. Keys and values are text or bytes; timestamps are
        timestamps, int64 of ms, or text of either; headers a list of structs of key and value, or a map.
    value_json : bool
        Make the value from all other columns, as one JSON object per row, like Spark's ``to_json``. In JSON lines the
        value is the whole line, unchanged.
    key_format, value_format : str, optional
        ``base64`` or ``hex``, if an export has written keys or values in this form; by default text stands for itself.
        It is not needed for fields whose names end with ``_base64``, where JSON lines of an export and of ``dump``
        have bytes that are not UTF-8: they are always read as these bytes.
    format : str, optional
        "parquet", "arrow", "csv" or "json", if the names of the files do not tell.
    csv_delimiter : str
        The character between fields of CSV.
    csv_columns : sequence of str
        The names of the columns of CSV, if the first line does not have them.
    csv_types : mapping of str to pyarrow.DataType, or str, optional
        The types of the columns of CSV that are not text; also as text, such as ``id bigint, at timestamp``.
    row_bytes_max : int
        Refuse a file with a row of more bytes, about, decompressed: a few kilobytes may decompress to gigabytes.
    again : bool
        Load also files that have been loaded before.

    Returns
    -------
    LoadSummary
        The numbers of records by partition, and the files that were loaded or skipped.

    Raises
    ------
    InvalidOptionError
        An argument is wrong, a file is of an unknown kind, or a loaded file has changed since.
    PathNotFoundError
        A source does not exist, or has no file.
    InputFileError
        A file is damaged, or its columns do not fit; the message names file and column.
    LockedError
        A broker runs on the directory, or another job or writer held its lock for too long.
    SeglogError
        Any other error. Nothing of the load is visible, unless the error's ``outcome`` says otherwise.
    """
    if format not in (None, *INPUT_FORMATS):
        raise InvalidOptionError(f"format must be one of {', '.join(INPUT_FORMATS)}, got {format!r}")
    if row_bytes_max < 1:
        raise InvalidOptionError(f"row_bytes_max is {row_bytes_max}, and must be at least 1")
    options = taken(JobOptions, shared)
    runner = runner_of(options.processes, options.spark)
    log_config = LogConfig.from_properties(config or {})
    log_config.warn_idle(AT_COMMIT)
    location = place_at(log_directory, "log_directory")
    target = find_target(location, topic, num_partitions, has_topic_column=topic is None and topic_column is not None)
    columns = ColumnRoles(
        key,
        value,
        headers,
        timestamp,
        topic_column if target.topic is None else None,
        partition,
        value_json,
        key_format,
        value_format,
    )
    now_ms = wall_clock_ms()
    job = LoadJob(
        sources=places_at(sources, "source"),
        format=format,
        target=target,
        config=log_config,
        partitioner=partitioner,
        columns=columns,
        csv=Csv(csv_delimiter, tuple(csv_columns), _csv_types(csv_types)),
        job_id=new_job(now_ms),
        now_ms=now_ms,
        workers=runner.workers,
        again=again,
        options=options,
        row_bytes_max=row_bytes_max,
        syncs_tasks=options.spark is not None,
    )
    if options.dry_run:
        return _dry_run(job)
    run_job(job, runner, options.watch)
    return job.outcome.summary
