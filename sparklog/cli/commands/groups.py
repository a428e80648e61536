"""``groups`` shows groups, and ``groups set`` sets their offsets."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer
from typer import Option
from typer.core import TyperGroup

from sparklog.cli.commands import system as system_commands
from sparklog.cli.commands.arguments import Json, ShowFields
from sparklog.cli.commands.declared import with_options_of

_SHOW: Final = "show"


class _Groups(TyperGroup):
    """The commands of ``groups``; ``groups PATH`` without a command shows the groups."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args[:1] == ["set"] else [_SHOW, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        # Usage and errors name the command only "groups".
        return ("" if name == _SHOW else name), command, rest


groups_app = typer.Typer(cls=_Groups, help="Show consumer groups, their offsets and their lag; or set their offsets.")
groups_app.command(_SHOW)(system_commands.groups)


class _Set:
    """Options of ``groups set``, by the names of `sparklog.cli.work.set_offsets.Wanted`."""

    topics: list[str] | None = Option(
        None, "--topic", help="A topic, or partitions of one as topic:0,1; may be repeated."
    )
    all_topics: bool = Option(False, "--all-topics", help="All partitions with committed offsets of the group.")
    to_offset: int | None = Option(None, min=0, help="Set them to this offset.")
    to_earliest: bool = Option(False, "--to-earliest", help="Set them to the start of each log.")
    to_latest: bool = Option(False, "--to-latest", help="Set them to the end of each log.")
    to_datetime: str | None = Option(None, help="Set them to the first record at or after: ISO 8601 (UTC), or ms.")
    shift_by: int | None = Option(None, help="Move them by this number, back if it is negative.")
    from_file: str | None = Option(None, help="Set them from a CSV file: topic,partition,offset.")
    is_forced: bool = Option(False, "--force", help="Set them even if the group has members.")
    offsets_partitions: int | None = Option(
        None, min=1, help="Number of partitions of __consumer_offsets, if not all are here."
    )


@groups_app.command("set")
@with_options_of(_Set)
def set_offsets(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="The log directories of a stopped broker.")],
    group: Annotated[str, typer.Option("--group", help="The consumer group; a new one is made.")],
    execute: Annotated[bool, typer.Option("--execute", help="Write the offsets. Without it nothing changes.")] = False,
    as_json: Json = False,
    _fields: ShowFields = False,
    **given: Any,
) -> None:
    """Set the committed offsets of a consumer group in the log directory of a stopped broker.

    The options are the same as of kafka-consumer-groups --reset-offsets. All offsets are set, or none; the broker uses
    them when it starts. If no log here has the group, they are set in seglog.offsets. An offset outside a log becomes
    the nearest one inside, with a warning.
    """
    # This loads compiled code, which other commands should not wait for.
    from sparklog.cli.work.set_offsets import WantedOffsets, show_changes

    show_changes(paths, WantedOffsets(group, **given), executes=execute, as_json=as_json)
