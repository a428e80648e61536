"""Loads files of rows (Parquet, Arrow, CSV, JSON lines) into partition logs; each task loads a group of files.

Rows are written as by Spark: tasks stage them, and one commit makes all of them visible, or none. The commit records
the loaded files in the ledger of the log directory, so that a rerun skips them. A file is identified by its path, size
and time. If a file was rewritten or has grown under the same path, some of its rows may be in the logs, so it is
refused.

Records of a partition are in the order of the files, and of the rows in a file. One task loads a whole file, except
that row groups of Parquet may be split between tasks. Tasks are numbered and committed in the order of the files.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sparklog.errors import InputFileError, InvalidOptionError
from sparklog.jobs.files.row_sizes import ROW_BYTES_MAX
from sparklog.jobs.landing import landed_of, lost_since
from sparklog.jobs.ledger import Ledger, LedgerEntry, Loaded, encode_commit, read_ledger
from sparklog.jobs.load.inputs import InputFile, find_files
from sparklog.jobs.load.mapping import ColumnRoles
from sparklog.jobs.load.plan import FilePart, LoadTask, plan_tasks
from sparklog.jobs.load.row_files import Csv, input_columns, open_input, read_rows
from sparklog.jobs.run.exclusive import exclusive
from sparklog.jobs.run.job import Amount, Report
from sparklog.jobs.run.options import JobOptions
from sparklog.log import files
from sparklog.log.clock import wall_clock_ms
from sparklog.log.config import LogConfig
from sparklog.storage.registry import Location
from sparklog.topic.write.accumulator import RecordAccumulator, TaskAttempt
from sparklog.topic.write.commit import CommitRequest, commit
from sparklog.topic.write.target import WriteTarget
from sparklog.write.commit_plan import PartitionChange
from sparklog.write.staged_files import StagedRun

_THREADS_BYTES_MAX: Final = 1 << 28
_ATTEMPTS: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class LoadedPart:
    """The outcome of loading a part of a file.

    Attributes
    ----------
    kinds : mapping of str to str
        If the value is made from other columns: the kind of each of these in JSON.
    """

    file: InputFile
    rows: int
    kinds: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The records that a task has staged, and the files that they are from."""

    parts: tuple[LoadedPart, ...]
    staged: tuple[StagedRun, ...]


