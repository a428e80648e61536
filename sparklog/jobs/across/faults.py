"""Finds the faults across the files of log directories, twice if there are any: a broker may be at work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sparklog.errors import SeglogError
from sparklog.inspect.verify_log import Event, agreed_findings
from sparklog.inspect.verify_segment import Finding, unreadable
from sparklog.jobs.across.cluster import against_cluster
from sparklog.jobs.across.directories import between_directories, within_directory
from sparklog.jobs.across.disk import read_disks
from sparklog.log.places import LogDirectory

_PAUSE_S: Final = 1.0
"""A broker renames the folders of a deleted topic some time after the metadata say so."""


def verify_across(directories: Sequence[LogDirectory]) -> Iterator[Event]:
    """Compare the files of log directories with each other, and with the metadata of their cluster.

    Yields
    ------
    Finding
        The faults that two looks find, and the notes of the last look.
    """
    return agreed_findings(lambda: _look(directories), pause_seconds=_PAUSE_S)


def _look(directories: Sequence[LogDirectory]) -> Iterator[Finding]:
    try:
        disks = read_disks(directories)
    except SeglogError as error:
        yield unreadable(error, directories[0].path)
        return
    topics = set().union(*(disk.topics for disk in disks))
    topics |= {topic for disk in disks if disk.cluster for topic in disk.cluster.topics.values()}
    for disk in disks:
        yield from disk.findings
        yield from within_directory(disk, topics)
        yield from against_cluster(disk)
    yield from between_directories(disks)
