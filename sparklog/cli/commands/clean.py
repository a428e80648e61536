"""The command ``clean``: its arguments and options, which are named as those of Python."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Annotated, Any

import typer
from typer import Option

from sparklog.cli.commands.arguments import Fields, Json, Paths
from sparklog.cli.commands.declared import with_options_of
from sparklog.cli.commands.jobs import Configs
from sparklog.cli.output import render
from sparklog.cli.parsing import properties_of, seconds_of
from sparklog.errors import LockedError
from sparklog.jobs.run.options import LogJobOptions
from sparklog.record.codecs.table import CODEC_IDS

_FAILED = 1


class _Clean:
    """Options of ``clean`` that Python has under the same names."""

    topics: list[str] | None = Option(None, "--topics", help="Only this topic; may be repeated.")
    partitions: list[str] | None = Option(None, help="Only this partition, as topic:partition; may be repeated.")
    cleanup_policy: str | None = Option(None, help="delete, compact, or both with a comma between.")
    retention_ms: int | None = Option(None, min=-1, help="How old records get; -1 is no limit.")
    retention_bytes: int | None = Option(None, min=-1, help="How large a partition gets; -1 is no limit.")
    retention_policy: str | None = Option(None, help="A policy of your own, package.module:Class.")
    erase: str | None = Option(None, help="Erase the records with the keys of a Parquet or CSV file, column key.")
    erase_where: str | None = Option(None, help="Erase the records that pass a filter.")
    blank: str | None = Option(None, help="null or empty: erased records stay, and their values become that.")
    recompress: str | None = Option(None, help=f"The codec of all batches: {', '.join(CODEC_IDS)}.")
    format: int | None = Option(None, min=0, max=2, help="The record format of all batches: 0, 1 or 2.")
    lossy: bool = Option(False, "--lossy", help="Let --format lose what formats 0 and 1 have no room for.")
    dedupe_buffer_bytes: int | None = Option(None, min=1, help="Memory of a process for the keys that it compacts by.")
    bytes_per_second: float | None = Option(None, min=1, help="How much to read and write in a second at most.")


@with_options_of(_Clean, LogJobOptions)
def clean(
    paths: Paths,
    config: Configs = None,
    every: Annotated[
        str | None, typer.Option("--every", help="Clean again so often, until Ctrl-C: 30s, 5m, 2h, 1d.")
    ] = None,
    as_json: Json = False,
    _fields: Fields = False,
    **given: Any,
) -> None:
    """Drop what is too old, too much or replaced, by the stored properties of topics and what is said here.

    A retention that nobody has said is none. The directory is locked as by a broker; where a broker runs, the command
    refuses. Exit status 1 where a partition is damaged: it stays as it was. With --every, a round in which it is, or in
    which the directory is locked, is said, and the next one comes.
    """
    from sparklog.cli.work.clean import clean as clean_logs
    from sparklog.cli.work.export import partition_of

    options = given | {
        "partitions": [partition_of(each) for each in given.get("partitions", ())],
        "config": properties_of(config or (), "--config"),
    }
    if every is None:
        if not clean_logs(paths, options, as_json=as_json):
            raise typer.Exit(_FAILED)
        return
    seconds = seconds_of(every, "--every")
    with suppress(KeyboardInterrupt):
        while True:
            try:
                clean_logs(paths, options, as_json=as_json)
            except LockedError as error:
                render.complain("warning", str(error))
            if not render.flushed():
                raise BrokenPipeError
            time.sleep(seconds)
