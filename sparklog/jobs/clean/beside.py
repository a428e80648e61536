"""Erases what a log directory has of records beside its logs: folders of deleted topics, and what writes have staged.

A deleted topic goes at once, as it would when its time has come. A staged file goes where it has a record with a key
that is erased: its write, if that still runs, fails and leaves nothing, where it would have brought the record back.
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
    """Remove what is not to stay; errors as of `sparklog.jobs.clean.arguments.clean`.

    Parameters
    ----------
    topics : collection of str
        Only folders of these; where none is named folders of all, and staged files, which do not say their topic.

    Returns
    -------
    list of str
        The paths of what was removed; with ``dry_run``, of what would be.
    """
    if options.dry_run:
        return [directory.file(name) for name in _names(directory, keys, topics)]
    with outcome(NOTHING_CLEANED), only_writer(directory, options.lock_timeout_seconds):
        # While nobody can decide a commit of such a file, which could not be finished without it.
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
