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
from typing import Final

import javaproperties

from sparklog.errors import InvalidOptionError, SeglogError
from sparklog.log import files
from sparklog.log.config import LogConfig, property_names
from sparklog.log.files import checked_topic, is_topic_name
from sparklog.log.folders import listed
from sparklog.log.places import LogDirectory
from sparklog.log.properties import BROKER_ONLY, properties_in
from sparklog.write.journal import only_writer
from sparklog.write.small_files import write_atomically

_log = logging.getLogger("sparklog")

StoredConfigs = Mapping[str, Mapping[str, str]]
"""Properties by topic and by name."""

_BEHIND_TOPIC: Final = "/"
_CLUSTER_VIEW: Final = "cluster_configs"


def stored_configs(directory: LogDirectory, *, warns_of: Collection[str] = frozenset()) -> dict[str, dict[str, str]]:
    """Return the stored properties of the topics of a log directory.

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
    found = _of_cluster(directory)
    for topic, properties in read_properties(directory).items():
        found.setdefault(topic, {}).update(properties)
    _warn(found, warns_of)
    kept = {topic: _without_brokers_own(properties) for topic, properties in found.items()}
    return {topic: properties for topic, properties in kept.items() if properties}


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


def read_properties(directory: LogDirectory) -> dict[str, dict[str, str]]:
    """Return the contents of ``topics.properties`` by topic, empty without the file; for errors see `stored_configs`.

    Values are checked as well: a cleaning must not use a default because a number is misspelt.
    """
    path, found = directory.file(files.TOPICS_PROPERTIES), dict[str, dict[str, str]]()
    data = directory.storage.read_small(path)
    for key, value in ({} if data is None else properties_in(data, path)).items():
        topic, slash, name = key.partition(_BEHIND_TOPIC)
        if not slash or not is_topic_name(topic):
            raise InvalidOptionError(f"a key must be <topic>/<property>, and not {key!r} (file {path})")
        found.setdefault(topic, {})[name] = value
    for topic, properties in found.items():
        try:
            LogConfig.from_properties(_without_brokers_own(properties))
        except InvalidOptionError as error:
            raise InvalidOptionError(f"topic {topic}: {error.message} (file {path})") from error
    return found


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
        now = dict(read_properties(directory).get(topic, {}))
        for name, value in changes.items():
            now.pop(name, None)
            if value is not None:
                now[name] = value
        LogConfig.from_properties(now)
        if changes:
            write_atomically(directory, files.TOPICS_PROPERTIES, changed_properties(directory, {topic: changes}))
        return now


def changed_properties(directory: LogDirectory, changes: Mapping[str, Mapping[str, str | None]]) -> bytes:
    """Return ``topics.properties`` with values changed by topic and name; None removes one, and comments stay."""
    text = javaproperties.PropertiesFile.loads(
        directory.storage.read_small(directory.file(files.TOPICS_PROPERTIES)) or b""
    )
    for topic, of_topic in changes.items():
        for name, value in of_topic.items():
            key = topic + _BEHIND_TOPIC + name
            if value is not None:
                text[key] = value
            elif key in text:
                del text[key]
    return text.dumps().encode("latin-1")


def _without_brokers_own(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties without those that only a broker uses, which would cause a warning each time."""
    return {name: value for name, value in properties.items() if name not in BROKER_ONLY}


def _warn(stored: StoredConfigs, names: Collection[str]) -> None:
    """Warn of each named property that is stored, with the topics that have it."""
    for name in sorted(names):
        topics = sorted(topic for topic, properties in stored.items() if name in properties)
        if topics:
            _log.warning("%s is stored for %s, and means nothing here: no broker is asked", name, listed(topics))


def _of_cluster(directory: LogDirectory) -> dict[str, dict[str, str]]:
    """Return the properties of topics in the cluster's metadata, if they are there; warn of those that are ignored."""
    found: dict[str, dict[str, str]] = {}
    folder = directory.folder(files.METADATA_FOLDER)
    if not directory.storage.is_folder(folder.location):
        return found
    # Few directories have the log, and writes to the others should not load its decoder.
    from sparklog.topic.internal.views import read_one

    try:
        rows = [row for batch in read_one(folder, _CLUSTER_VIEW, history=False) for row in batch.to_pylist()]
    except SeglogError as error:
        _log.warning("what the cluster has stored for topics cannot be read, so defaults count: %s", error)
        return found
    for row in rows:
        if row["resource_type"] == "topic" and _is_readable(folder.location, row["resource_name"], row):
            found.setdefault(row["resource_name"], {})[row["name"]] = row["value"]
    return found


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
