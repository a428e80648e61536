"""``topics``: lists, creates, alters and deletes the topics of log directories that no broker serves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from sparklog.cli.commands.arguments import Json, ShowFields
from sparklog.cli.commands.cut import LockTimeoutSeconds, Yes
from sparklog.cli.output import render, tables
from sparklog.cli.output.fields import MANAGED_TOPIC
from sparklog.cli.output.text import bytes_text, counted
from sparklog.cli.parsing import properties_of
from sparklog.errors import InvalidOptionError

if TYPE_CHECKING:
    from sparklog.topic.log_manager import LogManager

topics = typer.Typer(
    no_args_is_help=True, help="List, create, alter or delete the topics of log directories that no broker serves."
)
DirectoryPaths = Annotated[list[str], typer.Argument(metavar="PATH...", help="All log directories.")]
Topic = Annotated[str, typer.Option("--topic", help="The topic.")]
TopicConfigs = Annotated[list[str] | None, typer.Option("--config", help="A property, name=value; may be repeated.")]


@topics.command("list")
def list_topics(paths: DirectoryPaths, as_json: Json = False, _fields: ShowFields = False) -> None:
    """List the topics, the number of partitions of each here, and the properties stored for it."""
    manager = _manager(paths)
    stored = manager.stored()
    rows = [
        {"topic": topic, "partitions": count, "configs": stored.get(topic, {})}
        for topic, count in manager.topics().items()
    ]
    if as_json:
        render.put_rows(rows)
    else:
        tables.table(MANAGED_TOPIC.columns, rows)


@topics.command()
def create(
    paths: DirectoryPaths,
    topic: Topic,
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="Number of partitions.")] = 1,
    config: TopicConfigs = None,
    lock_timeout_seconds: LockTimeoutSeconds = 60.0,
) -> None:
    """Create a topic. Each partition goes to the log directory that has the fewest."""
    manager = _manager(paths, lock_timeout_seconds)
    made = manager.create_topic(topic, partitions, properties_of(config or (), "--config"))
    render.say(f"topic {topic} has {counted(len(made), 'partition')}")


@topics.command()
def alter(
    paths: DirectoryPaths,
    topic: Topic,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, help="New number of partitions, more than before.")
    ] = None,
    config: TopicConfigs = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", help="A property to reset to its default.")
    ] = None,
    lock_timeout_seconds: LockTimeoutSeconds = 60.0,
) -> None:
    """Change the properties of a topic, or give it more partitions: keys then go to other partitions than before."""
    changes = {**dict.fromkeys(delete_config or ()), **properties_of(config or (), "--config")}
    if partitions is None and not changes:
        raise InvalidOptionError("say what to change by --partitions, --config or --delete-config")
    manager = _manager(paths, lock_timeout_seconds)
    if changes:
        manager.alter_configs(topic, changes)
    if partitions is not None:
        manager.add_partitions(topic, partitions)
    render.say(f"topic {topic} has {counted(len(manager.partitions(topic)), 'partition')}")


@topics.command()
def delete(
    paths: DirectoryPaths,
    topic: Topic,
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and change nothing.")] = False,
    lock_timeout_seconds: LockTimeoutSeconds = 60.0,
) -> None:
    """Delete a topic with its properties and the offsets that groups have committed here. ITS RECORDS ARE GONE.

    Says what would go, and asks. The folders are renamed as a broker would, and their files are removed by the first
    change of a topic after its file.delete.delay.ms.
    """
    manager = _manager(paths, lock_timeout_seconds)
    folders = manager.partitions(topic).values()
    size_bytes = sum(each.size_bytes for folder in folders for each in folder.storage.entries(folder.location))
    what = f"{topic}: {counted(len(folders), 'partition')}, {bytes_text(size_bytes)}"
    if dry_run:
        render.say(f"{what} would go")
    elif yes or render.confirmed(f"{what} would go. Delete the topic?"):
        manager.delete_topic(topic)
        render.say(f"{what} went")
    else:
        render.say("nothing was changed")


def _manager(paths: Sequence[str], lock_timeout_seconds: float = 60.0) -> LogManager:
    # This loads compiled code, which other commands should not wait for.
    from sparklog.topic.log_manager import LogManager

    return LogManager(paths, lock_timeout_seconds=lock_timeout_seconds)
