"""Finds the folders of topics in log directories that change all the time, without listing them for each question.

A list of a directory of tens of thousands of partitions is long, and each new partition makes it an old one. To find a
topic, a list may therefore be a second old, together with the folders that this process has made since, if looks at the
topic's own folders bear it out; otherwise the directory is listed again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from sparklog.errors import InvalidOptionError
from sparklog.log.files import TopicPartition
from sparklog.log.kept_by_stamp import FolderNames, names_in
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.storage.process import ProcessState
from sparklog.topic.places.discovery import named

LIST_SECONDS: Final = 1.0
"""How old a list of a directory may be."""

FoldersByNumber = Mapping[int, PartitionFolder]
"""The folders of a topic's partitions by partition number, ascending."""


_made_seconds: dict[PartitionFolder, float] = {}
"""When this process made partitions that a list may lack, by the monotonic clock."""
_ours = ProcessState(threading.Lock, _made_seconds)


class TopicFolders:
    """The folders of all topics in some log directories. Threads may share it.

    Parameters
    ----------
    directories : sequence of LogDirectory
        Log directories, which need not exist.
    """

    def __init__(self, directories: Sequence[LogDirectory]) -> None:
        self._directories = directories
        self._merged: tuple[tuple[FolderNames, ...], Mapping[str, FoldersByNumber]] = (), {}

    def by_topic(self, *, age_seconds: float = 0.0) -> Mapping[str, FoldersByNumber]:
        """Return the folders of all partitions by topic and number, ascending; nobody may change the result.

        Parameters
        ----------
        age_seconds : float
            How old the list of a directory may be.

        Raises
        ------
        InvalidOptionError
            A partition is in two of the directories.
        """
        names = tuple(names_in(directory, age_seconds=age_seconds) for directory in self._directories)
        known, merged = self._merged
        if known != names:
            merged = _merge([each.topics for each in names])
            self._merged = names, merged
        return merged

    def find(self, topic: str) -> FoldersByNumber:
        """Return the folders of a topic as they are now; none if it is younger than a list and has no partition 0."""
        found = dict(self.by_topic(age_seconds=LIST_SECONDS).get(topic, {}))
        found.update(self._made_from(topic, len(found)))
        if all(map(_is_there, found.values())) and not self.look_for(topic, [len(found)]):
            return found
        return self.by_topic().get(topic, {})

    def find_partitions(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionFolder]:
        """Return the folders of partitions as they are now, without missing ones."""
        found: dict[TopicPartition, PartitionFolder] = {}
        for age_seconds in (LIST_SECONDS, 0.0):
            folders = self.by_topic(age_seconds=age_seconds)
            found = {
                at: folders[at.topic][at.partition] for at in partitions if at.partition in folders.get(at.topic, {})
            }
            if all(at in found and _is_there(found[at]) for at in partitions):
                break
        return found

    def look_for(self, topic: str, numbers: Iterable[int]) -> dict[int, PartitionFolder]:
        """Look for the folders of some partitions of a topic, without any list; for errors see `by_topic`."""
        places = [PartitionFolder(directory, topic, number) for number in numbers for directory in self._directories]
        return _by_number(filter(_is_there, places))

    def place(self, topic: str, count: int) -> dict[int, PartitionFolder]:
        """Choose a log directory for each partition of a topic: the first with the fewest partitions."""
        counts = self._counts()
        placed = {}
        for number in range(count):
            directory = min(self._directories, key=counts.__getitem__)
            counts[directory] += 1
            placed[number] = PartitionFolder(directory, topic, number)
        return placed

    def add(self, folder: PartitionFolder) -> None:
        """Record a partition that the caller has just made."""
        with _ours.lock:
            _made_seconds[folder] = time.monotonic()

    def _made_from(self, topic: str, number: int) -> Iterator[tuple[int, PartitionFolder]]:
        """Yield the partitions from a number on that this process has made lately."""
        while True:
            places = [PartitionFolder(directory, topic, number) for directory in self._directories]
            made = [each for each in places if each in _made_seconds]
            if not made:
                return
            yield number, made[0]
            number += 1

    def _counts(self) -> dict[LogDirectory, int]:
        names = {each: names_in(each, age_seconds=LIST_SECONDS) for each in self._directories}
        counts = {directory: found.partitions for directory, found in names.items()}
        oldest_seconds = time.monotonic() - LIST_SECONDS
        with _ours.lock:
            for folder, made_seconds in list(_made_seconds.items()):
                if made_seconds < oldest_seconds:
                    del _made_seconds[folder]
                elif folder.directory in names:
                    is_listed = folder.partition in names[folder.directory].topics.get(folder.topic, {})
                    counts[folder.directory] += not is_listed
        return counts


def _is_there(folder: PartitionFolder) -> bool:
    return folder.storage.is_folder(folder.location)


def _merge(parts: Sequence[Mapping[str, FoldersByNumber]]) -> Mapping[str, FoldersByNumber]:
    if len(parts) == 1:
        return parts[0]
    topics = sorted({topic for part in parts for topic in part})
    return {topic: _by_number(each for part in parts for each in part.get(topic, {}).values()) for topic in topics}


def _by_number(folders: Iterable[PartitionFolder]) -> dict[int, PartitionFolder]:
    """Return folders of a topic by number, ascending; refuse two folders of one partition."""
    found: dict[int, PartitionFolder] = {}
    for folder in folders:
        at = named(folder)
        other = found.setdefault(at.partition, folder)
        if other != folder:
            raise InvalidOptionError(
                f"{at} is in two log directories, {other.location} and {folder.location}: move one away"
            )
    return dict(sorted(found.items()))
