"""Parses ``meta.properties``, which says whose disk a log directory is, in Java's properties format.

    property       version 0 (ZooKeeper)   version 1 (KRaft)
    version        0                       1
    cluster.id     the id of the cluster   the same, required
    broker.id      the number of the node  absent
    node.id        absent                  the number of the node, required
    directory.id   absent                  the id of this directory, since Kafka 3.7

A broker that finds another cluster or another node in one of its directories does not start.
Source: apache/kafka, MetaProperties.java, MetaPropertiesEnsemble.java, DirectoryId.java.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from sparklog.errors import CorruptCheckpointError, InvalidOptionError
from sparklog.log.properties import properties_in

_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")
_NUMBER: Final = re.compile(r"[0-9]{1,10}")
_RESERVED: Final = "A" * 20
"""The beginning of the directory ids that stand for no directory: unassigned, lost, migrating."""


class MetaProperties(NamedTuple):
    """The contents of ``meta.properties``. Absent ids are None."""

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None

    def is_same_node(self, other: MetaProperties) -> bool:
        """Return whether both are of directories of one node."""
        return (self.cluster_id, self.node_id) == (other.cluster_id, other.node_id) and self.node_id is not None


def parse_meta_properties(data: bytes, path: str) -> MetaProperties:
    """Parse the file.

    Raises
    ------
    CorruptCheckpointError
        It is malformed, has an unknown version, or lacks what its version requires.
    """
    try:
        said = properties_in(data, path)
    except InvalidOptionError as error:
        raise CorruptCheckpointError(error.message, path=path) from error
    version, cluster_id, directory_id = (said.get(name) for name in ("version", "cluster.id", "directory.id"))
    if version not in ("0", "1"):
        raise CorruptCheckpointError(f"its version is {version!r}, neither 0 nor 1", path=path)
    name = "node.id" if version == "1" else "broker.id"
    node = said.get(name)
    if version == "1" and not (cluster_id and node):
        raise CorruptCheckpointError("cluster.id or node.id is missing, which version 1 requires", path=path)
    if node is not None and not _NUMBER.fullmatch(node):
        raise CorruptCheckpointError(f"{name} is {node!r}, and not a number from 0 on", path=path)
    if directory_id is not None and (not _ID.fullmatch(directory_id) or not is_directory_id(directory_id)):
        raise CorruptCheckpointError(f"directory.id is {directory_id!r}, and not the id of a directory", path=path)
    return MetaProperties(int(version), cluster_id, None if node is None else int(node), directory_id)


def is_directory_id(found: str) -> bool:
    """Return whether an id is one directory's, and does not stand for an unknown one."""
    return not found.startswith(_RESERVED)
