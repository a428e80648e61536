"""``ledger``: makes rows of a ledger's entries, and of the differences between ledger and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparklog.cli.output import render, tables
from sparklog.cli.output.fields import LEDGER_COMMIT, LEDGER_COPIES, LEDGER_FILE, LEDGER_FINDING, LEDGER_PARTITION
from sparklog.errors import PathNotFoundError
from sparklog.jobs.ledger import LedgerCommit, Loaded, commits
from sparklog.jobs.targets.targets import FOLDER_OF_JOBS, LEDGER
from sparklog.log.files import JOBS_LEDGER
from sparklog.log.places import join_path
from sparklog.storage.base import Storage
from sparklog.topic.places.discovery import place_at


def print_ledger(
    path: str, table: str | None, catalog: Mapping[str, str] | None, *, of_commits: bool, as_json: bool
) -> None:
    """Print the ledger of a target; for errors see `sparklog.jobs.ledger.read_ledger`."""
    found = _commits(path, table, catalog)
    shown: list[tuple[Sequence[tables.Column], list[dict[str, Any]]]]
    if of_commits:
        shown = [(LEDGER_COMMIT.columns, [_commit_row(commit) for commit in found])]
    else:
        partitions, files = _entry_rows(found)
        is_copied = any(row["target_topic"] is not None for row in partitions)
        of_partitions = LEDGER_COPIES if is_copied else LEDGER_PARTITION.columns
        shown = [(of_partitions, partitions), (LEDGER_FILE.columns, files)]
    for columns, rows in shown:
        tables.show_rows(columns, rows, as_json=as_json)


def print_differences(
    path: str, table: str | None, catalog: Mapping[str, str] | None, *, reads_files: bool, as_json: bool
) -> bool:
    """Print the differences between a target and its ledger; return whether no row is lost, doubled or changed."""
    from sparklog.jobs.check.ledger import verify_ledger

    found, is_sound = list[dict[str, Any]](), True
    for finding in verify_ledger(path, reads_files=reads_files, table=table, catalog=catalog):
        is_sound = is_sound and not finding.is_damage
        row = LEDGER_FINDING.row(finding)
        found.append(row)
        if as_json:
            render.put_rows([row])
    if as_json:
        return is_sound
    if found:
        tables.table(LEDGER_FINDING.columns, found)
    else:
        render.say("all files are as the ledger says")
    return is_sound


def _commits(path: str, table: str | None, catalog: Mapping[str, str] | None) -> Iterator[LedgerCommit]:
    """Yield the commits of jobs to a target; a table of Delta Lake or Iceberg has them in its own log."""
    from sparklog.jobs.check.lake import find_lake

    lake = find_lake(*place_at(path), table, catalog)
    return commits(*_find(path)) if lake is None else iter(lake.log().commits)


def _find(path: str) -> tuple[Storage, str]:
    """Return the ledger's path for a target, which is a folder of files, a log directory, or the ledger itself."""
    storage, plain = place_at(path)
    if storage.identity(plain) is not None and not storage.is_folder(plain):
        return storage, plain
    for place in (join_path(join_path(plain, FOLDER_OF_JOBS), LEDGER), join_path(plain, JOBS_LEDGER)):
        if storage.identity(place) is not None:
            return storage, place
    raise PathNotFoundError(f"there is no ledger in {path}: no job has moved anything to it")


def _commit_row(commit: LedgerCommit) -> dict[str, Any]:
    loaded = [each for each in commit.entries if isinstance(each, Loaded)]
    return LEDGER_COMMIT.row(
        commit,
        entries=len(commit.moved) + len(loaded),
        rows=sum(each.rows for each in commit.moved) + sum(each.rows for each in loaded),
        files=sum(len(each.files) for each in commit.moved) + len(loaded),
    )


def _entry_rows(found: Iterator[LedgerCommit]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Make a row for each partition of each source, with its totals over all commits, and for each loaded file."""
    partitions: dict[tuple[str, ...], dict[str, Any]] = {}
    files: dict[tuple[str, str], dict[str, Any]] = {}
    for commit in found:
        for each in commit.entries:
            if isinstance(each, Loaded):
                row = {name: value for name, value in each.to_json().items() if name != "kind"}
                files[each.path, each.into or ""] = row | {"time_ms": commit.time_ms}
        for each in commit.moved:
            at = (each.topic, f"{each.partition:010}", each.source or "", each.target_topic or "")
            old = partitions.get(at, {"from": each.start_offset, "rows": 0, "log_bytes": 0, "files": 0, "bytes": 0})
            partitions[at] = LEDGER_PARTITION.row(
                each,
                **{"from": old["from"]},
                to=each.end_offset,
                rows=old["rows"] + each.rows,
                log_bytes=old["log_bytes"] + each.log_bytes,
                files=old["files"] + len(each.files),
                bytes=old["bytes"] + sum(file.size_bytes for file in each.files),
                time_ms=commit.time_ms,
            )
    return [partitions[at] for at in sorted(partitions)], [files[at] for at in sorted(files)]
