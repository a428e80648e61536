"""Formats the nodes of a new cluster, so that it knows the topics of restored logs: a controller, and its brokers.

A broker of KRaft sets aside folders of topics that its cluster does not know, and it refuses a log directory without
``meta.properties``. So the metadata directory of the controller, which may be a broker as well, gets a snapshot with
topics, partitions and configs (`sparklog.jobs.restore.new_cluster`), and the log directory gets ``meta.properties`` by
the commit of the logs, so that no broker starts on it before. Each restore adds one broker
(`sparklog.jobs.restore.nodes`).

A directory that ``kafka-storage format`` has made keeps its cluster id, node id, directory id, features and voters. The
controller must never have been started: it has then written records that no snapshot may replace.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sparklog.errors import InvalidOptionError
from sparklog.inspect.describe import DirectoryDescription, describe_directory
from sparklog.jobs.restore.new_cluster import FEATURES, METADATA_VERSION, NewCluster, snapshot_name
from sparklog.jobs.restore.nodes import OldPartition, RestoredLog, RestoredNode, RestoredNodes, TopicOutline, read_nodes
from sparklog.log import files
from sparklog.log.checkpoints import parse_topic_id
from sparklog.log.folders import listed
from sparklog.log.layout import read_layout
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.system.cluster_metadata import cluster_state
from sparklog.system.cluster_state import ClusterState
from sparklog.system.codecs import MessageFields, uuid_text
from sparklog.system.messages import message
from sparklog.system.metadata_snapshots import newest_snapshot
from sparklog.system.records import InternalLog, Undecodable
from sparklog.topic.places.discovery import INTERNAL_PREFIX, named
from sparklog.topic.write.configs import read_properties
from sparklog.write.small_files import make_directory, write_atomically

_log = logging.getLogger("sparklog")

_LOCK_SECONDS: Final = 60.0
_VOTERS_KEY: Final = b"\0\0\0\6"
_OF_OLD_BROKERS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_TOPIC: Final = 2
# A broker gives its internal topics these configs when it makes them, and does not when they are there.
_COMPACTED: Final = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
_OF_INTERNAL: Final = {
    "__consumer_offsets": {**_COMPACTED, "compression.type": "producer"},
    files.TRANSACTION_STATE_TOPIC: {
        **_COMPACTED,
        "compression.type": "uncompressed",
        "unclean.leader.election.enable": "false",
    },
    "__share_group_state": {"cleanup.policy": "delete", "retention.ms": "-1", "compression.type": "none"},
    "__remote_log_metadata": {"cleanup.policy": "delete", "retention.ms": "-1"},
}
_CONTROLLER: Final = {"name": "CONTROLLER", "host": "localhost", "port": 9093}
"""The endpoint of a voter; a controller that leads replaces its own by the one of its configuration."""


@dataclass(frozen=True)
class NodeFormat:
    """Formats a node of a new cluster, which gets restored logs.

    Attributes
    ----------
    place : LogDirectory
        The metadata directory of the cluster's controller; it may be the node's log directory itself.
    source : DirectoryDescription
        The log directory that is restored, whose node id a new node gets.
    features : mapping of str to int
        The features of its cluster; may be empty.
    next_producer_id : int
        The first producer id that the source has not given, as far as is known without its logs.
    controller_id : int or None
        The node id of a new metadata directory, by default the node's.
    """

    place: LogDirectory
    directory: LogDirectory
    topics: tuple[TopicOutline, ...]
    source: DirectoryDescription
    features: Mapping[str, int]
    next_producer_id: int = 0
    controller_id: int | None = None

    def plan(self) -> NodePlan:
        """Read both directories; ids that neither has are new. Raises `InvalidOptionError` if they do not fit."""
        place, directory = self.place, self.directory
        of_place, of_logs = describe_directory(place), describe_directory(directory)
        for each in (of_place, of_logs):
            if each.error is not None:
                raise InvalidOptionError(f"{each.error}: it cannot be kept for the new cluster")
        if None not in (of_place.cluster_id, of_logs.cluster_id) and of_place.cluster_id != of_logs.cluster_id:
            raise InvalidOptionError(
                f"{place.path} is of cluster {of_place.cluster_id}, and {directory.path} of cluster "
                f"{of_logs.cluster_id}: format both for one cluster"
            )
        node_id = _first(of_logs.node_id, self.source.node_id, of_place.node_id, 1)
        controller_id = _first(of_place.node_id, self.controller_id, node_id)
        of_node = node_id if place == directory else controller_id
        if self.controller_id not in (None, of_node):
            raise InvalidOptionError(
                f"{place.path} is of node {of_node}, and --controller-id is {self.controller_id}: leave it "
                f"out, or give the controller a directory of its own"
            )
        nodes = read_nodes(place)
        there = nodes.nodes.get(node_id)
        if there is not None and there.path != directory.path:
            raise InvalidOptionError(
                f"node {node_id} of this cluster was restored to {there.path}, and {directory.path} would be the same "
                f"node: format it for another node, by kafka-storage"
            )
        features, voters = _formatted(place)
        directory_id = of_place.directory_id or _new_id()
        if of_place.cluster_id is None:
            versions = {"minSupportedVersion": 0, "maxSupportedVersion": 1}
            voter = {"voterId": controller_id, "voterDirectoryId": directory_id}
            voters = ({**voter, "endpoints": [_CONTROLLER], "kRaftVersionFeature": versions},)
        topics = dict(nodes.topics)
        for topic in self.topics:
            merged = topics.get(topic.name, topic).merged(topic)
            topics[topic.name] = merged._replace(topic_id=merged.topic_id or _new_id())
        return NodePlan(
            of_place.cluster_id or of_logs.cluster_id or _new_id(),
            node_id,
            controller_id,
            directory_id,
            directory_id if place == directory else of_logs.directory_id or _new_id(),
            next(each for each in (features, self.features, FEATURES) if METADATA_VERSION in each),
            voters,
            nodes._replace(topics=topics),
        )

    def write(self, logs: Mapping[str, RestoredLog], next_producer_id: int, now_ms: int) -> NodePlan:
        """Add the node with its logs, by folder name: write the snapshot, and the controller's ``meta.properties``."""
        place = self.place
        make_directory(place)
        # Restores of several nodes may run at a time.
        with place.writable.lock(place.file(files.RESTORED_NODES_LOCK), _LOCK_SECONDS):
            plan = self.plan()
            old_id, next_id = _first(self.source.node_id, plan.node_id), max(next_producer_id, self.next_producer_id)
            node = RestoredNode(old_id, self.directory.path, plan.log_directory_id, next_id, logs)
            plan = replace(plan, nodes=plan.nodes.with_node(plan.node_id, node))
            next_id = max(each.next_producer_id for each in plan.nodes.nodes.values())
            contents = NewCluster(plan.node_id, plan.features, plan.voters, plan.nodes.new_topics(), next_id)
            folder = place.folder(files.METADATA_FOLDER)
            folder.writable.make_folder(folder.location)
            folder.writable.sync_folder(place.path)
            write_atomically(place, files.RESTORED_NODES, plan.nodes.encode())
            write_atomically(folder, snapshot_name(), contents.encode(now_ms))
            if place != self.directory and describe_directory(place).cluster_id is None:
                write_atomically(place, files.META_PROPERTIES, plan.properties(plan.controller_id, plan.directory_id))
        return plan

    def properties_of_logs(self, plan: NodePlan) -> dict[str, bytes]:
        """Return ``meta.properties`` for the log directory, by name; nothing if it has that file."""
        is_there = describe_directory(self.directory).cluster_id is not None
        return {} if is_there else {files.META_PROPERTIES: plan.properties(plan.node_id, plan.log_directory_id)}


