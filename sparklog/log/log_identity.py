"""What tells a log from another of the same name: the ids of its topic and of itself, and the batch before an offset.

Each log that sparklog makes has an id of its own, in the file ``seglog-identity`` of the partition's folder:

    version: 0
    log_id: 0q2TYVrXaSDWPZ5lUZtm3J

A broker passes over the file. It has no part in ``partition.metadata``, where an id that the cluster does not know
would keep a broker from adopting the log.

Whoever has read a log up to an offset keeps its identity there, and compares it when reading on. An id is copied with
the folder, and stays when a log is cut and written on. So ids tell logs apart that differ in them, and where they do
not, the batch before the offset decides (`sparklog.log.end_batch`). A topic's id is over that of the log: a replica
that is made anew holds the same records. What is not known of both says nothing.
"""

from __future__ import annotations

import re
import secrets
from typing import Final, NamedTuple

from sparklog.log import files
from sparklog.log.end_batch import EndBatch, end_batch
from sparklog.log.layout import PartitionLayout, topic_id_of
from sparklog.log.places import PartitionFolder

TOPIC_ID: Final = "topic id"
LOG_ID: Final = "log id"
END_BATCH: Final = "batch before the offset"

_CONTENT: Final = re.compile(rb"version: 0\nlog_id: ([A-Za-z0-9_-]{22})\n?")
_ID_BYTES: Final = 16


def new_log_identity() -> bytes:
    """Return the content of the file of a log that is made: an id that no other log has."""
    return f"version: 0\nlog_id: {secrets.token_urlsafe(_ID_BYTES)}\n".encode()


def read_log_id(folder: PartitionFolder) -> str | None:
    """Return the id of a log; None where it has none, or none that can be read."""
    found = _CONTENT.fullmatch(folder.storage.read_small(folder.file(files.LOG_IDENTITY)) or b"")
    return None if found is None else found[1].decode()


class LogIdentity(NamedTuple):
    """What is known of a log that was read up to an offset; None for what is not.

    Attributes
    ----------
    topic_id : str or None
        That of ``partition.metadata``.
    log_id : str or None
        Of `read_log_id`.
    end_batch : EndBatch or None
        The batch that holds the offset before.
    """

    topic_id: str | None = None
    log_id: str | None = None
    end_batch: EndBatch | None = None

    def difference(self, found: LogIdentity) -> str | None:
        """Return what proves that a log, found so at the same offset, is another or was cut; None where nothing does.

        Returns
        -------
        str or None
            `TOPIC_ID`, `LOG_ID` or `END_BATCH`.
        """
        if self.topic_id is not None and found.topic_id is not None:
            if self.topic_id != found.topic_id:
                return TOPIC_ID
        elif self.log_id is not None and found.log_id is not None and self.log_id != found.log_id:
            return LOG_ID
        if self.end_batch is None or found.end_batch is None or self.end_batch.may_become(found.end_batch):
            return None
        return END_BATCH


def identity_at(layout: PartitionLayout, end_offset: int) -> LogIdentity:
    """Return what a log is known by to who has read it up to an offset."""
    folder = layout.folder
    return LogIdentity(topic_id_of(folder), read_log_id(folder), end_batch(layout, end_offset))
