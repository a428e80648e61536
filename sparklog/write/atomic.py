"""Puts a small file in place, so that it is either the old one or the new one."""

from __future__ import annotations

from sparklog.log.files import BEING_WRITTEN
from sparklog.storage.base import WritableStorage


def write_atomically(storage: WritableStorage, path: str, data: bytes) -> None:
    """Put a small file in place so that it is either the old one or the new one, and synced."""
    beside = f"{path}{BEING_WRITTEN}"
    with storage.open_for_append(beside) as file:
        file.truncate(0)
        file.append(data)
        file.sync()
    storage.rename(beside, path)
    storage.sync_folder(path.rpartition("/")[0])
