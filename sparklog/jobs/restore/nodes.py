"""Reads and writes ``seglog.nodes``: the nodes of a new cluster that have been restored so far.

The file is in the metadata directory of the cluster's controller, beside the snapshot that is made from it: every
restore for the cluster adds its node, and makes the snapshot anew. It is one line of JSON with a checksum; see
`sparklog.log.checked_lines`.

    version   1
    topics    [name, topic id, partitions, configs by name]; of each partition [leader epoch, replicas, ISR], as in the
              metadata of the old cluster, or [0, [], []] if that was not given
    nodes     by node id: [node id in the old cluster, path of the log directory, its id, next producer id, logs];
              by the name of its folder, of each log [last leader epoch or -1, end offset, leader epoch of its batches]

A partition has the replicas of the old cluster, in their order, as far as their nodes are restored, and all nodes that
have a log of it. Logs are equal if they end at the same offset in the same leader epoch (KIP-101). A restore gives all
batches of a log one leader epoch: equal logs get the same, every other log one of its own. So a log that is not equal
to the leader's is cut by its broker to the records that both have, which are none, and is fetched anew. The leader is
the log with the greatest epoch and offset; if the old ISR is known, only its logs count. The ISR is all logs that are
equal to the leader's.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from sparklog.errors import CorruptCheckpointError, InvalidOptionError
from sparklog.jobs.restore.new_cluster import NewPartition, NewTopic
from sparklog.log.checked_lines import encode_line, line_checksum
from sparklog.log.files import RESTORED_NODES, TopicPartition
from sparklog.log.places import LogDirectory
from sparklog.topic.places.discovery import INTERNAL_PREFIX

_VERSION: Final = 1
_INT64_END: Final = 1 << 63
_UUID_BYTES: Final = 16
_UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


class OldPartition(NamedTuple):
    """A partition in the metadata of the old cluster, with old node ids; by default unknown."""

    leader_epoch: int = 0
    replicas: Sequence[int] = ()
    isr: Sequence[int] = ()


class TopicOutline(NamedTuple):
    """A topic of restored logs; its id is None if neither they nor the metadata of the old cluster have one."""

    name: str
    topic_id: str | None
    partitions: Sequence[OldPartition]
    configs: Mapping[str, str]

    def merged(self, other: TopicOutline) -> TopicOutline:
        """Return the topic with what another disk has of it; raise `InvalidOptionError` if that is another topic."""
        if None not in (self.topic_id, other.topic_id) and self.topic_id != other.topic_id:
            raise InvalidOptionError(
                f"the topic {self.name} has the id {self.topic_id} on a node that was restored, and {other.topic_id} "
                f"here: it was deleted and made anew. Move away the folders of the deleted one"
            )
        pairs = zip_longest(self.partitions, other.partitions, fillvalue=OldPartition())
        both = [OldPartition(max(a[0], b[0]), b.replicas or a.replicas, b.isr or a.isr) for a, b in pairs]
        return TopicOutline(self.name, self.topic_id or other.topic_id, both, {**self.configs, **other.configs})


class RestoredLog(NamedTuple):
    """The end of a restored log: its last leader epoch in the old cluster, or -1, and the epoch of its batches now."""

    leader_epoch: int
    end_offset: int
    epoch: int = 0


class RestoredNode(NamedTuple):
    """A broker that has been restored; see the module for the fields."""

    old_id: int
    path: str
    directory_id: str
    next_producer_id: int
    logs: Mapping[str, RestoredLog]


class RestoredNodes(NamedTuple):
    """The topics, by name, and the nodes of a new cluster so far."""

    topics: Mapping[str, TopicOutline]
    nodes: Mapping[int, RestoredNode]

    def with_node(self, node_id: int, node: RestoredNode) -> RestoredNodes:
        """Add a node, or replace it, and give its logs the leader epochs of their batches."""
        others = [each.logs for number, each in self.nodes.items() if number != node_id]
        logs: dict[str, RestoredLog] = {}
        for name, log in node.logs.items():
            known = [each[name] for each in others if name in each]
            # Restores append records with their own times to internal topics.
            is_same = log.leader_epoch >= 0 and not name.startswith(INTERNAL_PREFIX)
            equal = [each.epoch for each in known if is_same and each[:2] == log[:2]]
            own = max((each.epoch for each in known), default=-1) + 1
            logs[name] = log._replace(epoch=equal[0] if equal else own)
        return RestoredNodes(self.topics, {**self.nodes, node_id: node._replace(logs=logs)})

    def new_topics(self) -> list[NewTopic]:
        """Return the topics with the assignments of their partitions."""
        return [
            NewTopic(
                topic.name,
                topic.topic_id or "",
                [self._partition(topic.name, number, old) for number, old in enumerate(topic.partitions)],
                topic.configs,
            )
            for topic in self.topics.values()
        ]

    def _partition(self, topic: str, number: int, old: OldPartition) -> NewPartition:
        name, new_ids = str(TopicPartition(topic, number)), {of.old_id: node_id for node_id, of in self.nodes.items()}
        logs = {node_id: of.logs[name] for node_id, of in sorted(self.nodes.items()) if name in of.logs}
        replicas = [new_ids[each] for each in old.replicas if each in new_ids]
        more = [each for each in logs if each not in replicas]
        first = 0 if replicas or not more else number % len(more)
        isr = replicas = replicas + more[first:] + more[:first] or [min(self.nodes)]
        if logs:
            sound = [new_ids[each] for each in old.isr if new_ids.get(each) in logs] or list(logs)
            leader = max(sound, key=lambda node_id: logs[node_id][:2])
            isr = [each for each in replicas if each in logs and logs[each].epoch == logs[leader].epoch]
        epochs = (max(log.leader_epoch, log.epoch) for log in logs.values())
        directories = [self.nodes[each].directory_id for each in replicas]
        return NewPartition(max([old.leader_epoch, *epochs]), replicas, isr, directories)

    def encode(self) -> bytes:
        """Return the content of the file."""
        return encode_line({"version": _VERSION, "topics": list(self.topics.values()), "nodes": self.nodes})


def read_nodes(place: LogDirectory) -> RestoredNodes:
    """Read the nodes of a metadata directory; raise `CorruptCheckpointError` if the file cannot be read."""
    path = place.file(RESTORED_NODES)
    data = place.storage.read_small(path)
    if data is None:
        return RestoredNodes({}, {})
    try:
        line_checksum(data)
        found = json.loads(data)
        if found["version"] != _VERSION:
            raise ValueError(f"unknown version {found['version']!r}")
        topics = {each[0]: _topic(*each) for each in found["topics"]}
        return RestoredNodes(
            topics, {_number(int(node_id)): _node(*fields) for node_id, fields in found["nodes"].items()}
        )
    except _UNREADABLE as error:
        hint = "Format a new metadata directory, and restore all nodes again"
        raise CorruptCheckpointError(f"not a file of restored nodes: {error!r}", path=path, hint=hint) from error


def _topic(name: str, topic_id: str, partitions: Iterable[Any], configs: Mapping[str, str]) -> TopicOutline:
    known = [
        OldPartition(_number(epoch), list(map(_number, of)), list(map(_number, isr))) for epoch, of, isr in partitions
    ]
    return TopicOutline(_text(name), _uuid(topic_id), known, {_text(key): _text(configs[key]) for key in configs})


def _node(old_id: int, path: str, directory_id: str, next_id: int, logs: Mapping[str, Iterable[int]]) -> RestoredNode:
    ends = {
        name: RestoredLog(_number(old), _number(end, _INT64_END), _number(new))
        for name, (old, end, new) in logs.items()
    }
    return RestoredNode(_number(old_id), str(path), _uuid(directory_id), _number(next_id, _INT64_END), ends)


def _number(found: int, end: int = 1 << 31) -> int:
    if type(found) is not int or not -1 <= found < end:
        raise ValueError(f"not a number: {found!r}")
    return found


def _text(found: str) -> str:
    found.encode()
    return found


def _uuid(found: str) -> str:
    if len(urlsafe_b64decode(found + "==")) != _UUID_BYTES:
        raise ValueError(f"not an id: {found!r}")
    return found
