"""Describes whose a log directory is: what its ``meta.properties`` says of the cluster, the node and the directory."""

from __future__ import annotations

from dataclasses import dataclass

import javaproperties

from sparklog.errors import SeglogError
from sparklog.log import files
from sparklog.log.places import LogDirectory


@dataclass(frozen=True)
class DirectoryDescription:
    """A log directory.

    Attributes
    ----------
    cluster_id, directory_id : str or None
    node_id : int or None
        The number of the broker. Each is None where the file does not say it, or there is none.
    error : str or None
        Why the file cannot be read.
    """

    path: str
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: str | None = None
    error: str | None = None


def describe_directory(directory: LogDirectory) -> DirectoryDescription:
    """Describe a log directory; a file that cannot be read is no error but told.

    Source: apache/kafka, MetaProperties.java: version 0 says ``broker.id``, version 1 ``node.id``.
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
