"""The writer of one partition as users know it: it obeys the properties that are stored for the topic.

`sparklog.write` knows one folder and nothing of topics, and its writer goes by what it is given. Who opens a log by its
path expects of it what every other write does.
"""

from __future__ import annotations

from sparklog.log.config import LogConfig
from sparklog.log.places import PartitionFolder
from sparklog.topic.write.configs import stored_configs, topic_config
from sparklog.write import partition


class PartitionLog(partition.PartitionLog):
    """A partition's log, open to be appended to. Made by `open`, and used with ``with``.

    The configuration that `open` is given is over the properties that are stored for the topic, in
    ``topics.properties`` of the log directory or in the cluster's metadata there, and these are over the defaults. They
    are read when the log is opened.

    Threads may share it. A forked process may only close what it has of its parent's, which changes nothing.
    """

    @classmethod
    def _config_of(cls, folder: PartitionFolder, given: LogConfig) -> LogConfig:
        return topic_config(folder.topic, given, stored_configs(folder.directory))
