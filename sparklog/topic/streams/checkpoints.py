"""Where a stopped or running query of Spark is, by its checkpoint: of this source, or of Spark's Kafka source.

    <checkpoint>/offsets/<batch>   v1 or v2, a line of JSON about the batch, and for each source a line with its end
                                   offset, or - where the source gave none; in v2, which Spark 4.2 and newer write where
                                   they are told to, the line begins with the source's name, or its number, and a colon,
                                   and the order of lines means nothing
    <checkpoint>/commits/<batch>   is there once the batch is done, whatever its version

Source: apache/spark, OffsetSeqLog.scala, CommitLog.scala.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from sparklog.errors import InvalidOptionError, PathNotFoundError
from sparklog.log.files import TopicPartition
from sparklog.log.places import join_path
from sparklog.storage.base import Storage
from sparklog.storage.registry import PathText
from sparklog.topic.places.discovery import places_at
from sparklog.topic.streams.offsets import StreamOffset

_VERSION, _VERSION_OF_NAMES = "v1", "v2"
_NO_OFFSET: Final = "-"


def offsets_of_checkpoint(path: PathText, source: int | str = 0) -> str:
    """Return the offsets up to which a query has read, for the option ``startingOffsets`` of a new one.

    The query may be one of ``format("kafka")``, which a query of ``format("seglog")`` on the same topics goes on from.
    Stop it first: what it reads afterwards is read again.

    Parameters
    ----------
    path : str or os.PathLike
        The checkpoint.
    source : int or str
        Which of the query's sources, where it has several: its number, or the name that it was given with
        ``readStream.name``.

    Returns
    -------
    str
        JSON, for each partition the offset of the next record. A batch that was planned and not committed is not
        counted.

    Raises
    ------
    PathNotFoundError
        There is no checkpoint, or no batch of it was committed.
    InvalidOptionError
        The checkpoint has no such source, is not of one of these two formats, or its version is not known.
    """
    return json.dumps(committed_offset(path, source).topics_json())


def committed_offset(path: PathText, source: int | str = 0) -> StreamOffset:
    """Return the offset up to which a query has read; the rest as of `offsets_of_checkpoint`."""
    ((storage, place),) = places_at(path)
    offsets, commits = (join_path(place, name) for name in ("offsets", "commits"))
    if not storage.is_folder(offsets):
        raise PathNotFoundError(f"no checkpoint of a query at {place}: it has no folder offsets")
    done = _numbers(storage, commits) & _numbers(storage, offsets)
    if not done:
        return _first(storage, join_path(offsets, "0"), source)
    return _offset(storage, join_path(offsets, str(max(done))), source)


def lag_of(offset: StreamOffset, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return how many offsets each partition has that were not read; of one that is new, all that it has."""
    return {at: max(end - offset.offsets.get(at, 0), 0) for at, end in ends.items()}


def _numbers(storage: Storage, path: str) -> set[int]:
    if not storage.is_folder(path):
        return set()
    return {int(each.name) for each in storage.names(path) if each.name.isdecimal()}


def _first(storage: Storage, path: str, source: int | str) -> StreamOffset:
    """Return where a query began that has committed no batch."""
    if storage.identity(path) is not None:
        first = _offset(storage, path, source).first
        if first is not None:
            return StreamOffset(first)
    raise PathNotFoundError(f"no batch of the query is committed, says {path}: it has read nothing")


def _offset(storage: Storage, path: str, source: int | str) -> StreamOffset:
    data = storage.read_small(path)
    if data is None:
        raise PathNotFoundError(f"no such file: {path}")
    version, *lines = data.decode(errors="replace").splitlines() or [""]
    line = _line_of(path, version.strip(), lines[1:], str(source))  # The first is about the batch.
    if line == _NO_OFFSET:
        raise InvalidOptionError(f"source {source} has no offset in {path}")
    try:
        found = json.loads(line)
    except ValueError as error:
        raise InvalidOptionError(f"source {source} of {path} is not a source of Kafka's offsets") from error
    return StreamOffset.parse(found)


def _line_of(path: str, version: str, lines: list[str], source: str) -> str:
    """Return the line of a source, without its name."""
    if version == _VERSION:
        found = {str(number): line for number, line in enumerate(lines)}
    elif version == _VERSION_OF_NAMES:
        found = {name: line for name, _, line in (line.partition(":") for line in lines)}
    else:
        raise InvalidOptionError(
            f"{path} is of version {version[:20]!r}, and {_VERSION} and {_VERSION_OF_NAMES} are known"
        )
    if source == "0" and len(found) == 1:
        return next(iter(found.values()))
    if source not in found:
        names = ", ".join(found)[:200]
        raise InvalidOptionError(f"{path} has {len(found)} sources ({names}), and not one that is {source!r}")
    return found[source]
