"""The command ``clean``: its arguments, and its options, which have the same names in Python."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Annotated, Any

import typer
from typer import Option

from sparklog.cli.commands.arguments import Json, Paths, ShowFields
from sparklog.cli.commands.declared import with_options_of
from sparklog.cli.commands.jobs import Configs
from sparklog.cli.output import render
from sparklog.cli.parsing import properties_of, seconds_of
from sparklog.errors import InvalidOptionError, LockedError
from sparklog.jobs.run.options import LogJobOptions
from sparklog.record.codecs.table import CODEC_IDS

_FAILED = 1


class _Clean:
    """Options of ``clean`` that have the same names in Python."""

    topics: list[str] | None = Option(None, "--topics", help="Only this topic; may be repeated.")
    partitions: list[str] | None = Option(None, help="Only this partition, as topic:partition; may be repeated.")
    cleanup_policy: str | None = Option(None, help="delete, compact, or both with a comma between.")
    retention_ms: int | None = Option(None, min=-1, help="Maximum age of records; -1 is no limit.")
    retention_bytes: int | None = Option(None, min=-1, help="Maximum size of a partition; -1 is no limit.")
    retention_policy: str | None = Option(None, help="A policy of your own, package.module:Class.")
    erase: str | None = Option(None, help="Erase the records with the keys of a Parquet or CSV file, column key.")
    erase_where: str | None = Option(None, help="Erase the records that pass a filter.")
    blank: str | None = Option(None, help="Keep erased records, with the value null or empty.")
    recompress: str | None = Option(None, help=f"The codec of all batches: {', '.join(CODEC_IDS)}.")
    format: int | None = Option(None, min=0, max=2, help="The record format of all batches: 0, 1 or 2.")
    lossy: bool = Option(False, "--lossy", help="Let --format lose what formats 0 and 1 have no room for.")
    dedupe_buffer_bytes: int | None = Option(None, min=1, help="Memory of a process for the keys of compaction.")
    bytes_per_second: float | None = Option(None, min=1, help="Maximum bytes to read and write per second.")


@with_options_of(_Clean, LogJobOptions)
def clean(
    paths: Paths,
    config: Configs = None,
    every: Annotated[
        str | None, typer.Option("--every", help="Clean again after each such time, until Ctrl-C: 30s, 5m, 2h, 1d.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=0, help="Show at most this number of topics; 20 on a terminal.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show each partition, not only the topics.")] = False,
    as_json: Json = False,
    _fields: ShowFields = False,
    **given: Any,
) -> None:
    """Remove records that are too old, over the size limit or replaced, by stored topic properties and these options.

    Without a stored or given retention nothing is removed for its age or size. The directory is locked as by a broker;
    if a broker runs, the command refuses. Exit status 1 if a partition is damaged: it stays unchanged. With --every, a
    round with damage, or with the directory locked by another, is reported, and the next round follows.
    """
    from sparklog.cli.work.clean import clean as clean_logs
    from sparklog.cli.work.export import partition_of

    if as_json and (verbose or limit is not None):
        raise InvalidOptionError("--verbose and --limit are for the table: --json shows every partition")
    options = given | {
        "partitions": [partition_of(each) for each in given.get("partitions", ())],
        "config": properties_of(config or (), "--config"),
    }
    if every is None:
        if not clean_logs(paths, options, as_json=as_json, limit=limit, verbose=verbose):
            raise typer.Exit(_FAILED)
        return
    seconds = seconds_of(every, "--every")
    with suppress(KeyboardInterrupt):
        while True:
            try:
                clean_logs(paths, options, as_json=as_json, limit=limit, verbose=verbose)
            except LockedError as error:
                render.complain("warning", str(error))
            if not render.flushed():
                raise BrokenPipeError
            time.sleep(seconds)