@dataclass(frozen=True, slots=True)
class LoadedPartition:
    """The records that a load has written to a partition; ``size_bytes`` is the size of their batches."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """A file, or some of its row groups, that a load would load.

    Attributes
    ----------
    task : int
        The number of the task that would load it.
    rows : int or None
        The number of rows; None if only reading the file would tell.
    topic : str or None
        The topic of its rows; None if rows name their topics.
    partitions : int or None
        The number of partitions that the topic has, or would get; 1 if the path names one.
    """

    task: int
    path: str
    rows: int | None
    size_bytes: int
    topic: str | None
    partitions: int | None


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """The outcome of a load.

    Attributes
    ----------
    records, size_bytes : int
        The number of records that were written, and the bytes of their batches.
    partitions : tuple of LoadedPartition
        The partitions that they were written to.
    files : tuple of Loaded
        The loaded files, as in the ledger.
    skipped : tuple of str
        Files that were skipped, since they have been loaded before.
    planned : tuple of PlannedPart
        The files that a dry run would have loaded.
    """

    records: int = 0
    size_bytes: int = 0
    partitions: tuple[LoadedPartition, ...] = ()
    files: tuple[Loaded, ...] = ()
    skipped: tuple[str, ...] = ()
    planned: tuple[PlannedPart, ...] = ()


@dataclass
class LoadOutcome:
    """The facts about a load that its driver collects."""

    skipped: tuple[str, ...] = ()
    summary: LoadSummary = field(default_factory=LoadSummary)


@dataclass(frozen=True)
class LoadJob:
    """Loads files; see `sparklog.jobs.run.job.Job`.

    Attributes
    ----------
    sources : tuple of Location
        See `sparklog.jobs.load.inputs`.
    job_id : str
        The id, from `sparklog.write.running_jobs.new_job` at ``now_ms``, the timestamp of records without one.
    workers : int
        The number of tasks that run at a time, about.
    syncs_tasks : bool
        Whether each task syncs what it has staged; False only if tasks run on the machine that makes the commit,
        which syncs all that it moves. A task then continues while the disk still works.
    outcome : LoadOutcome
        Filled in the process that drives the job.
    """

    sources: tuple[Location, ...]
    format: str | None
    target: WriteTarget
    config: LogConfig
    partitioner: str
    columns: ColumnRoles
    csv: Csv
    job_id: str
    now_ms: int
    workers: int
    again: bool
    options: JobOptions = field(default_factory=JobOptions)
    row_bytes_max: int = ROW_BYTES_MAX
    syncs_tasks: bool = True
    outcome: LoadOutcome = field(default_factory=LoadOutcome, compare=False)

    commits_as_it_goes = False
    threads_bytes_max = _THREADS_BYTES_MAX

    def held(self) -> AbstractContextManager[None]:
        return exclusive(self.target.directory, self.job_id, self.options.lock_timeout_seconds)

    def plan(self) -> Sequence[LoadTask]:
        found = find_files(self.sources, self.format)
        ledger = Ledger() if self.again else self._ledger()
        to_load = [file for file in found if self._is_new(file, ledger.loaded.get((file.name, self._into)))]
        self._refuse_lost(found, ledger)
        names = {file.name for file in to_load}
        self.outcome.skipped = tuple(file.name for file in found if file.name not in names)
        self._refuse_unknown_columns(to_load)
        return plan_tasks(to_load, self.workers, self.target, self.columns)

    def _ledger(self) -> Ledger:
        directory = self.target.directory
        return read_ledger(directory.storage, directory.file(files.JOBS_LEDGER))

    def _is_new(self, file: InputFile, known: Loaded | None) -> bool:
        if known is None:
            return True
        if (known.size_bytes, known.modified_ns) == (file.size_bytes, file.modified_ns):
            return False
        raise InvalidOptionError(
            f"{file.name} was loaded before, with {known.rows} rows, and has changed since: some of its rows may "
            f"be in the logs already. Put new rows into a file of another name, or load all of it again by again=True"
        )

    def _refuse_lost(self, found: Sequence[InputFile], ledger: Ledger) -> None:
        """Raise `InvalidOptionError` if files were loaded into logs that no longer hold their rows."""
        known = {file.name: ledger.landed.get((file.name, self._into), ()) for file in found}
        lost = {landed: lost_since(self.target.directory, landed) for landed in set(known.values())}
        for name, landed in known.items():
            if lost[landed] is not None:
                raise InvalidOptionError(
                    f"{name} was loaded before, and since then its rows may be lost: {lost[landed]}. Load all of it "
                    f"again by again=True, or leave the file out"
                )

    @property
    def _into(self) -> str | None:
        target = self.target
        return target.topic if target.partition is None else f"{target.topic}:{target.partition}"

    def _refuse_unknown_columns(self, to_load: Sequence[InputFile]) -> None:
        """Raise for named columns that no file has; all columns except the value may be missing in some files."""
        missing = {role: name for name, role in self.columns.chosen.items()}
        for file in to_load:
            if not missing:
                return
            roles = {name: role for name, role in self.columns.wanted.roles.items() if role in missing}
            of_folders = [name for name, _ in file.columns]
            for name in [*input_columns(file, list(roles), self.csv, self.row_bytes_max), *of_folders]:
                missing.pop(roles.get(name, ""), None)
        if missing and to_load:
            role, name = next(iter(missing.items()))
            raise InvalidOptionError(f"no file has a column {name!r}, which was to be the {role} of records")

    def run(self, task: LoadTask, report: Report) -> LoadResult:
        staging = TaskAttempt(
            target=self.target,
            config=self.config,
            partitioner=self.partitioner,
            job_id=self.job_id,
            task=task.number,
            # Some runners repeat a task, perhaps on another machine.
            attempt=secrets.randbelow(_ATTEMPTS),
            now_ms=self.now_ms,
            base_offsets=task.base_offsets,
        )
        with RecordAccumulator(staging) as accumulator:
            parts = tuple(self._load(part, accumulator, report) for part in task.parts)
            return LoadResult(parts, tuple(accumulator.finish(is_synced=self.syncs_tasks)))

    def _load(self, part: FilePart, accumulator: RecordAccumulator, report: Report) -> LoadedPart:
        file, loaded_rows, told_bytes = part.file, 0, 0
        kinds: Mapping[str, str] = {}
        wanted = replace(self.columns.wanted, row_bytes_max=self.row_bytes_max)
        with open_input(file) as source:
            for rows in read_rows(source, file, part.groups, wanted, self.csv):
                kinds = kinds or self.columns.json_kinds(rows.schema)
                accumulator.append(self.columns.rows(rows, file, loaded_rows))
                loaded_rows += rows.num_rows
                more_bytes = min(source.read_bytes, part.size_bytes) - told_bytes
                told_bytes += more_bytes
                report(Amount(more_bytes, rows.num_rows))
        report(Amount(part.size_bytes - told_bytes, 0))
        return LoadedPart(file, loaded_rows, kinds)

    def commit(self, results: Sequence[LoadResult]) -> None:
        if not results:
            self.outcome.summary = LoadSummary(skipped=self.outcome.skipped)
            return
        parts = [part for result in results for part in result.parts]
        _refuse_other_kinds(parts)
        staged = [run for result in results for run in result.staged]
        loaded = self._entries(parts)
        written = commit(self._commit_job(staged, loaded), staged, wall_clock_ms())
        self.outcome.summary = _summary(written, loaded, self.outcome.skipped)

    def _entries(self, parts: Sequence[LoadedPart]) -> tuple[Loaded, ...]:
        rows: dict[str, int] = {}
        for part in parts:
            rows[part.file.name] = rows.get(part.file.name, 0) + part.rows
        found = {part.file.name: part.file for part in parts}
        return tuple(
            Loaded(name, self._into, file.size_bytes, file.modified_ns, rows[name]) for name, file in found.items()
        )

    def _commit_job(self, staged: Sequence[StagedRun], loaded: Sequence[Loaded] = ()) -> CommitRequest:
        appended: dict[str, Any] = {}
        positions = {}
        if loaded:
            ledger = self._ledger()

            def lines(changes: Mapping[str, PartitionChange]) -> bytes:
                entries: list[LedgerEntry] = [*loaded, *landed_of(self.target.directory, changes)]
                return encode_commit(ledger.next_number, "load", self.job_id, wall_clock_ms(), entries)

            appended, positions = {files.JOBS_LEDGER: lines}, {files.JOBS_LEDGER: ledger.size_bytes}
        return CommitRequest(
            job_id=self.job_id,
            directory=self.target.directory,
            config=self.config,
            new_topics=self.target.new_topics({each.folder for each in staged}),
            lock_timeout_seconds=self.options.lock_timeout_seconds,
            appended=appended,
            append_positions=positions,
            stored=self.target.stored,
        )


def _refuse_other_kinds(parts: Sequence[LoadedPart]) -> None:
    """Raise for columns whose kinds differ between files, since they go into one value."""
    known: dict[str, tuple[str, InputFile]] = {}
    for part in parts:
        for name, kind in part.kinds.items():
            other, file = known.setdefault(name, (kind, part.file))
            if other != kind:
                raise InputFileError(
                    f"column {name!r} is {kind} in {part.file.name}, and {other} in {file.name}. Nothing was written: "
                    f"load these files into different topics, or make their columns the same"
                )


def _summary(written: Mapping[str, Any], loaded: tuple[Loaded, ...], skipped: tuple[str, ...]) -> LoadSummary:
    partitions = tuple(
        LoadedPartition(
            topic=each["topic"],
            partition=each["partition"],
            first_offset=each["first_offset"],
            last_offset=each["last_offset"],
            records=each["records"],
            size_bytes=each["bytes"],
        )
        for each in written["partitions"]
    )
    records, size_bytes = (sum(getattr(each, name) for each in partitions) for name in ("records", "size_bytes"))
    return LoadSummary(records, size_bytes, partitions, loaded, skipped)