@dataclass(frozen=True)
class NodePlan:
    """The ids of a node of a new cluster, of its controller, and of their directories; and the cluster's metadata."""

    cluster_id: str
    node_id: int
    controller_id: int
    directory_id: str
    log_directory_id: str
    features: Mapping[str, int]
    voters: tuple[MessageFields, ...]
    nodes: RestoredNodes

    def properties(self, node_id: int, directory_id: str) -> bytes:
        """Return the content of ``meta.properties``."""
        lines = ["version=1", f"cluster.id={self.cluster_id}", f"node.id={node_id}", f"directory.id={directory_id}"]
        return "".join(f"{line}\n" for line in lines).encode()


def read_cluster(place: LogDirectory) -> ClusterState | None:
    """Read the metadata of the cluster that logs are of; None if they are not in a directory."""
    folder = place.folder(files.METADATA_FOLDER)
    if not place.storage.is_folder(folder.location):
        return None
    unreadable = Undecodable()
    state = cluster_state(InternalLog(read_layout(folder)), unreadable)
    unreadable.warn(is_history=False)
    return state


def outline(folders: Iterable[PartitionFolder], cluster: ClusterState | None) -> list[TopicOutline]:
    """Return the topics of logs, with what the cluster's metadata say about them; partitions that no log is of count.

    Raises
    ------
    InvalidOptionError
        Partitions of one topic have different topic ids.
    """
    by_topic: dict[str, list[PartitionFolder]] = {}
    for folder in folders:
        by_topic.setdefault(folder.topic, []).append(folder)
    ids = {name: topic_id for topic_id, name in cluster.topics.items()} if cluster else {}
    missing = sorted(set(ids) - set(by_topic))
    if missing:
        _log.warning("no log of the topics %s is here: they are not restored", listed(missing))
    return [_outline(topic, of_topic, cluster, ids.get(topic)) for topic, of_topic in sorted(by_topic.items())]


