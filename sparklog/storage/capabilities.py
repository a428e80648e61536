"""Checks that a storage has all abilities that writing needs, and words the refusal."""

from __future__ import annotations

from typing import Final, cast

from sparklog.errors import InvalidOptionError
from sparklog.storage.base import Storage, WritableStorage

_NEEDED: Final = {
    "can_lock": "it has no locks, so that neither a running broker nor another writer could be kept out",
    "can_rename": "it cannot rename a file in one step, so that a commit could not be made visible all at once",
    "can_overwrite": "it cannot change bytes within a file, so that batches could not be given their offsets",
    "can_append": "it cannot add to a file that is there, so that a log could not grow",
}


def to_writable(storage: Storage, path: str) -> WritableStorage:
    """Return a storage as a writable one.

    Raises
    ------
    InvalidOptionError
        It lacks an ability that a writer needs; the message names it.
    """
    reason = missing_capability(storage)
    if reason is not None:
        raise InvalidOptionError(
            f"{path} cannot be written to in the storage of '{storage.scheme}:': {reason}. "
            f"Write to a local or NFS disk, and copy the files there"
        )
    return cast("WritableStorage", storage)


def missing_capability(storage: Storage) -> str | None:
    """Return why a storage cannot be written to; None if it can."""
    for name, reason in _NEEDED.items():
        if not getattr(storage.capabilities, name):
            return reason
    return None
