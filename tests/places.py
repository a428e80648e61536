"""The places of logs on this machine's disk, for tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.storage.base import Storage
from sparklog.storage.local_writing import LocalWritableStorage
from sparklog.storage.registry import Location
from sparklog.topic.write.commit import CommitRequest

LOCAL = LocalWritableStorage()


def directory_at(path: Path | str, storage: Storage = LOCAL) -> LogDirectory:
    return LogDirectory(storage, str(path))


def folder_at(path: Path | str, storage: Storage = LOCAL) -> PartitionFolder:
    return PartitionFolder.at(storage, str(path))


def location_of(path: Path | str, storage: Storage = LOCAL) -> Location:
    return Location(storage, str(path))


def moved(job: CommitRequest, storage: Storage, path: Path | str | None = None) -> CommitRequest:
    """Return a job whose log directory is in another storage, and maybe at another path."""
    return replace(job, directory=directory_at(job.directory.path if path is None else path, storage))
