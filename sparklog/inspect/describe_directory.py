"""Describes whose a log directory is: the cluster, node and directory that its ``meta.properties`` names."""

from __future__ import annotations

from dataclasses import dataclass

import javaproperties

from sparklog.errors import SeglogError
from sparklog.log import files
from sparklog.log.places import LogDirectory


@dataclass(frozen=True)
class DirectoryDescription:
    """The identity of a log directory.

    Attributes
    ----------
    cluster_id, directory_id : str or None
    node_id : int or None
        The number of the broker. Each of the three is None if the file is missing or does not name it.
    error : str or None
        Why the file cannot be read.
    """

    path: str
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: str | None = None
    error: str | None = None


def describe_directory(directory: LogDirectory) -> DirectoryDescription:
    """Describe a log directory; if its file cannot be read, the description holds the error.

    Source: apache/kafka, MetaProperties.java: version 0 has ``broker.id``, version 1 ``node.id``.
    """
    path = directory.file(files.META_PROPERTIES)
    try:
        said = javaproperties.loads(directory.storage.read_small(path) or b"")
        node_id = said.get("node.id", said.get("broker.id"))
        return DirectoryDescription(
            directory.path,
            said.get("cluster.id"),
            None if node_id is None else int(node_id),
            said.get("directory.id"),
        )
    except (SeglogError, ValueError) as error:
        return DirectoryDescription(directory.path, error=f"{path}: {error}")
