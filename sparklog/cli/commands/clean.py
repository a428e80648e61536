"""The command ``clean``: its arguments and options, which are named as those of Python."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Annotated

import typer

from sparklog.cli.commands.arguments import Fields, Json, Paths
from sparklog.cli.commands.jobs import Configs, JobProcesses, LockTimeoutSeconds, Partitions, Topics
from sparklog.cli.output import render
from sparklog.cli.parsing import properties_of, seconds_of
from sparklog.errors import LockedError
from sparklog.record.codecs.table import CODEC_IDS

_FAILED = 1


def clean(
    paths: Paths,
    topics: Topics = None,
    partitions: Partitions = None,
    cleanup_policy: Annotated[
        str | None, typer.Option("--cleanup-policy", help="delete, compact, or both with a comma between.")
    ] = None,
    retention_ms: Annotated[
        int | None, typer.Option("--retention-ms", min=-1, help="How old records get; -1 is no limit.")
    ] = None,
    retention_bytes: Annotated[
        int | None, typer.Option("--retention-bytes", min=-1, help="How large a partition gets; -1 is no limit.")
    ] = None,
    config: Configs = None,
    retention_policy: Annotated[
        str | None, typer.Option("--retention-policy", help="A policy of your own, package.module:Class.")
    ] = None,
    erase: Annotated[
        str | None,
        typer.Option("--erase", help="Erase the records with the keys of a Parquet or CSV file, column key."),
    ] = None,
    erase_where: Annotated[
        str | None, typer.Option("--erase-where", help="Erase the records that pass a filter.")
    ] = None,
    blank: Annotated[
        str | None, typer.Option("--blank", help="null or empty: erased records stay, and their values become that.")
    ] = None,
    recompress: Annotated[str | None, typer.Option(help=f"The codec of all batches: {', '.join(CODEC_IDS)}.")] = None,
    record_format: Annotated[
        int | None, typer.Option("--format", min=0, max=2, help="The record format of all batches: 0, 1 or 2.")
    ] = None,
    lossy: Annotated[
        bool, typer.Option("--lossy", help="Let --format lose what formats 0 and 1 have no room for.")
    ] = False,
    dedupe_buffer_bytes: Annotated[
        int | None,
        typer.Option("--dedupe-buffer-bytes", min=1, help="Memory of a process for the keys that it compacts by."),
    ] = None,
    bytes_per_second: Annotated[
        float | None, typer.Option("--bytes-per-second", min=1, help="How much to read and write in a second at most.")
    ] = None,
    processes: JobProcesses = None,
    task_bytes: Annotated[
        int | None, typer.Option(min=1, help="About how many bytes of log the partitions of a task have.")
    ] = None,
    lock_timeout_seconds: LockTimeoutSeconds = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing, and say what would go; also beside a broker.")
    ] = False,
    every: Annotated[
        str | None, typer.Option("--every", help="Clean again so often, until Ctrl-C: 30s, 5m, 2h, 1d.")
    ] = None,
    as_json: Json = False,
    _fields: Fields = False,
) -> None:
    """Drop what is too old, too much or replaced, by the stored properties of topics and what is said here.

    A retention that nobody has said is none. The directory is locked as by a broker; where a broker runs, the command
    refuses. Exit status 1 where a partition is damaged: it stays as it was. With --every, a round in which it is, or in
    which the directory is locked, is said, and the next one comes.
    """
    from sparklog.cli.work.clean import clean as clean_logs
    from sparklog.cli.work.export import partition_of

    given = {
        "topics": topics,
        "partitions": None if partitions is None else [partition_of(each) for each in partitions],
        "cleanup_policy": cleanup_policy,
        "retention_ms": retention_ms,
        "retention_bytes": retention_bytes,
        "config": properties_of(config or (), "--config"),
        "retention_policy": retention_policy,
        "erase": erase,
        "erase_where": erase_where,
        "blank": blank,
        "recompress": recompress,
        "format": record_format,
        "lossy": lossy or None,
        "dedupe_buffer_bytes": dedupe_buffer_bytes,
        "bytes_per_second": bytes_per_second,
        "processes": processes,
        "task_bytes": task_bytes,
        "lock_timeout_seconds": lock_timeout_seconds,
    }
    options = {name: value for name, value in given.items() if value is not None}
    if every is None:
        if not clean_logs(paths, options, dry_run=dry_run, as_json=as_json):
            raise typer.Exit(_FAILED)
        return
    seconds = seconds_of(every, "--every")
    with suppress(KeyboardInterrupt):
        while True:
            try:
                clean_logs(paths, options, dry_run=dry_run, as_json=as_json)
            except LockedError as error:
                render.complain("warning", str(error))
            if not render.flushed():
                raise BrokenPipeError
            time.sleep(seconds)
