"""Judges the names in a log directory and in a partition's folder: which are Kafka's, and which may do harm.

A file of a log is a regular file whose name is 20 digits and a suffix of Kafka's. Everything else is foreign: it is
reported, and never opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sparklog.inspect.verify_segment import Finding, Severity
from sparklog.log import files
from sparklog.log.files import JOURNAL, OWN_PREFIX
from sparklog.log.places import join_path
from sparklog.storage.base import Entry

CHECKPOINTS: Final = (
    files.LOG_START_CHECKPOINT,
    files.HIGH_WATERMARK_CHECKPOINT,
    files.RECOVERY_POINT_CHECKPOINT,
    files.CLEANER_CHECKPOINT,
)

_BROKER_FILES: Final = frozenset(
    {*CHECKPOINTS, files.CLEAN_SHUTDOWN, files.META_PROPERTIES, files.BOOTSTRAP_CHECKPOINT, files.LOCK}
)
_PARTITION_FILES: Final = frozenset(
    {
        files.LEADER_EPOCH_CHECKPOINT,
        files.PARTITION_METADATA,
        files.LOG_IDENTITY,
        files.MIRROR_STATE,
        files.QUORUM_STATE,
    }
)
_SEGMENT_SUFFIXES: Final = (files.LOG, files.OFFSET_INDEX, files.TIME_INDEX, files.TRANSACTION_INDEX)
_PASSING_SUFFIXES: Final = (files.DELETED, files.CLEANED, files.SWAP)
_SET_ASIDE: Final = re.compile(r"\S+-\S+\.\S+-(delete|future|stray)")
_OFFSET_FILE: Final = re.compile(r"[0-9]+(\.(log|index|timeindex|txnindex|snapshot))(\.(deleted|cleaned|swap))?")
_REMOTE_CACHE: Final = "remote-log-index-cache"
_STAGED: Final = "staged by a write that is running or was not committed: 'sparklog recover' removes old ones"
_PASSING: Final = "a broker is removing or replacing it, or stopped before it was done: it finishes that when it starts"
_LINK: Final = "a symbolic link: its target is read, but sparklog never writes through it"

NameFinding = tuple[Severity, str, str]
"""Severity, code and message."""


def is_log(name: str) -> bool:
    """Return whether a folder of a log directory is a log to verify."""
    aside = _SET_ASIDE.fullmatch(name)
    if aside is not None:
        return aside[1] != "delete"
    return files.parse_partition_folder(name) is not None or name.startswith(f"{files.METADATA_TOPIC}-")


def foreign_in_directory(folder: str, entries: list[Entry]) -> Iterator[Finding]:
    """Find the files and folders of a log directory that are not Kafka's, or belong to unfinished work."""
    yield from _links(folder, entries)
    for entry in entries:
        path = join_path(folder, entry.name)
        if entry.special:
            yield _special_in_directory(path, entry)
        elif entry.is_folder and _SET_ASIDE.fullmatch(entry.name):
            if not is_log(entry.name):
                yield Finding(Severity.NOTE, "set-aside", path, "Kafka was deleting it: not verified")
        elif entry.is_folder and not is_log(entry.name) and entry.name != _REMOTE_CACHE:
            message = "not the folder of a topic partition: a broker refuses to start with it in its log directory"
            yield Finding(Severity.ERROR, "foreign-name", path, message)
        elif entry.name == JOURNAL:
            message = "a commit that was decided is not finished: the next write, or 'sparklog recover', finishes it"
            yield Finding(Severity.WARNING, "unfinished", path, message)
        elif entry.name.endswith(files.STAGED):
            yield Finding(Severity.NOTE, "unfinished", path, _STAGED)
        elif (
            not entry.is_folder
            and not entry.name.startswith((OWN_PREFIX, files.CLEAN_SHUTDOWN))
            and entry.name.removesuffix(files.BEING_WRITTEN) not in _BROKER_FILES
        ):
            yield Finding(Severity.NOTE, "foreign-name", path, "not a file of Kafka's")


def _special_in_directory(path: str, entry: Entry) -> Finding:
    if is_log(entry.name):
        severity, message = Severity.ERROR, f"it is {entry.special}, not the folder of a partition: it is not read"
    elif entry.name.removesuffix(files.BEING_WRITTEN) in _BROKER_FILES:
        severity, message = Severity.ERROR, f"it is {entry.special}, not a regular file: it is not read"
    else:
        severity, message = Severity.NOTE, f"it is {entry.special}, not a file of Kafka's"
    return Finding(severity, "foreign-name", path, message)


def _links(folder: str, entries: list[Entry]) -> Iterator[Finding]:
    """Find the links that can be followed; any other link is a special entry."""
    for entry in entries:
        if entry.is_link:
            yield Finding(Severity.WARNING, "link", join_path(folder, entry.name), _LINK)


def foreign_in_partition(folder: str, entries: list[Entry]) -> Iterator[Finding]:
    """Find the names in a partition's folder that are not Kafka's, or belong to unfinished work."""
    yield from _links(folder, entries)
    for entry in entries:
        found = _judge_name(entry)
        if found is not None:
            severity, code, message = found
            yield Finding(severity, code, join_path(folder, entry.name), message)


def orphans(entries: list[Entry]) -> set[str]:
    """Return the names of indexes without a log; a broker may be about to remove them."""
    logs = {entry.name for entry in entries if entry.name.endswith(files.LOG)}
    found = ((entry.name, files.parse_offset_file(entry.name)) for entry in entries if _is_offset_file(entry))
    return {
        name
        for name, file in found
        if file and file.suffix in _SEGMENT_SUFFIXES[1:] and files.offset_file_name(file.offset, files.LOG) not in logs
    }


def _is_offset_file(entry: Entry) -> bool:
    """Return whether an entry is a regular file named as a file of a log."""
    return entry.is_file and files.parse_offset_file(entry.name) is not None


def _judge_name(entry: Entry) -> NameFinding | None:
    """Judge one name in a partition's folder; return None if it is Kafka's."""
    name = entry.name
    if entry.special:
        is_ours = _OFFSET_FILE.fullmatch(name) or name.removesuffix(files.BEING_WRITTEN) in _PARTITION_FILES
        severity = Severity.ERROR if is_ours else Severity.NOTE
        return severity, "foreign-name", f"it is {entry.special}, not a regular file: it is not read"
    if name.endswith(files.STAGED):
        return Severity.NOTE, "unfinished", _STAGED
    if files.is_cut_file(name):
        return Severity.NOTE, "cut", "bytes that recovery cut off a segment: 'sparklog recover --drop-cut' removes it"
    if _is_offset_file(entry) and name.endswith(_PASSING_SUFFIXES):
        return Severity.NOTE, "unfinished", _PASSING
    if _OFFSET_FILE.fullmatch(name) and not _is_offset_file(entry):
        if entry.is_folder:
            return Severity.ERROR, "foreign-name", "it is a folder, where a file of the log belongs: it is not read"
        return Severity.ERROR, "foreign-name", "the offset in its name does not have 20 digits: it is not read"
    if entry.is_folder:
        severity = Severity.ERROR if name in _PARTITION_FILES else Severity.NOTE
        return severity, "foreign-name", "a folder, which no broker makes here"
    if _is_offset_file(entry):
        return None
    if name.endswith(_SEGMENT_SUFFIXES):
        return Severity.ERROR, "foreign-name", "its name is not an offset: a broker fails to load the partition"
    is_known = name.removesuffix(files.BEING_WRITTEN) in _PARTITION_FILES or files.is_metadata_snapshot(name)
    return None if is_known else (Severity.NOTE, "foreign-name", "not a file of Kafka's")
