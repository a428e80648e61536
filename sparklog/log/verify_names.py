"""Names in a log directory and in the folder of a partition: which of them are Kafka's, and what the others may do.

A file of a log is a regular file whose name is 20 digits and a suffix of Kafka's. Everything else is foreign: it is
listed, and never opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sparklog.errors import PathNotFoundError
from sparklog.log import files
from sparklog.log.journal import JOURNAL, OWN_PREFIX
from sparklog.log.staging import STAGED
from sparklog.log.verify_segment import Finding, Severity
from sparklog.storage.base import Entry, ReadableFile, Storage
from sparklog.storage.kinds import special_kind, special_names

CHECKPOINTS: Final = (
    files.LOG_START_CHECKPOINT,
    files.HIGH_WATERMARK_CHECKPOINT,
    files.RECOVERY_POINT_CHECKPOINT,
    files.CLEANER_CHECKPOINT,
)

_BROKER_FILES: Final = frozenset(
    {*CHECKPOINTS, files.CLEAN_SHUTDOWN, "meta.properties", "bootstrap.checkpoint", ".lock"}
)
_PARTITION_FILES: Final = frozenset({files.LEADER_EPOCH_CHECKPOINT, files.PARTITION_METADATA, "quorum-state"})
_SEGMENT_SUFFIXES: Final = (files.LOG, files.OFFSET_INDEX, files.TIME_INDEX, files.TRANSACTION_INDEX)
_PASSING_SUFFIXES: Final = (files.DELETED, files.CLEANED, files.SWAP)
_SET_ASIDE: Final = re.compile(r"\S+-\S+\.\S+-(delete|future|stray)")
_METADATA_SNAPSHOT: Final = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint")
_OFFSET_FILE: Final = re.compile(r"[0-9]+(\.(log|index|timeindex|txnindex|snapshot))(\.(deleted|cleaned|swap))?")
_REMOTE_CACHE: Final = "remote-log-index-cache"
_STAGED: Final = "of a write that was not committed, or is on its way: 'sparklog recover' removes old ones"
_PASSING: Final = "a broker removes or replaces it, or stopped while it did: it ends that when it starts"

Told = tuple[Severity, str, str]


class RegularFiles:
    """A storage without what must not be opened: pipes, sockets, links that lead nowhere, and foreign segment names."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def entries(self, path: str) -> list[Entry]:
        special = special_names(path)
        return [
            entry
            for entry in self._storage.entries(path)
            if entry.name not in special and (not _OFFSET_FILE.fullmatch(entry.name) or _is_offset_file(entry))
        ]

    def is_folder(self, path: str) -> bool:
        return self._storage.is_folder(path)

    def open(self, path: str) -> ReadableFile:
        if special_kind(path) is not None or self._storage.is_folder(path):
            raise PathNotFoundError(f"no such file: {path}")
        return self._storage.open(path)

    def read_small(self, path: str) -> bytes | None:
        if special_kind(path) is not None or self._storage.is_folder(path):
            return None
        return self._storage.read_small(path)

    def absolute(self, path: str) -> str:
        return self._storage.absolute(path)


def is_log(name: str) -> bool:
    """Whether a folder of a log directory is a log to verify."""
    aside = _SET_ASIDE.fullmatch(name)
    if aside is not None:
        return aside[1] != "delete"
    return files.parse_partition_folder(name) is not None or name.startswith(f"{files.METADATA_TOPIC}-")


def special_in_directory(folder: str) -> Iterator[Finding]:
    """List what is neither a file nor a folder in a log directory."""
    for name, kind in special_names(folder).items():
        if is_log(name):
            severity, message = Severity.ERROR, f"it is {kind}, not the folder of a partition: nothing of it is read"
        elif name.removesuffix(".tmp") in _BROKER_FILES:
            severity, message = Severity.ERROR, f"it is {kind}, not a regular file: it is not read"
        else:
            severity, message = Severity.NOTE, f"it is {kind}, not a file of Kafka's"
        yield Finding(severity, "foreign-name", f"{folder}/{name}", message)


