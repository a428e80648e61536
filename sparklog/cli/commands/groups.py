"""``groups``: shows groups where no other of its commands is named, and ``groups set`` sets their offsets."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from sparklog.cli.commands import system as system_commands
from sparklog.cli.commands.arguments import Fields, Json

_SHOW: Final = "show"


class _Groups(TyperGroup):
    """The commands of ``groups``, of which ``groups PATH`` is the first."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args[:1] == ["set"] else [_SHOW, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        # It is called groups, as its usage and errors say.
        return ("" if name == _SHOW else name), command, rest


groups = typer.Typer(cls=_Groups, help="Show consumer groups, their offsets and their lag; or set their offsets.")
groups.command(_SHOW)(system_commands.groups)


@groups.command("set")
def set_offsets(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="The log directories of a stopped broker.")],
    group: Annotated[str, typer.Option("--group", help="The consumer group; a new one is made.")],
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", help="A topic, or partitions of one as topic:0,1; may be repeated."),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All partitions of which the group has committed offsets.")
    ] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="Set them to this offset.")] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Set them to the start of each log.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Set them to the end of each log.")] = False,
    to_datetime: Annotated[
        str | None,
        typer.Option("--to-datetime", help="Set them to the first record at or after: ISO 8601 (UTC), or ms."),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", help="Move them by so many, back where it is negative.")
    ] = None,
    from_file: Annotated[
        str | None, typer.Option("--from-file", help="Set them as a CSV file says: topic,partition,offset.")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Write them. Without it nothing is changed.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Set them also of a group that has members.")] = False,
    offsets_partitions: Annotated[
        int | None,
        typer.Option(
            "--offsets-partitions", min=1, help="How many partitions __consumer_offsets has, if not all are here."
        ),
    ] = None,
    as_json: Json = False,
    _fields: Fields = False,
) -> None:
    """Set the committed offsets of a consumer group in the log directory of a stopped broker.

    The options are those of kafka-consumer-groups --reset-offsets. All offsets are set, or none; the broker hands them
    out when it starts. Where no log here has the group, they are set in seglog.offsets. An offset that a log has not
    becomes the nearest that it has, with a warning.
    """
    # This loads compiled code, which other commands should not wait for.
    from sparklog.cli.work.set_offsets import WantedOffsets, show_changes

    wanted = WantedOffsets(
        group=group,
        topics=topics or (),
        all_topics=all_topics,
        to_offset=to_offset,
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_datetime=to_datetime,
        shift_by=shift_by,
        from_file=from_file,
        is_forced=force,
        offsets_partitions=offsets_partitions,
    )
    show_changes(paths, wanted, executes=execute, as_json=as_json)
