"""The life of a log directory, and a model of it that is a dict of records for each partition.

`Life` does to the directory what a user does, and to its model what should come of it; `Life.check` holds what every
reader is given, and the bytes on the disk, against the model. `walk` lives a life at random.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import sparklog
from sparklog.jobs.clean import arguments as clean_logs
from sparklog.jobs.clean.arguments import CleanSummary
from sparklog.jobs.clean.job import CleanJob
from sparklog.jobs.run.job import run_job
from sparklog.jobs.run.local import LocalRunner
from sparklog.log.checkpoints import parse_offset_checkpoint
from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition
from sparklog.log.reader import IsolationLevel
from sparklog.topic.transactions.hanging import AbortRequest, abort_transactions
from sparklog.topic.transactions.writer import TransactionalWriter
from sparklog.write.partition import LogWriter
from tests.cleaner.logs import findings
from tests.oracle import OracleBatch, decode_log
from tests.places import directory_at
from tests.storage.crash import CrashingStorage, Stopped

TOPIC = "events"
PARTITIONS = (0, 1)
SEGMENT_BYTES = 700
PROPERTIES = {
    "segment.bytes": str(SEGMENT_BYTES),
    "index.interval.bytes": "200",
    "file.delete.delay.ms": "0",
    "min.cleanable.dirty.ratio": "0",
}
CONFIG = LogConfig.from_properties(PROPERTIES)
START_MS = 1_740_000_000_000
DELETE_RETENTION_MS = 100_000
KEYS = tuple(b"key %d" % n for n in range(6))
CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
READ = ("offset", "timestamp", "key", "value", "headers")

Header = tuple[str, bytes | None]
Told = tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]
"""What a reader is told of a record: offset, timestamp, key, value, headers."""


@dataclass(frozen=True)
class Content:
    """What a user gives of a record; its time is so many ms before now."""

    key: bytes | None = None
    value: bytes | None = b""
    headers: tuple[Header, ...] = ()
    age_ms: int = 0


@dataclass
class Kept:
    """A record of the model.

    Attributes
    ----------
    transaction : str
        ``"open"``, ``"commit"`` or ``"abort"``; empty for a record that is in none.
    """

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    producer_id: int = -1
    transaction: str = ""
    marker_offset: int = -1

    def told(self, offset: int) -> Told:
        return (offset, self.timestamp, self.key, self.value, self.headers)


@dataclass
class Transaction:
    """A transaction of the model: its first offset, and that of its marker, which is -1 where it is open."""

    producer_id: int
    first_offset: int
    marker_offset: int = -1
    is_certain: bool = True
    """Not of one whose marker was cut off, and whose records may be gone: only a snapshot may know that it is open."""


@dataclass
class Partition:
    """The model of a partition."""

    records: dict[int, Kept] = field(default_factory=dict)
    transactions: list[Transaction] = field(default_factory=list)
    start: int = 0
    end: int = 0
    clean_to: int = 0

    def begin(self, producer_id: int) -> None:
        """Note that a producer writes in a transaction at the end."""
        if not [each for each in self.open() if each.producer_id == producer_id]:
            self.transactions.append(Transaction(producer_id, self.end))

    def open(self) -> list[Transaction]:
        return [each for each in self.transactions if each.marker_offset < 0]

    def stable_offsets(self) -> set[int]:
        """Return what the last stable offset may be."""
        first = min([self.end, *(each.first_offset for each in self.open() if each.is_certain)])
        may_be = [each.first_offset for each in self.open() if each.first_offset < first]
        return {max(self.start, offset) for offset in (first, *may_be)}

    def drop_before(self, offset: int) -> None:
        self.start = max(self.start, offset)
        self.records = {at: each for at, each in self.records.items() if at >= self.start}

    def cut(self, offset: int, end: int) -> None:
        """Cut the end off, and with the markers that go their transactions are open again."""
        self.records = {at: each for at, each in self.records.items() if at < offset}
        for each in self.records.values():
            if each.marker_offset >= offset:
                each.transaction, each.marker_offset = "open", -1
        self.transactions = [each for each in self.transactions if each.first_offset < offset]
        for one in self.transactions:
            if one.marker_offset >= offset:
                one.marker_offset, one.is_certain = -1, False
        self.end, self.clean_to = end, min(self.clean_to, end)

    def mark(self, producer_id: int, outcome: str) -> None:
        """Add the marker of a producer behind everything else."""
        for each in self.records.values():
            if each.transaction == "open" and each.producer_id == producer_id:
                each.transaction, each.marker_offset = outcome, self.end
        for one in self.open():
            if one.producer_id == producer_id:
                one.marker_offset = self.end
        self.end += 1

    def told(self, stable_offset: int | None = None) -> list[Told]:
        """Return what a reader is given; with a last stable offset, one of committed records."""
        shown = sorted(self.records.items())
        if stable_offset is not None:
            shown = [(at, each) for at, each in shown if at < stable_offset and each.transaction != "abort"]
        return [each.told(at) for at, each in shown]


class Life:
    """A log directory that is written, cleaned, erased, cut and written again, beside its model.

    Parameters
    ----------
    directory : Path
        Made by the first that is written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.partitions = {number: Partition() for number in PARTITIONS}
        self.now_ms = START_MS
        self.erased: set[bytes] = set()
        self.history: list[str] = []
        self._producer_id = 1 << 40
        directory.mkdir(exist_ok=True)
        for number in PARTITIONS:
            self.open_and_close(number)

    def folder(self, number: int) -> Path:
        return self.directory / f"{TOPIC}-{number}"

    # What is written

    def open_and_close(self, number: int) -> None:
        LogWriter.open(self.folder(number), CONFIG, clock=self._clock).close()

    def append(self, number: int, contents: Sequence[Content], codec: str) -> None:
        """Append records by a writer of one partition."""
        config = replace(CONFIG, compression_type=codec)
        with LogWriter.open(self.folder(number), config, clock=self._clock) as log:
            given = log.append(self._table(contents))
        self._add(number, contents, given)

    def leave_open(self, number: int, contents: Sequence[Content]) -> None:
        """Append records of a transaction whose producer is never heard of again."""
        self._producer_id += 1
        with LogWriter.open(self.folder(number), CONFIG, clock=self._clock) as log:
            given = log.append(
                self._table(contents),
                producer_id=self._producer_id,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
        self._add(number, contents, given, self._producer_id)

    def transact(self, by_partition: dict[int, list[Content]], outcome: str) -> None:
        """Append records to partitions in a transaction, and commit or abort it."""
        with TransactionalWriter.open(self.directory, "life", CONFIG, clock=self._clock) as writer:
            writer.begin()
            producer_id = writer.producer_id
            for number, contents in by_partition.items():
                given = writer.append(TOPIC, number, self._table(contents))
                self._add(number, contents, given, producer_id)
            (writer.commit if outcome == "commit" else writer.abort)()
        for number in by_partition:
            self.partitions[number].mark(producer_id, outcome)

    def end_all_transactions(self) -> None:
        """Abort all transactions that are open."""
        request = AbortRequest(is_all=True)
        done = abort_transactions([str(self.directory)], request, self.now_ms, executes=True)
        for number, model in self.partitions.items():
            aborted = [each.producer_id for each in done if each.topic_partition == (TOPIC, number)]
            assert len(set(aborted)) == len(aborted)
            assert {each.producer_id for each in model.open() if each.is_certain} <= set(aborted)
            assert set(aborted) <= {each.producer_id for each in model.open()}
            for producer_id in aborted:
                model.mark(producer_id, "abort")
            model.transactions = [each for each in model.transactions if each.marker_offset >= 0]

    def _clock(self) -> int:
        return self.now_ms

    def _table(self, contents: Sequence[Content]) -> dict[str, list[Any]]:
        return {
            "timestamp": pa.array([self.now_ms - each.age_ms for each in contents], pa.timestamp("ms", "UTC")),
            "key": pa.array([each.key for each in contents], pa.binary()),
            "value": pa.array([each.value for each in contents], pa.binary()),
            "headers": pa.array(
                [[{"key": name, "value": value} for name, value in each.headers] for each in contents], HEADERS
            ),
        }

    def _add(
        self, number: int, contents: Sequence[Content], given: tuple[int, int], producer_id: int | None = None
    ) -> None:
        model = self.partitions[number]
        assert given == (model.end, model.end + len(contents) - 1)
        if producer_id is not None:
            model.begin(producer_id)
        for each in contents:
            at_ms = self.now_ms - each.age_ms
            kept = Kept(at_ms, each.key, each.value, each.headers)
            if producer_id is not None:
                kept.producer_id, kept.transaction = producer_id, "open"
            model.records[model.end] = kept
            model.end += 1
        self.erased -= {each.key for each in contents if each.key is not None}

    # What is taken away

    def delete_records(self, number: int, before_offset: int) -> None:
        found = sparklog.delete_records(self.folder(number), before_offset=before_offset, config=CONFIG)
        model = self.partitions[number]
        model.drop_before(before_offset)
        assert (found.start_offset, found.end_offset) == (model.start, model.end)

    def truncate(self, number: int, offset: int) -> None:
        """Cut a log; batches go whole."""
        model = self.partitions[number]
        behind = [each for each in self.batches(number) if each.last_offset >= offset]
        cut = min(behind[0].base_offset, offset) if behind and offset < model.end else offset
        found = sparklog.truncate_to(self.folder(number), offset, config=CONFIG)
        assert found.start_offset == model.start
        if offset >= model.end:
            assert found.end_offset == model.end
            return
        left = [at for at in model.records if at < cut]
        assert max([model.start, *(at + 1 for at in left)]) <= found.end_offset <= max(cut, model.start)
        model.cut(cut, found.end_offset)
        self._know_open(number)

    def _know_open(self, number: int) -> None:
        """Be certain of the open transactions of which the disk has batches, after a log was cut.

        The producers are then those of an older snapshot. To that, a transaction may be open whose records were deleted
        and whose marker was then compacted away: a broker is in the same doubt.
        """
        markers = {each.base_offset for each in self.batches(number) if each.is_control}
        for each in self.partitions[number].transactions:
            if each.first_offset < self.partitions[number].start and each.marker_offset not in markers:
                each.marker_offset = -1
        # A producer has one transaction after the other: its batches without an end are of the last one.
        last = {each.producer_id: each for each in self.partitions[number].transactions}
        without_end = self.producers_without_end(number)
        for each in self.partitions[number].open():
            each.is_certain = each is last[each.producer_id] and each.producer_id in without_end

    def clean(self, crash_at: int | None = None, **asked: Any) -> CleanSummary:
        """Clean all partitions; with ``crash_at``, only after one that dies at that change of a file."""
        properties = {**PROPERTIES, **asked.pop("config", {})}
        if crash_at is not None:
            self._crash(crash_at, properties, **asked)
        with patch.object(clean_logs, "wall_clock_ms", self._clock):
            return sparklog.clean(self.directory, config=properties, processes=1, **asked)

    def _crash(self, crash_at: int, properties: dict[str, str], **asked: Any) -> None:
        jobs: list[CleanJob] = []

        def note(job: CleanJob, *_: object) -> list[object]:
            jobs.append(job)
            return []

        with patch.object(clean_logs, "wall_clock_ms", self._clock), patch.object(clean_logs, "run_job", note):
            sparklog.clean(self.directory, config=properties, processes=1, **asked)
        storage = CrashingStorage(self.directory, crash_at)
        directory = directory_at(self.directory, storage)
        (job,) = jobs
        folders = tuple(directory.folder(each.name) for each in job.folders)
        try:
            run_job(replace(job, directory=directory, folders=folders), LocalRunner(1))
        except Stopped:
            before = {number: set(model.records) for number, model in self.partitions.items()}
            for number in PARTITIONS:
                left = {row[0] for row in self.read(number, "read_uncommitted")}
                assert left <= before[number]

    def erase(self, keys: Sequence[bytes], crash_at: int | None = None) -> None:
        summary = self.clean(crash_at, erase=list(keys))
        for each in summary.partitions:
            model = self.partitions[each.partition]
            model.records = {at: kept for at, kept in model.records.items() if kept.key not in keys}
        self.erased |= set(keys)

    def blank(self, keys: Sequence[bytes], by: str) -> None:
        self.clean(erase=list(keys), blank=by)
        for model in self.partitions.values():
            for kept in model.records.values():
                if kept.key in keys:
                    kept.value = None if by == "null" else b""

    def recompress(self, codec: str, crash_at: int | None = None) -> None:
        self.clean(crash_at, recompress=codec)

    def retain_bytes(self, size_bytes: int) -> None:
        sizes = {number: self.segment_sizes(number) for number in PARTITIONS}
        summary = self.clean(cleanup_policy="delete", retention_bytes=size_bytes)
        for each in summary.partitions:
            model, of_log = self.partitions[each.partition], sizes[each.partition]
            bases = [*(base for base, _ in of_log), model.end]
            excess, count = sum(size for _, size in of_log) - size_bytes, 0
            for base, size in of_log:
                is_empty_end = base == bases[-2] and not size
                excess -= size
                if excess < 0 or is_empty_end:
                    break
                count += 1
            assert each.start_offset == max(model.start, bases[count] if count else 0)
            model.drop_before(each.start_offset)

    def retain_ms(self, age_ms: int) -> None:
        sizes = {number: self.segment_sizes(number) for number in PARTITIONS}
        batches = {number: self.batches(number) for number in PARTITIONS}
        summary = self.clean(cleanup_policy="delete", retention_ms=age_ms)
        for each in summary.partitions:
            model = self.partitions[each.partition]
            bases = [*(base for base, _ in sizes[each.partition]), model.end]
            start: int | None = model.start
            for base, after in pairwise(bases):
                times = [one.max_timestamp for one in batches[each.partition] if base <= one.base_offset < after]
                if max(times, default=-1) < 0:
                    # By the time of its file, which is that of this test.
                    start = None if times or base != bases[-2] else start
                    break
                if self.now_ms - max(times) <= age_ms:
                    break
                start = max(start or 0, after)
            if start is not None:
                assert each.start_offset == start
            model.drop_before(each.start_offset)

    def compact(self, crash_at: int | None = None, policy: str = "compact", map_bytes: int = 1 << 16) -> None:
        """Compact all partitions, and take from the model what may not stay, and of tombstones what may go."""
        actives = {number: self.segment_sizes(number)[-1][0] for number in PARTITIONS}
        horizons = {number: self.horizons(number) for number in PARTITIONS}
        summary = self.clean(
            crash_at,
            cleanup_policy=policy,
            dedupe_buffer_bytes=map_bytes,
            config={"delete.retention.ms": str(DELETE_RETENTION_MS)},
        )
        for each in summary.partitions:
            model = self.partitions[each.partition]
            if each.clean_offset is None:
                # A cleaning that died may have come to its end, and left nothing that is due.
                model.clean_to = self.clean_offset(each.partition) if crash_at is not None else model.clean_to
                dirty = range(max(model.clean_to, model.start), actives[each.partition])
                left = {row[0] for row in self.read(each.partition, "read_uncommitted")}
                assert model.open() or not [at for at in left if at in dirty]
                gone = [at for at in model.records if at in dirty and at not in left]
                model.clean_to = max([model.clean_to, *(at + 1 for at in gone)])
            else:
                assert each.clean_offset <= actives[each.partition]
                if not model.open():
                    assert each.clean_offset == max(actives[each.partition], model.start)
                model.clean_to = each.clean_offset
            self._compact_model(each.partition, horizons[each.partition])

    def _compact_model(self, number: int, horizons: dict[int, int | None]) -> None:
        model = self.partitions[number]
        latest: dict[bytes, int] = {}
        for at, kept in model.records.items():
            if at < model.clean_to and kept.transaction != "abort" and kept.key is not None:
                latest[kept.key] = max(at, latest.get(kept.key, -1))
        left = {row[0] for row in self.read(number, "read_uncommitted")}
        for at, kept in list(model.records.items()):
            if at >= model.clean_to:
                continue
            is_last = kept.transaction != "abort" and kept.key is not None and latest[kept.key] == at
            horizon_ms = horizons.get(at)
            may_go = kept.value is None and horizon_ms is not None and horizon_ms <= self.now_ms
            if not is_last or (may_go and at not in left):
                del model.records[at]

    # Crashes of the process

    def lose_shutdown(self, number: int, *, loses_indexes: bool, torn: bytes) -> None:
        """Let a writer die within an append: no marker of a clean shutdown, maybe no indexes, and half a batch."""
        (self.directory / ".kafka_cleanshutdown").unlink(missing_ok=True)
        if loses_indexes:
            for suffix in ("index", "timeindex", "snapshot"):
                for path in self.folder(number).glob(f"*.{suffix}"):
                    path.unlink()
        with max(self.folder(number).glob("*.log")).open("ab") as file:
            file.write(torn)
        self.open_and_close(number)
        for cut in self.folder(number).glob("*.cut"):
            cut.unlink()
        if loses_indexes:
            # Of a transaction of which no batch is left, only a snapshot knew.
            model, left = self.partitions[number], self.producers_without_end(number)
            model.transactions = [
                each for each in model.transactions if each.marker_offset >= 0 or each.producer_id in left
            ]

    # What is there

    def segment_sizes(self, number: int) -> list[tuple[int, int]]:
        """Return base offset and size of each segment."""
        return [(int(path.stem), path.stat().st_size) for path in sorted(self.folder(number).glob("*.log"))]

    def batches(self, number: int) -> list[OracleBatch]:
        """Return the batches on the disk as the slow decoder has them."""
        paths = sorted(self.folder(number).glob("*.log"))
        return [batch for path in paths for batch in decode_log(path.read_bytes())]

    def horizons(self, number: int) -> dict[int, int | None]:
        """Return for each record the delete horizon of its batch."""
        return {
            record.offset: batch.base_timestamp if batch.attributes >> 6 & 1 else None
            for batch in self.batches(number)
            for record in batch.records
        }

    def clean_offset(self, number: int) -> int:
        """Return up to where the log is compacted, by the checkpoint of its directory."""
        path = self.directory / "cleaner-offset-checkpoint"
        known = parse_offset_checkpoint(path.read_bytes(), str(path)) if path.exists() else {}
        return known.get(TopicPartition(TOPIC, number), 0)

    def ends_in_a_gap(self, number: int) -> bool:
        """Tell whether offsets at the end are in no batch, as after a cut behind what compaction has removed."""
        last = max((batch.last_offset for batch in self.batches(number)), default=-1)
        return last + 1 < self.partitions[number].end > self.partitions[number].start

    def producers_without_end(self, number: int) -> set[int]:
        """Return the producers that have batches of a transaction on the disk, and no marker behind them."""
        found: set[int] = set()
        for batch in self.batches(number):
            if batch.is_control:
                found.discard(batch.producer_id)
            elif batch.is_transactional:
                found.add(batch.producer_id)
        return found

    def read(self, number: int, level: IsolationLevel) -> list[Told]:
        with sparklog.open_log(self.folder(number)) as log:
            rows = log.read(isolation_level=level, columns=READ)
        times = rows["timestamp"].cast(pa.int64()).to_pylist()
        headers = [tuple((one["key"], one["value"]) for one in each or ()) for each in rows["headers"].to_pylist()]
        columns = (rows["offset"].to_pylist(), times, rows["key"].to_pylist(), rows["value"].to_pylist(), headers)
        return list(zip(*columns, strict=True))

    def stable_offset(self, number: int) -> int:
        """Return the last stable offset, which is one of those that the model allows."""
        with sparklog.open_log(self.folder(number)) as log:
            found = log.last_stable_offset
        assert found in self.partitions[number].stable_offsets(), (number, found)
        return found

    def stable_offset_of_batches(self, number: int) -> int:
        """Return the last stable offset of who knows no more than the batches on the disk."""
        model, without_end = self.partitions[number], self.producers_without_end(number)
        first = [each.first_offset for each in model.open() if each.producer_id in without_end]
        return max(model.start, min([model.end, *first]))

    def check(self) -> None:
        """Hold the directory against the model."""
        for number, model in self.partitions.items():
            with sparklog.open_log(self.folder(number)) as log:
                assert (log.start_offset, log.end_offset) == (model.start, model.end)
            assert self.read(number, "read_uncommitted") == model.told(), number
            assert self.read(number, "read_committed") == model.told(self.stable_offset(number)), number
            assert findings(self.folder(number)) == []
            on_disk = {record.key for batch in self.batches(number) for record in batch.records}
            assert not on_disk & self.erased
            without_end = self.producers_without_end(number)
            assert without_end <= {each.producer_id for each in model.open()}
            assert {
                each.producer_id for each in model.open() if each.is_certain and each.first_offset >= model.start
            } <= without_end


def some_contents(rng: random.Random) -> list[Content]:
    return [
        Content(
            key=rng.choice((None, *KEYS, *KEYS)),
            value=rng.choice((None, b"", rng.randbytes(8), bytes(60))),
            headers=tuple((name, rng.choice((None, b"", b"x"))) for name in rng.choice(((), (), ("a",), ("a", "b")))),
            age_ms=rng.choice((0, 0, 1000, 60_000)),
        )
        for _ in range(rng.randrange(1, 6))
    ]


def step(life: Life, rng: random.Random) -> None:
    """Do one thing at random."""
    number = rng.choice(PARTITIONS)
    model = life.partitions[number]
    crash_at = rng.choice((None, None, rng.randrange(1, 60)))
    keys = rng.sample(KEYS, rng.randrange(1, 3))
    codec = rng.choice(CODECS)
    both = {each: some_contents(rng) for each in rng.choice(((0,), (1,), PARTITIONS))}
    anywhere = rng.randint(model.start, model.end)
    actions: dict[str, Any] = {
        "append": lambda: life.append(number, some_contents(rng), codec),
        "commit": lambda: life.transact(both, "commit"),
        "abort": lambda: life.transact(both, "abort"),
        "leave open": lambda: life.leave_open(number, some_contents(rng)),
        "end all": life.end_all_transactions,
        "compact": lambda: life.compact(crash_at),
        "compact in rounds": lambda: life.compact(crash_at, map_bytes=24 * 14),
        "compact and delete": lambda: life.compact(policy="compact,delete"),
        "erase": lambda: life.erase(keys, crash_at),
        "blank": lambda: life.blank(keys, rng.choice(("null", "empty"))),
        "recompress": lambda: life.recompress(codec, crash_at),
        "retain bytes": lambda: life.retain_bytes(rng.randrange(1000, 6000)),
        "retain ms": lambda: life.retain_ms(rng.randrange(50_000, 500_000)),
        "delete records": lambda: life.delete_records(number, rng.randint(model.start, anywhere)),
        "truncate": lambda: life.truncate(number, rng.randint(anywhere, model.end)),
        "reopen": lambda: life.open_and_close(number),
        "crash": lambda: life.lose_shutdown(
            number, loses_indexes=rng.random() < 0.5, torn=rng.choice((b"", bytes(100), bytes(7)))
        ),
        "wait": lambda: None,
    }
    weights = {"append": 8, "commit": 3, "abort": 3, "compact": 3}
    done = rng.choices(list(actions), [weights.get(name, 1) for name in actions])[0]
    life.now_ms += rng.choice((1, 1000, DELETE_RETENTION_MS // 2))
    life.history.append(done)
    actions[done]()
