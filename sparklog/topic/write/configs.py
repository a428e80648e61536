"""Stores and reads the properties of the topics of a log directory, which every write and every cleaning obeys.

They are in ``topics.properties``, sparklog's own file in the log directory, in Java's properties format. A key is the
topic's name, a slash and the property's name; no topic has a slash in its name:

    events/retention.ms=604800000
    events/cleanup.policy=compact,delete
    metrics.cpu/segment.bytes=104857600

A property that is not in the file comes from the cluster's metadata, if the directory has their log
(``__cluster_metadata-0``); else it has its default. The properties that the caller of a write gives override both. A
person or `sparklog.LogManager` writes the file, and mistakes in it are errors; metadata that cannot be read, and
properties in them that are unknown here, only cause warnings.

The topics of a broker have their properties in the cluster: a broker does not read the file.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import javaproperties

from sparklog.errors import CorruptLogError, InvalidOptionError, SeglogError
from sparklog.log import files
from sparklog.log.config import LogConfig, property_names
from sparklog.log.files import checked_topic, is_topic_name
from sparklog.log.folders import listed
from sparklog.log.kept_by_stamp import StampedFile, StampedLog
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.log.properties import BROKER_ONLY, properties_in
from sparklog.write.journal import only_writer
from sparklog.write.small_files import write_atomically

_log = logging.getLogger("sparklog")

StoredConfigs = Mapping[str, Mapping[str, str]]
"""Properties by topic and by name."""

_BEHIND_TOPIC: Final = "/"
_CLUSTER_VIEW: Final = "cluster_configs"


@dataclass(frozen=True)
class _TopicsFile:
    """The bytes of ``topics.properties``, and the properties in them by topic and by name."""

    data: bytes = b""
    topics: StoredConfigs = field(default_factory=dict)

    def changed(self, changes: Mapping[str, Mapping[str, str | None]]) -> _TopicsFile:
        """Return the file with values changed by topic and name; None removes one. All other lines stay.

        New properties are put after the old bytes. The file is not parsed for lines as this module writes them.
        """
        topics, data = dict(self.topics), self.data
        replaced, added = dict[str, str | None](), dict[str, str | None]()
        for topic, of_topic in changes.items():
            known = topics.pop(topic, {})
            differing = {name: value for name, value in of_topic.items() if value != known.get(name)}
            for name, value in differing.items():
                (replaced if name in known else added)[topic + _BEHIND_TOPIC + name] = value
            now = {name: value for name, value in {**known, **differing}.items() if value is not None}
            if now:
                topics[topic] = now
        for key, value in replaced.items():
            data = _with_line(data, key, value)
        if added:
            lines = (
                javaproperties.join_key_value(key, value) + "\n" for key, value in added.items() if value is not None
            )
            data = _with_end(data) + "".join(lines).encode()
        return _TopicsFile(data, topics)


def _parse(data: bytes, path: str) -> _TopicsFile:
    """Parse the file and check all its values: a cleaning must not use a default because a number is misspelt."""
    found: dict[str, dict[str, str]] = {}
    for key, value in properties_in(data, path).items():
        topic, slash, name = key.partition(_BEHIND_TOPIC)
        if not slash or not is_topic_name(topic):
            raise InvalidOptionError(f"a key must be <topic>/<property>, and not {key!r} (file {path})")
        found.setdefault(topic, {})[name] = value
    # Many topics have the same properties, and a check takes longer than all else.
    checked: set[frozenset[tuple[str, str]]] = set()
    for topic, properties in found.items():
        if (distinct := frozenset(properties.items())) not in checked:
            try:
                LogConfig.from_properties(_without_brokers_own(properties))
            except InvalidOptionError as error:
                raise InvalidOptionError(f"topic {topic}: {error.message} (file {path})") from error
            checked.add(distinct)
    return _TopicsFile(data, found)


def _with_line(data: bytes, key: str, value: str | None) -> bytes:
    """Return the bytes with the line of a key changed; None removes it."""
    text = b"\n" + data
    start = text.find(f"\n{key}=".encode())
    end = text.find(b"\n", start + 1)
    # The end of the line before is looked at, too: it may be continued.
    if min(start, end) >= 0 and not any(each in text[max(start - 1, 0) : end] for each in (b"\\", b"\r")):
        line = b"" if value is None else f"\n{javaproperties.join_key_value(key, value)}".encode()
        return (text[:start] + line + text[end:])[1:]
    # Somebody has written it by hand, in one of many ways.
    parsed = javaproperties.PropertiesFile.loads(data)
    if value is None:
        del parsed[key]
    else:
        parsed[key] = value
    return parsed.dumps().encode("latin-1")


def _with_end(data: bytes) -> bytes:
    """Return the bytes with the last line ended; an empty line ends one that is continued."""
    last = data.removesuffix(b"\n").removesuffix(b"\r")
    if (len(last) - len(last.rstrip(b"\\"))) % 2:
        return last + b"\n\n"
    return data if not data or len(last) < len(data) else data + b"\n"


_topics_file: Final = StampedFile(_parse)


def stored_configs(directory: LogDirectory, *, warns_of: Collection[str] = frozenset()) -> dict[str, dict[str, str]]:
    """Return the stored properties of all topics of a log directory.

    Parameters
    ----------
    warns_of : collection of str
        Properties that only a broker uses, but that a caller would expect to count: a warning names those that are
        stored. Other properties that only a broker uses are left out silently.

    Returns
    -------
    dict of str to dict of str to str
        The properties by topic; topics without any are left out. `LogConfig.from_properties` accepts each.

    Raises
    ------
    InvalidOptionError
        ``topics.properties`` is malformed; the message names the key.
    StorageError
        The file cannot be read.
    """
    of_cluster, of_file = _of_cluster(directory), read_properties(directory)
    found = {topic: _merged(topic, of_cluster, of_file) for topic in {**of_cluster, **of_file}}
    _warn(found, warns_of)
    kept = {topic: _without_brokers_own(properties) for topic, properties in found.items()}
    return {topic: properties for topic, properties in kept.items() if properties}


def stored_properties(directory: LogDirectory, topic: str) -> dict[str, str]:
    """Return the stored properties of one topic; for errors see `stored_configs`."""
    return _without_brokers_own(_merged(topic, _of_cluster(directory), read_properties(directory)))


def folder_config(folder: PartitionFolder, given: LogConfig) -> LogConfig:
    """Return the configuration of a log by its place; for errors see `topic_config` and `stored_configs`."""
    return topic_config(folder.topic, given, {folder.topic: stored_properties(folder.directory, folder.topic)})


def topic_config(topic: str, given: LogConfig, stored: StoredConfigs) -> LogConfig:
    """Return a topic's configuration: the caller's properties, else the stored ones, else the defaults.

    Parameters
    ----------
    given : LogConfig
        The caller's properties.
    stored : mapping of str to mapping of str to str
        The stored properties, from `stored_configs`.

    Raises
    ------
    InvalidOptionError
        A stored value is wrong, or contradicts the caller's properties.
    """
    properties = stored.get(topic)
    if not properties:
        return given
    try:
        return given.over(properties)
    except InvalidOptionError as error:
        raise InvalidOptionError(f"the stored properties of topic {topic}: {error.message}") from error


def read_properties(directory: LogDirectory) -> StoredConfigs:
    """Return what ``topics.properties`` has by topic, which nobody may change; for errors see `stored_configs`."""
    return _read(directory).topics


def update_configs(
    directory: LogDirectory,
    topic: str,
    changes: Mapping[str, str | None],
    *,
    lock_timeout_seconds: float = 60.0,
) -> dict[str, str]:
    """Change a topic's properties in ``topics.properties``, in one step; comments in the file stay.

    Open logs keep the properties that they were opened with.

    Parameters
    ----------
    changes : mapping of str to str or None
        New values by property name; None removes a property.

    Returns
    -------
    dict of str to str
        The topic's properties in the file after the change.

    Raises
    ------
    InvalidOptionError
        A property is unknown or its value wrong; nothing was changed.
    LockedError
        A broker runs on the directory, or another writer holds it.
    """
    checked_topic(topic)
    with only_writer(directory, lock_timeout_seconds):
        known = _read(directory)
        changed = known.changed({topic: changes})
        now = dict(changed.topics.get(topic, {}))
        LogConfig.from_properties(now)
        if changed.data != known.data:
            write_atomically(directory, files.TOPICS_PROPERTIES, changed.data)
            _topics_file.written(directory, files.TOPICS_PROPERTIES, changed.data, changed)
        return now


def changed_properties(directory: LogDirectory, changes: Mapping[str, Mapping[str, str | None]]) -> bytes:
    """Return ``topics.properties`` with values changed by topic and name; None removes one, and comments stay."""
    return _read(directory).changed(changes).data


def _read(directory: LogDirectory) -> _TopicsFile:
    return _topics_file.read(directory, files.TOPICS_PROPERTIES) or _TopicsFile()


def _merged(topic: str, of_cluster: StoredConfigs, of_file: StoredConfigs) -> dict[str, str]:
    return {**of_cluster.get(topic, {}), **of_file.get(topic, {})}


def _without_brokers_own(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties without those that only a broker uses, which would cause a warning each time."""
    return {name: value for name, value in properties.items() if name not in BROKER_ONLY}


