"""Makes log directories so that a power cut does not take them away."""

from __future__ import annotations

from sparklog.log.places import LogDirectory, split_path
from sparklog.storage.capabilities import to_writable


def make_directory(directory: LogDirectory) -> None:
    """Make a log directory where there is none, and those that it is in; their names are on the disk then.

    A sync of what is in a folder says nothing of the folder's own name: that is its parent's.
    """
    storage, parents = to_writable(directory.storage, directory.path), []
    path = whole = storage.real(directory.path)
    while path != "/" and not storage.is_folder(path):
        path, _ = split_path(path)
        parents.append(path)
    if not parents and not storage.names(whole):
        # Made by somebody who may have died before its name was on the disk.
        parents = [split_path(whole)[0]]
    directory.writable.make_folder(directory.path)
    storage.sync_folders(parents)
