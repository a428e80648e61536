"""Erases records of a log directory outside of its logs: in folders of deleted topics, and in staged files.

Folders of deleted topics are removed at once, as a broker would do later. A staged file is removed if it has a record
with an erased key: if its write still runs, it fails and leaves nothing, instead of bringing the record back.
"""

from __future__ import annotations

from collections.abc import Collection

from sparklog.errors import NOTHING_CLEANED, outcome
from sparklog.inspect.absent import holds_records
from sparklog.jobs.run.options import JobOptions
from sparklog.log import files
from sparklog.log.places import LogDirectory
from sparklog.record.rewrite.matching import KeySet
from sparklog.topic.log_manager import remove_folder
from sparklog.write.journal import only_writer


def erase_beside(
    directory: LogDirectory, keys: KeySet | None, topics: Collection[str], options: JobOptions
) -> list[str]:
    """Remove folders of deleted topics and staged files; errors: see `sparklog.jobs.clean.arguments.clean`.

    Parameters
    ----------
    topics : collection of str
        Only folders of these topics. If empty, folders of all topics, and staged files, which do not tell their topics.

    Returns
    -------
    list of str
        The paths of what was removed; with ``dry_run``, of what would be.
    """
    if options.dry_run:
        return [directory.file(name) for name in _names(directory, keys, topics)]
    with outcome(NOTHING_CLEANED), only_writer(directory, options.lock_timeout_seconds):
        # Under the lock nobody can decide a commit with such a file, which could not be finished without it.
        found = _names(directory, keys, topics)
        for name in found:
            if files.is_staged_log(name):
                directory.writable.remove(directory.file(name))
            else:
                remove_folder(directory, name)
    return [directory.file(name) for name in found]


def _names(directory: LogDirectory, keys: KeySet | None, topics: Collection[str]) -> list[str]:
    entries = directory.storage.names(directory.path)
    deleted = {each.name: files.deleted_topic(each.name) for each in entries if each.is_folder}
    staged = [] if keys is None or topics else [each.name for each in entries if files.is_staged_log(each.name)]
    return [
        *(name for name, topic in deleted.items() if topic is not None and (not topics or topic in topics)),
        *(name for name in staged if keys and holds_records(keys, directory.storage, directory.file(name))),
    ]