def foreign_in_directory(folder: str, entries: list[Entry]) -> Iterator[Finding]:
    """Say which files and folders of a log directory are not Kafka's, or of something unfinished."""
    for entry in entries:
        path = f"{folder}/{entry.name}"
        if entry.is_folder and _SET_ASIDE.fullmatch(entry.name):
            if not is_log(entry.name):
                yield Finding(Severity.NOTE, "set-aside", path, "Kafka was deleting it: not verified")
        elif entry.is_folder and not is_log(entry.name) and entry.name != _REMOTE_CACHE:
            message = "not the folder of a topic partition: a broker refuses to start with it in its log directory"
            yield Finding(Severity.ERROR, "foreign-name", path, message)
        elif entry.name == JOURNAL:
            message = "a commit that was decided is not done: the next write, or 'sparklog recover', finishes it"
            yield Finding(Severity.WARNING, "unfinished", path, message)
        elif entry.name.endswith(STAGED):
            yield Finding(Severity.NOTE, "unfinished", path, _STAGED)
        elif (
            not entry.is_folder
            and not entry.name.startswith((OWN_PREFIX, files.CLEAN_SHUTDOWN))
            and entry.name.removesuffix(".tmp") not in _BROKER_FILES
        ):
            yield Finding(Severity.NOTE, "foreign-name", path, "not a file of Kafka's")


def foreign_in_partition(storage: Storage, folder: str) -> Iterator[Finding]:
    """Say which names in the folder of a partition are not Kafka's, or of something unfinished."""
    special = special_names(folder)
    for name, kind in special.items():
        is_ours = _OFFSET_FILE.fullmatch(name) or name.removesuffix(".tmp") in _PARTITION_FILES
        severity = Severity.ERROR if is_ours else Severity.NOTE
        message = f"it is {kind}, not a regular file: it is not read"
        yield Finding(severity, "foreign-name", f"{folder}/{name}", message)
    for entry in storage.entries(folder):
        told = None if entry.name in special else _of_name(entry)
        if told is not None:
            severity, code, message = told
            yield Finding(severity, code, f"{folder}/{entry.name}", message)


def orphans(entries: list[Entry]) -> set[str]:
    """Return the names of indexes whose log is not there; also of those that a broker is just removing."""
    logs = {entry.name for entry in entries if entry.name.endswith(files.LOG)}
    found = ((entry.name, files.parse_offset_file(entry.name)) for entry in entries if _is_offset_file(entry))
    return {
        name
        for name, file in found
        if file and file.suffix in _SEGMENT_SUFFIXES[1:] and files.offset_file_name(file.offset, files.LOG) not in logs
    }


def _is_offset_file(entry: Entry) -> bool:
    """Whether a name is that of a file of a log, in 20 digits, and no folder's."""
    found = files.parse_offset_file(entry.name) if _OFFSET_FILE.fullmatch(entry.name) else None
    return not entry.is_folder and found is not None and entry.name == files.offset_file_name(*found)


def _of_name(entry: Entry) -> Told | None:
    """Say what is to be said of one name in a partition's folder."""
    name = entry.name
    if name.endswith(STAGED):
        return Severity.NOTE, "unfinished", _STAGED
    if _is_offset_file(entry) and name.endswith(_PASSING_SUFFIXES):
        return Severity.NOTE, "unfinished", _PASSING
    if _OFFSET_FILE.fullmatch(name) and not _is_offset_file(entry):
        if entry.is_folder:
            return Severity.ERROR, "foreign-name", "it is a folder, where a file of the log belongs: it is not read"
        return Severity.ERROR, "foreign-name", "the offset in its name has not 20 digits: it is not read"
    if entry.is_folder:
        severity = Severity.ERROR if name in _PARTITION_FILES else Severity.NOTE
        return severity, "foreign-name", "a folder, which no broker makes here"
    if _is_offset_file(entry):
        return None
    if name.endswith(_SEGMENT_SUFFIXES):
        return Severity.ERROR, "foreign-name", "its name is not an offset: a broker fails to load the partition"
    is_known = name.removesuffix(".tmp") in _PARTITION_FILES or _METADATA_SNAPSHOT.fullmatch(name)
    return None if is_known else (Severity.NOTE, "foreign-name", "not a file of Kafka's")
