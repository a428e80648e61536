"""``groups set``: parses its options, sets the offsets, and prints them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparklog.cli.output import render, tables
from sparklog.cli.output.system_fields import NEW_OFFSET
from sparklog.cli.parsing import milliseconds_of
from sparklog.errors import InvalidOptionError
from sparklog.log.files import TopicPartition
from sparklog.storage.small_files import read_files
from sparklog.topic.internal.set_offsets import Goal, OffsetRequest, set_group_offsets


@dataclass(frozen=True)
class WantedOffsets:
    """The options of ``groups set``, by their names."""

    group: str
    topics: Sequence[str] = ()
    all_topics: bool = False
    to_offset: int | None = None
    to_earliest: bool = False
    to_latest: bool = False
    to_datetime: str | None = None
    shift_by: int | None = None
    from_file: str | None = None
    is_forced: bool = False
    offsets_partitions: int | None = None

    def request(self) -> OffsetRequest:
        """Return the request; raise `InvalidOptionError` unless exactly one option gives the new offsets."""
        goal = self._goal()
        if bool(self.topics) + self.all_topics + (goal.offsets is not None) != 1:
            raise InvalidOptionError("say whose offsets to set by one of --topic, --all-topics and --from-file")
        topics = _topics(self.topics)
        return OffsetRequest(self.group, topics, goal, self.offsets_partitions, self.is_forced)

    def _goal(self) -> Goal:
        given = {
            "--to-offset": self.to_offset is not None,
            "--to-earliest": self.to_earliest,
            "--to-latest": self.to_latest,
            "--to-datetime": self.to_datetime is not None,
            "--shift-by": self.shift_by is not None,
            "--from-file": self.from_file is not None,
        }
        names = [name for name, is_given in given.items() if is_given]
        if len(names) != 1:
            raise InvalidOptionError(
                f"{' and '.join(names)} both say where to set the offsets: give one of them"
                if names
                else f"say where to set the offsets: {', '.join(given)}"
            )
        return Goal(
            offset=self.to_offset,
            time_ms=None if self.to_datetime is None else milliseconds_of(self.to_datetime, "--to-datetime"),
            shift=self.shift_by,
            offsets=None if self.from_file is None else _offsets_of(self.from_file),
            word="earliest" if self.to_earliest else "latest",
        )


def show_changes(paths: Sequence[str], wanted: WantedOffsets, *, executes: bool, as_json: bool) -> None:
    """Set offsets, or only compute them if ``executes`` is false; print each."""
    done = set_group_offsets(paths, wanted.request(), executes=executes)
    rows = [
        NEW_OFFSET.row(
            each, group=wanted.group, topic=each.topic_partition.topic, partition=each.topic_partition.partition
        )
        for each in done.changes
    ]
    tables.show_rows(NEW_OFFSET.columns, rows, as_json=as_json)
    if as_json:
        return
    count = f"{len(rows)} offset{'s' * (len(rows) != 1)} of group {wanted.group}"
    if executes:
        where = done.location if done.log_offset is None else f"{done.location} from offset {done.log_offset} on"
        render.say(f"{count} set, in {where}")
    else:
        render.say(f"{count} to set in {done.location}; nothing was changed, --execute writes them")


def _topics(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Parse topics and partitions of topics, ``orders`` or ``orders:0,1`` each."""
    topics: dict[str, tuple[int, ...]] = {}
    for text in texts:
        topic, colon, listed = text.partition(":")
        numbers = listed.split(",") if colon else []
        if not topic or not all(number.isdecimal() for number in numbers):
            raise InvalidOptionError(f"--topic {text!r} is neither a topic nor topic:partition,partition")
        is_whole = not colon or topics.get(topic) == ()
        topics[topic] = () if is_whole else (*topics.get(topic, ()), *map(int, numbers))
    return topics


def _offsets_of(path: str) -> dict[TopicPartition, int]:
    """Read a file of ``topic,partition,offset`` lines, as ``kafka-consumer-groups --export`` writes for one group."""
    (data,) = read_files(path, "--from-file", lambda _: False).values()
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(data.decode(errors="replace").splitlines()), 1):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if len(cells) != 3 or not cells[0] or not all(cell.isdecimal() for cell in cells[1:]):
            raise InvalidOptionError(f"line {number} of {path} is not topic,partition,offset: {','.join(row)!r}")
        offsets[TopicPartition(cells[0], int(cells[1]))] = int(cells[2])
    if not offsets:
        raise InvalidOptionError(f"{path} has no line, topic,partition,offset")
    return offsets