def _outline(
    topic: str, folders: Sequence[PartitionFolder], cluster: ClusterState | None, known_id: str | None
) -> TopicOutline:
    topic_id = _topic_id(folders) or known_id
    known = cluster.partitions.get(topic_id or "", {}) if cluster else {}
    numbers = {named(folder).partition for folder in folders}
    count = max(*numbers, *known, -1) + 1
    if len(numbers) < count:
        text = "%d of %d partitions of %s are not here: they will be empty, unless another node has them"
        _log.warning(text, count - len(numbers), count, topic)
    configs = dict(_OF_INTERNAL.get(topic, {})) if topic.startswith(INTERNAL_PREFIX) else {}
    configs |= cluster.configs.get((_TOPIC, topic), {}) if cluster else {}
    configs |= read_properties(folders[0].directory).get(topic, {})
    of_old = {n: OldPartition(of["leaderEpoch"], tuple(of["replicas"]), tuple(of["isr"])) for n, of in known.items()}
    kept = {name: value for name, value in configs.items() if name not in _OF_OLD_BROKERS}
    return TopicOutline(topic, topic_id, tuple(of_old.get(n, OldPartition()) for n in range(count)), kept)


def _topic_id(folders: Sequence[PartitionFolder]) -> str | None:
    found: dict[str, str] = {}
    for folder in folders:
        path = folder.file(files.PARTITION_METADATA)
        data = folder.storage.read_small(path)
        if data is not None:
            found.setdefault(parse_topic_id(data, path), path)
    if len(found) > 1:
        ids = listed([f"{each} in {path}" for each, path in found.items()])
        raise InvalidOptionError(f"a topic has several ids: {ids}. Move away the folders of the topic that was deleted")
    return next(iter(found), None)


def _formatted(place: LogDirectory) -> tuple[dict[str, int], tuple[MessageFields, ...]]:
    """Return the features and the voters in the snapshot of a metadata directory that was never started."""
    folder = place.folder(files.METADATA_FOLDER)
    if not place.storage.is_folder(folder.location):
        return {}, ()
    names = {each.name for each in place.storage.names(folder.location)}
    if files.QUORUM_STATE in names or any(name.endswith(files.LOG) for name in names):
        raise InvalidOptionError(
            f"a controller was started on {place.path}, and its cluster has metadata of its own. Format a new "
            f"directory; for a cluster that exists, use --topics-script"
        )
    snapshot = newest_snapshot(folder)
    voters: tuple[MessageFields, ...] = ()
    for batch in snapshot.control_batches(("key", "value")) if snapshot else ():
        for row in batch.to_pylist():
            if row["key"] == _VOTERS_KEY:
                voters = tuple(message("VotersRecord").decode(row["value"], 0)["voters"])
    if len(voters) > 1:
        raise InvalidOptionError(
            f"{place.path} is one of {len(voters)} controllers, and the others would not have the metadata: format it "
            f"as the only controller (--standalone), and add others to the cluster when it runs"
        )
    state = read_cluster(place)
    return {} if state is None else state.features, voters


def _first(*ids: int | None) -> int:
    return next(each for each in ids if each is not None)


def _new_id() -> str:
    """Return a random uuid in Kafka's form; as in Kafka, none begins with a dash, which tools take for an option."""
    while True:
        found = uuid_text(secrets.token_bytes(16))
        if not found.startswith("-"):
            return found
