"""The commands that show internal topics: ``groups``, ``transactions`` and ``cluster``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from sparklog.cli.commands.arguments import Json, ShowFields
from sparklog.cli.output import render, system_fields, tables
from sparklog.cli.output.columns import RowShape
from sparklog.errors import InvalidOptionError

InternalPath = Annotated[
    str,
    typer.Argument(metavar="PATH", help="A log directory, the path of the internal topic, or a partition of it."),
]
GroupPaths = Annotated[
    list[str],
    typer.Argument(metavar="PATH...", help="Log directories; or the path of __consumer_offsets, or of a partition."),
]
History = Annotated[bool, typer.Option("--history", help="Show every record, oldest first, not the current state.")]


class OfCluster(StrEnum):
    """The parts of a cluster that ``cluster`` shows."""

    TOPICS = "topics"
    PARTITIONS = "partitions"
    CONFIGS = "configs"
    BROKERS = "brokers"
    FEATURES = "features"
    RECORDS = "records"


def groups(
    paths: GroupPaths,
    lag: Annotated[
        bool, typer.Option("--lag", help="Show groups' lag, as kafka-consumer-groups --describe does.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option("--group", help="With --lag: only this; may be repeated.")] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=0, help="With --lag: at most this number of lines of a table; 20 on a terminal."),
    ] = None,
    offsets: Annotated[bool, typer.Option("--offsets", help="Show the committed offsets of groups.")] = False,
    members: Annotated[
        bool, typer.Option("--members", help="Show the members of groups and their partitions.")
    ] = False,
    history: History = False,
    as_json: Json = False,
    _fields: ShowFields = False,
) -> None:
    """Show consumer, share and streams groups, the offsets that they have committed, and their lag.

    States are the same as a broker's right after it loads __consumer_offsets. The log does not tell whether a classic
    group is in a rebalance, nor which members were alive. To set offsets, see 'sparklog groups set --help'.
    """
    if members and (offsets or history):
        raise InvalidOptionError("--members shows who is in a group now: leave out --offsets and --history")
    if lag and (offsets or members or history):
        raise InvalidOptionError("--lag shows where groups are now: leave out --offsets, --members and --history")
    if only and not lag:
        raise InvalidOptionError("--group chooses what --lag shows: add it")
    if limit is not None and (as_json or not lag):
        raise InvalidOptionError("--limit is for the tables of --lag: add it, and leave out --json")
    if lag:
        from sparklog.cli.work.system import show_group_lag

        show_group_lag(paths, only or (), limit, as_json=as_json)
        return
    name = "consumer_offsets" if offsets else "consumer_groups"
    if history:
        shape = system_fields.OFFSET_COMMIT if offsets else system_fields.GROUP_RECORD
        _show_history(paths, name, shape, as_json)
    elif members:
        _show(_members(_rows_of(paths, name)), system_fields.MEMBER, as_json, _group)
    elif offsets:
        by_group = sorted(_rows_of(paths, name), key=lambda row: (row["group"], row["topic"], row["partition"]))
        _show(by_group, system_fields.COMMITTED_OFFSET, as_json, _group)
    else:
        _show(sorted(_rows_of(paths, name), key=_group), system_fields.GROUP, as_json)


def transactions(
    path: InternalPath,
    history: History = False,
    hanging: Annotated[
        bool,
        typer.Option("--hanging", help="Show open transactions of the logs, and how long they may be open."),
    ] = False,
    abort: Annotated[
        bool, typer.Option("--abort", help="Write abort markers into the logs of a stopped broker.")
    ] = False,
    partition: Annotated[
        str | None, typer.Option("--partition", help="With --abort: the partition, such as orders-0.")
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", min=0, help="With --abort: the producer, as --hanging shows it.")
    ] = None,
    is_all: Annotated[
        bool, typer.Option("--all", help="With --abort: all open ones, of the path or of --partition.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --abort: say what would be, but change nothing.")] = (
        False
    ),
    as_json: Json = False,
    _fields: ShowFields = False,
) -> None:
    """Show transactional ids, their producers, and their current or last transactions.

    With --hanging, show the transactions that are open in logs: readers of committed records see nothing after them.
    """
    if not abort and (partition is not None or producer_id is not None or is_all or dry_run):
        raise InvalidOptionError("--partition, --producer-id, --all and --dry-run say what --abort does: add it")
    if history and (hanging or abort):
        raise InvalidOptionError("--hanging and --abort are about transactions open now: leave out --history")
    if hanging or abort:
        # This loads compiled code, which other commands should not wait for.
        from sparklog.cli.work.system import WantedAbort, show_aborted, show_open

        if abort:
            show_aborted(path, WantedAbort(partition, producer_id, is_all, dry_run), as_json=as_json)
        else:
            show_open(path, as_json=as_json)
    elif history:
        _show_history(path, "transactions", system_fields.TRANSACTION_CHANGE, as_json)
    else:
        rows = sorted(_rows_of(path, "transactions"), key=lambda row: str(row["transactional_id"]))
        _show(rows, system_fields.TRANSACTION, as_json)


_OF_CLUSTER: Final = {
    OfCluster.TOPICS: ("cluster_topics", system_fields.CLUSTER_TOPIC),
    OfCluster.PARTITIONS: ("cluster_partitions", system_fields.CLUSTER_PARTITION),
    OfCluster.CONFIGS: ("cluster_configs", system_fields.CLUSTER_CONFIG),
    OfCluster.BROKERS: ("cluster_brokers", system_fields.BROKER),
    OfCluster.FEATURES: ("cluster_features", system_fields.FEATURE),
    OfCluster.RECORDS: ("cluster_metadata", system_fields.CLUSTER_RECORD),
}


def cluster(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A log directory, or its folder __cluster_metadata-0.")],
    what: Annotated[OfCluster, typer.Argument(help="What to show.")] = OfCluster.TOPICS,
    history: History = False,
    as_json: Json = False,
    _fields: ShowFields = False,
) -> None:
    """Show the metadata of a KRaft cluster, from its newest snapshot and the log after it.

    The controllers may not have agreed on the last records of the log: no disk stores whether they have.
    """
    name, shape = _OF_CLUSTER[what]
    if history:
        _show_history(path, name, system_fields.CLUSTER_CHANGE, as_json)
    elif what is OfCluster.RECORDS:
        _stream(_rows_of(path, name), shape, as_json)
    else:
        _show(list(_rows_of(path, name)), shape, as_json)


def _rows_of(path: str | Sequence[str], name: str, *, history: bool = False) -> Iterator[dict[str, Any]]:
    # This loads compiled code, which other commands should not wait for.
    from sparklog.cli.work.system import rows_of

    return rows_of(path, name, history=history)


def _group(row: render.Row) -> str:
    return str(row["group"])


def _members(rows: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"group": row["group"], **member} for row in sorted(rows, key=_group) for member in row["members"] or ()]


def _show(
    rows: Sequence[dict[str, Any]],
    shape: RowShape,
    as_json: bool,
    heading: Callable[[render.Row], str] = tables.no_heading,
) -> None:
    if as_json:
        render.put_rows(rows)
    else:
        tables.table(shape.columns, rows, heading=heading)


def _show_history(path: str | Sequence[str], name: str, shape: RowShape, as_json: bool) -> None:
    _stream(_rows_of(path, name, history=True), shape, as_json)


def _stream(rows: Iterable[dict[str, Any]], shape: RowShape, as_json: bool) -> None:
    """Print rows as they come, for any number of rows."""
    if as_json:
        render.put_rows(rows)
    else:
        tables.StreamedTable(shape.columns, tables.no_heading).put(rows)
