"""``groups``: shows groups where no other of its commands is named, and ``groups set`` sets their offsets."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer
from typer import Option
from typer.core import TyperGroup

from sparklog.cli.commands import system as system_commands
from sparklog.cli.commands.arguments import Fields, Json
from sparklog.cli.commands.declared import with_options_of

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


class _Set:
    """Options of ``groups set``, by the names of `sparklog.cli.work.set_offsets.Wanted`."""

    topics: list[str] | None = Option(
        None, "--topic", help="A topic, or partitions of one as topic:0,1; may be repeated."
    )
    all_topics: bool = Option(False, "--all-topics", help="All partitions of which the group has committed offsets.")
    to_offset: int | None = Option(None, min=0, help="Set them to this offset.")
    to_earliest: bool = Option(False, "--to-earliest", help="Set them to the start of each log.")
    to_latest: bool = Option(False, "--to-latest", help="Set them to the end of each log.")
    to_datetime: str | None = Option(None, help="Set them to the first record at or after: ISO 8601 (UTC), or ms.")
    shift_by: int | None = Option(None, help="Move them by so many, back where it is negative.")
    from_file: str | None = Option(None, help="Set them as a CSV file says: topic,partition,offset.")
    is_forced: bool = Option(False, "--force", help="Set them also of a group that has members.")
    offsets_partitions: int | None = Option(
        None, min=1, help="How many partitions __consumer_offsets has, if not all are here."
    )


@groups.command("set")
@with_options_of(_Set)
def set_offsets(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="The log directories of a stopped broker.")],
    group: Annotated[str, typer.Option("--group", help="The consumer group; a new one is made.")],
    execute: Annotated[bool, typer.Option("--execute", help="Write them. Without it nothing is changed.")] = False,
    as_json: Json = False,
    _fields: Fields = False,
    **given: Any,
) -> None:
    """Set the committed offsets of a consumer group in the log directory of a stopped broker.

    The options are those of kafka-consumer-groups --reset-offsets. All offsets are set, or none; the broker hands them
    out when it starts. Where no log here has the group, they are set in seglog.offsets. An offset that a log has not
    becomes the nearest that it has, with a warning.
    """
    # This loads compiled code, which other commands should not wait for.
    from sparklog.cli.work.set_offsets import WantedOffsets, show_changes

    show_changes(paths, WantedOffsets(group, **given), executes=execute, as_json=as_json)
