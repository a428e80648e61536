"""Writes the commands that make topics in a cluster that exists: a script for a POSIX shell.

All names and values are quoted, so that none is ever run. Internal topics are left out, since brokers make them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Final

from sparklog.jobs.restore.nodes import TopicOutline
from sparklog.topic.places.discovery import INTERNAL_PREFIX

_HEAD: Final = """#!/bin/sh
# Makes topics with Kafka's own tools, which must be in PATH. The address of the cluster is the first argument, and the
# replication factor the second: sh <this file> localhost:9092 3
set -eu
server=${1:?give the address of a broker, such as localhost:9092}
replicas=${2:--1}
"""


def script_of(topics: Iterable[TopicOutline]) -> str:
    """Return the script; topics that exist keep their partitions, and get the configs."""
    lines = [_HEAD]
    for topic in topics:
        if topic.name.startswith(INTERNAL_PREFIX):
            continue
        name = shlex.quote(topic.name)
        count = len(topic.partitions)
        lines.append(
            f'kafka-topics.sh --bootstrap-server "$server" --create --if-not-exists --topic {name} '
            f'--partitions {count} --replication-factor "$replicas"\n'
        )
        for key, value in sorted(topic.configs.items()):
            # Without brackets, a comma would begin another config.
            config = shlex.quote(f"{key}=[{value}]" if "," in value else f"{key}={value}")
            lines.append(
                f'kafka-configs.sh --bootstrap-server "$server" --alter --entity-type topics --entity-name {name} '
                f"--add-config {config}\n"
            )
    return "".join(lines)
