"""Writes one partition for users, obeying the properties that are stored for the topic.

`sparklog.write` knows single folders and no topics, and its writer obeys only the configuration that it is given. A
user who opens a log by its path expects the topic's properties to count, as in every other write.
"""

from __future__ import annotations

from sparklog.log.config import LogConfig
from sparklog.log.places import PartitionFolder
from sparklog.topic.write.configs import folder_config
from sparklog.write import partition


class PartitionLog(partition.LogWriter):
    """A partition's log, open for appends. Made by `open`, and used with ``with``.

    The configuration given to `open` overrides the topic's stored properties, and these override the defaults. Stored
    properties are in ``topics.properties`` of the log directory, or in the cluster's metadata there, and are read when
    the log is opened.

    Threads may share it. A forked process may only close its parent's logs, which changes nothing.
    """

    @classmethod
    def _config_of(cls, folder: PartitionFolder, given: LogConfig) -> LogConfig:
        return folder_config(folder, given)
