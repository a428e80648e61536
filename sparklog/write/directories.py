"""Makes log directories so that a power cut does not take them away."""

from __future__ import annotations

from sparklog.log.places import LogDirectory, split_path
from sparklog.storage.capabilities import to_writable


def make_directory(directory: LogDirectory) -> None:
    """Make a log directory and its parents, unless they exist, and put their names on the disk.

    Syncing a folder does not sync the folder's own name, which its parent holds.
    """
    storage, parents = to_writable(directory.storage, directory.path), []
    path = whole = storage.real(directory.path)
    while path != "/" and not storage.is_folder(path):
        path, _ = split_path(path)
        parents.append(path)
    if not parents and not storage.names(whole):
        # Its maker may have died before the name was on the disk.
        parents = [split_path(whole)[0]]
    directory.writable.make_folder(directory.path)
    storage.sync_folders(parents)