def _warn(stored: StoredConfigs, names: Collection[str]) -> None:
    """Warn of each named property that is stored, with the topics that have it."""
    for name in sorted(names):
        topics = sorted(topic for topic, properties in stored.items() if name in properties)
        if topics:
            _log.warning("%s is stored for %s, and means nothing here: no broker is asked", name, listed(topics))


def _of_cluster(directory: LogDirectory) -> StoredConfigs:
    """Return the properties of topics in the cluster's metadata, if they are there."""
    try:
        return _cluster_log.read(directory.folder(files.METADATA_FOLDER)) or {}
    except SeglogError as error:
        # Perhaps the next call can read it.
        return _without_cluster(error)


def _read_cluster_log(folder: PartitionFolder) -> StoredConfigs:
    """Read the properties of topics in the log of the metadata; warn of those that are ignored."""
    # Few directories have the log, and writes to the others should not load its decoder.
    from sparklog.topic.internal.views import read_one

    found: dict[str, dict[str, str]] = {}
    try:
        rows = [row for batch in read_one(folder, _CLUSTER_VIEW, history=False) for row in batch.to_pylist()]
    except CorruptLogError as error:
        return _without_cluster(error)
    for row in rows:
        if row["resource_type"] == "topic" and _is_readable(folder.location, row["resource_name"], row):
            found.setdefault(row["resource_name"], {})[row["name"]] = row["value"]
    return found


_cluster_log: Final = StampedLog(_read_cluster_log)


def _without_cluster(error: SeglogError) -> StoredConfigs:
    _log.warning("what the cluster has stored for topics cannot be read, so defaults count: %s", error)
    return {}


def _is_readable(path: str, topic: str, row: Mapping[str, str]) -> bool:
    """Return whether a property of the cluster can be used here; warn if it is unknown or wrong."""
    name = row["name"]
    if name in BROKER_ONLY:
        return True
    try:
        LogConfig.from_properties({name: row["value"]})
    except InvalidOptionError as error:
        reason = error.message if name in property_names() else "no such property is known here"
        _log.warning("%s=%s, which %s says of topic %s, is passed over: %s", name, row["value"], path, topic, reason)
        return False
    return True
