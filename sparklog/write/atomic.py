"""Puts a small file in place, so that it is either the old one or the new one."""

from __future__ import annotations

from sparklog.log.files import being_written
from sparklog.log.places import LogDirectory, PartitionFolder


def write_atomically(folder: LogDirectory | PartitionFolder, name: str, data: bytes) -> None:
    """Put a small file in place so that it is either the old one or the new one, and synced."""
    storage, beside = folder.writable, folder.file(being_written(name))
    with storage.create(beside, like=folder.file(name)) as file:
        file.append(data)
        file.sync()
    storage.rename(beside, folder.file(name))
    storage.sync_folder(folder.location)
