"""Compares a log directory with the cluster's metadata: topic ids, assignments, directory ids and leader epochs.

Source, for what a broker does with a difference: apache/kafka, LogManager.scala (isStrayKraftReplica, loadLog),
BrokerMetadataPublisher.scala, FileQuorumStateStore.java.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from sparklog.errors import SeglogError
from sparklog.inspect.meta_properties import is_directory_id
from sparklog.inspect.verify_segment import Finding, Severity
from sparklog.jobs.across.directories import stray_topic
from sparklog.jobs.across.disk import Disk, LogFacts, folders_set_aside
from sparklog.log import files
from sparklog.log.files import TopicPartition
from sparklog.system.cluster_state import ClusterState
from sparklog.system.codecs import MessageFields


def against_cluster(disk: Disk) -> Iterator[Finding]:
    """Compare a directory with the metadata of its cluster, if they are known."""
    yield from _quorum_state(disk)
    if disk.cluster is None:
        return
    ids = {topic: topic_id for topic_id, topic in disk.cluster.topics.items()}
    for at, facts in disk.logs.items():
        yield from _log(disk, disk.cluster, at, facts, ids.get(at.topic))
    if disk.meta is None or disk.meta.node_id is None or not disk.logs:
        return
    broker = disk.cluster.brokers.get(disk.meta.node_id)
    directory_id = disk.meta.directory_id
    if broker is not None and directory_id and broker["logDirs"] and directory_id not in broker["logDirs"]:
        message = f"node {disk.meta.node_id} has not registered directory {directory_id}: another disk was in its place"
        yield Finding(Severity.WARNING, "directory-unknown", disk.path(files.META_PROPERTIES), message)
    yield from _missing(disk, disk.cluster, disk.meta.node_id)
    yield from _strays(disk)


def _log(
    disk: Disk, cluster: ClusterState, at: TopicPartition, facts: LogFacts, known_id: str | None
) -> Iterator[Finding]:
    """Compare a log with the cluster, which has its topic under ``known_id``."""
    folder, topic_id = disk.directory.folder(str(at)), facts.topic_id or ""
    path, stray = folder.file(files.PARTITION_METADATA), "a broker sets the folder aside when it starts"
    name, fields = cluster.topics.get(topic_id), cluster.partitions.get(topic_id, {}).get(at.partition)
    # A broker that is killed just after a deletion has not come to rename the folder.
    severity = Severity.NOTE if topic_id in cluster.removed else Severity.WARNING
    if not topic_id:
        message = f"the log has no topic id, and the cluster's topics have: {stray}"
        yield Finding(severity, "topic-id", path, message)
    elif name is None and known_id is not None:
        message = f"topic id {topic_id} is not {known_id}, which {at.topic} has in the cluster: {stray}"
        yield Finding(severity, "topic-id", path, message)
    elif name is None:
        message = f"the cluster has no topic {at.topic}: {stray}"
        yield Finding(severity, "partition-unknown", folder.location, message)
    elif name != at.topic:
        message = f"topic id {topic_id} is that of {name}: the folder was renamed, or the file copied"
        yield Finding(Severity.ERROR, "topic-id", path, message)
    elif fields is None:
        message = f"the cluster's topic {name} has no partition {at.partition}: {stray}"
        yield Finding(Severity.WARNING, "partition-unknown", folder.location, message)
    else:
        reached, path = fields["leaderEpoch"], folder.file(files.LEADER_EPOCH_CHECKPOINT)
        if facts.last_epoch > reached:
            message = f"leader epoch {facts.last_epoch} is above the {reached} that the cluster has reached"
            yield Finding(Severity.ERROR, "cluster-epoch", path, message, None, facts.end_offset)
        yield from _place(disk, at, fields)


def _place(disk: Disk, at: TopicPartition, fields: MessageFields) -> Iterator[Finding]:
    """Check that the cluster has a partition on this node, and in this directory."""
    if disk.meta is None or disk.meta.node_id is None:
        return
    if disk.meta.node_id not in fields["replicas"]:
        message = f"the cluster has this partition on nodes {fields['replicas']}, and this is node {disk.meta.node_id}"
        yield Finding(Severity.WARNING, "partition-unassigned", disk.path(at), message)
        return
    assigned = _assigned(fields, disk.meta.node_id)
    if assigned is not None and disk.meta.directory_id not in (None, assigned):
        message = f"the cluster has this partition in directory {assigned}, and this is {disk.meta.directory_id}"
        yield Finding(Severity.WARNING, "partition-directory", disk.path(at), message)


def _assigned(fields: MessageFields, node_id: int) -> str | None:
    """Return the id of the directory that has a node's replica; None if the metadata do not say."""
    directories = dict(zip(fields["replicas"], fields["directories"] or (), strict=False))
    found = directories.get(node_id)
    return found if found is not None and is_directory_id(found) else None


def _missing(disk: Disk, cluster: ClusterState, node_id: int) -> Iterator[Finding]:
    """Find the partitions that the cluster has in this directory, and that are not there."""
    directory_id = disk.meta.directory_id if disk.meta else None
    aside = {at for _, at, _ in folders_set_aside(disk)}
    for topic_id, partitions in cluster.partitions.items():
        for number, fields in partitions.items():
            at = TopicPartition(cluster.topics.get(topic_id, ""), number)
            if not at.topic or disk.has(str(at)) or directory_id is None or _assigned(fields, node_id) != directory_id:
                continue
            known = disk.checkpoints.of(at)
            # A broker that was killed may not have come to make the folder of a new partition.
            is_new = not known and not disk.is_as_stopped and not (fields["leaderEpoch"] or fields["partitionEpoch"])
            severity = Severity.ERROR if any(known.values()) else Severity.NOTE if is_new else Severity.WARNING
            where = "; a folder of it was set aside" if at in aside else ""
            message = f"the cluster has {at} in this directory, and it is not here{where}"
            yield Finding(severity, "partition-missing", disk.path(at), message)


def _strays(disk: Disk) -> Iterator[Finding]:
    for name, at, ending in folders_set_aside(disk):
        topic = stray_topic(disk, name, at, ending)
        if topic is not None:
            message = f"a broker has set it aside as unknown, and the cluster has its topic {topic}"
            yield Finding(Severity.WARNING, "stray-known", disk.path(name), message)


def _quorum_state(disk: Disk) -> Iterator[Finding]:
    """Compare the vote of the node with the leader epochs of its metadata log."""
    if disk.metadata_log is None:
        return
    folder = disk.directory.folder(files.METADATA_FOLDER)
    path, last_epoch = folder.file(files.QUORUM_STATE), disk.metadata_log.last_epoch
    try:
        data = folder.storage.read_small(path)
        epoch = None if data is None else json.loads(data)["leaderEpoch"]
        if data is not None and type(epoch) is not int:
            raise ValueError(f"leaderEpoch is {epoch!r}")
    except SeglogError as error:
        yield Finding(Severity.ERROR, "unreadable", path, error.message)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        yield Finding(Severity.ERROR, "quorum-state", path, f"not a vote of a node of the quorum: {error!r}")
    else:
        if epoch is None and last_epoch > 0:
            message = f"it is missing, and the metadata log has reached leader epoch {last_epoch}: the node votes anew"
            yield Finding(Severity.WARNING, "quorum-state", path, message)
        elif epoch is not None and epoch < last_epoch:
            message = f"leader epoch {epoch} is below the {last_epoch} of the metadata log: the node does not start"
            yield Finding(Severity.ERROR, "quorum-state", path, message)
