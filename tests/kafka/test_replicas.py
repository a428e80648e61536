"""Three brokers die in mid-write, with unclean elections; the logs merged from their disks are what they serve again.

A scenario makes a topic, kills brokers in an order of its own so that their logs diverge, and leaves nothing alive. The
three log directories are copied as they are. Then the cluster starts again, and serves what it has kept.

**Why the result is certain.** The controller dies first on the last day, so that it elects nobody whom no disk knows.
When the cluster starts again, the broker with the last leader's log starts first and alone. It becomes the leader of
all partitions, since unclean elections are allowed, and the others cut their logs to its log.

If several brokers were in sync at the end, each may lead other partitions, and the ends of their logs may differ by
records that nobody has committed. The merged log follows the longest log of the highest epoch, and the cluster the
first broker. Then one is the beginning of the other, and all that is committed is in both.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, takewhile
from pathlib import Path

import pytest

import sparklog
from sparklog.errors import CorruptBatchError, PathNotFoundError, SeglogError
from sparklog.inspect.diff import DiffKind
from sparklog.jobs.mirror.job import MirrorSummary
from tests.golden import decoded
from tests.jobs.mirror.sources import files_of_logs
from tests.kafka.broker import HarnessError, Producer, Record
from tests.kafka.cluster import BROKERS, CONTROLLER, GIVES_UP_SOON, Cluster
from tests.kafka.content import records
from tests.oracle import OracleBatch, decode_log

pytestmark = pytest.mark.kafka

REPLICAS = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
PARTITIONS = range(len(REPLICAS))
CONFIG = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1", "internal.segment.bytes": "2000"}
MIRROR_TIMEOUT_S = 30
TRANSACTION_TIMEOUT_MS = 900_000

Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""An offset, a timestamp, a key, a value, and headers."""


class Worker:
    """Writes to a topic from a thread: acks=1, acks=all and transactions in turn, whatever dies meanwhile."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        self._is_ended = threading.Event()
        self._turns = self._failures = 0
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Worker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ended.set()
        self._cluster.writer.kill()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def wait(self, turns: int = 3) -> None:
        """Wait until it has written some more."""
        wanted, deadline = self._turns + turns, time.monotonic() + 60
        while self._turns < wanted:
            assert time.monotonic() < deadline, f"{self._turns} turns written, {self._failures} failed"
            time.sleep(0.02)

    def _work(self) -> None:
        while not self._is_ended.is_set():
            # A producer whose transaction has failed is of no use any more, and a dead tool starts again.
            with contextlib.suppress(HarnessError):
                self._write()
            self._failures += 1

    def _write(self) -> None:
        number = self._failures
        ask = self._cluster.writer.ask
        one, every, within = (
            Producer(ask, f"{name}-{number}", {**GIVES_UP_SOON, "compression.type": codec, **config})
            for name, codec, config in (
                ("one", "none", {"acks": 1, "enable.idempotence": False}),
                ("every", "lz4", {"acks": "all"}),
                ("within", "zstd", {"transactional.id": self._topic, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}),
            )
        )
        while not self._is_ended.is_set():
            one.send(*(content(self._topic, self._turns, 4) for _ in range(4)))
            every.send(content(self._topic, self._turns, 9))
            within.begin()
            within.send(content(self._topic, self._turns, 5))
            within.abort() if self._turns % 3 == 2 else within.commit()
            self._turns += 1
            # The brokers need the processors, to start beside this.
            self._is_ended.wait(0.2)


def content(topic: str, seed: int, count: int) -> list[Record]:
    """Make records for each partition; ``count`` of each."""
    return [each for number in PARTITIONS for each in records(topic, count, seed=seed, partition=number)]


def put(cluster: Cluster, topic: str, seed: int) -> None:
    """Write some batches with acks=1, and then some with acks=all: whoever is in sync has all of them."""
    with cluster.producer(acks=1, enable_idempotence=False) as one:
        one.send(*(content(topic, 200 * seed + turn, 7) for turn in range(3)))
    with cluster.producer(acks="all", compression_type="lz4") as every:
        every.send(*(content(topic, 100 * seed + turn, 5 + seed) for turn in range(3)))


def alone(cluster: Cluster, topic: str, number: int) -> None:
    """Wait until one broker leads every partition with nobody in sync."""
    cluster.wait(topic, lambda each: each["leader"] == number and each["isr"] == [number])


def in_sync(cluster: Cluster, topic: str, *numbers: int) -> None:
    cluster.wait(topic, lambda each: each["leader"] in numbers and sorted(each["isr"]) == sorted(numbers))


# Each scenario ends with everything dead, and returns the broker that starts first.


def leader_is_left_alone(cluster: Cluster, topic: str) -> int:
    """Broker 1 goes on alone and dies; the others elect a leader without its records, which dies in mid-write."""
    put(cluster, topic, 1)
    cluster.kill(2, 3)
    alone(cluster, topic, 1)
    put(cluster, topic, 2)
    cluster.kill(1)
    cluster.restart(2, 3)
    in_sync(cluster, topic, 2, 3)
    with Worker(cluster, topic) as worker:
        worker.wait()
        cluster.kill(CONTROLLER, 3, 2)
    return 2


def each_leads_alone(cluster: Cluster, topic: str) -> int:
    """Each broker leads alone without what the one before wrote, then the first again: four lineages (KIP-279)."""
    put(cluster, topic, 1)
    cluster.kill(2, 3)
    alone(cluster, topic, 1)
    put(cluster, topic, 2)
    for last, following in ((1, 2), (2, 3), (3, 1)):
        cluster.kill(last)
        cluster.restart(following)
        alone(cluster, topic, following)
        put(cluster, topic, 2 + following)
    cluster.kill(CONTROLLER, 1)
    return 1


def leader_writes_nothing(cluster: Cluster, topic: str) -> int:
    """Broker 1 writes alone; then broker 2 leads, and dies before it writes anything: its epoch is empty."""
    put(cluster, topic, 1)
    cluster.kill(2, 3)
    alone(cluster, topic, 1)
    put(cluster, topic, 3)
    cluster.kill(1)
    cluster.restart(2)
    alone(cluster, topic, 2)
    cluster.kill(CONTROLLER, 2)
    return 2


def two_are_given_up(cluster: Cluster, topic: str) -> int:
    """Broker 1 cuts its records and follows broker 2; then broker 3 comes back, and its short log is the one."""
    put(cluster, topic, 1)
    cluster.kill(3)
    in_sync(cluster, topic, 1, 2)
    put(cluster, topic, 2)
    cluster.kill(2)
    alone(cluster, topic, 1)
    put(cluster, topic, 3)
    cluster.kill(1)
    cluster.restart(2)
    alone(cluster, topic, 2)
    put(cluster, topic, 4)
    cluster.restart(1)
    in_sync(cluster, topic, 1, 2)
    put(cluster, topic, 5)
    cluster.kill(1, 2)
    cluster.restart(3)
    alone(cluster, topic, 3)
    put(cluster, topic, 2)
    cluster.kill(CONTROLLER, 3)
    return 3


def all_die_in_mid_write(cluster: Cluster, topic: str) -> int:
    """Two brokers die in mid-write and come back, and at last all of them do; nobody is elected uncleanly."""
    with Worker(cluster, topic) as worker:
        for number in (1, 2):
            worker.wait()
            cluster.kill(number)
            in_sync(cluster, topic, *(each for each in BROKERS if each != number))
            cluster.restart(number)
            in_sync(cluster, topic, *BROKERS)
        worker.wait()
        cluster.kill(CONTROLLER, *BROKERS)
    return 1


SCENARIOS: dict[str, Callable[[Cluster, str], int]] = {
    each.__name__.replace("_", "-"): each
    for each in (leader_is_left_alone, each_leads_alone, leader_writes_nothing, two_are_given_up, all_die_in_mid_write)
}


class Mirror:
    """`sparklog.mirror` of a live directory that follows it from a thread."""

    def __init__(self, source: Path, target: Path) -> None:
        self.source, self.target = source, target
        self._is_ended = threading.Event()
        self.errors: list[SeglogError] = []
        self.fault: BaseException | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Mirror:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ended.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _follow(self) -> None:
        try:
            sparklog.mirror(self.source, self.target, follow=True, interval_seconds=0.2, each_pass=self._each_pass)
        except BaseException as fault:
            self.fault = fault

    def _each_pass(self, summary: MirrorSummary) -> bool:
        self.errors += summary.errors
        return not self._is_ended.is_set()

    def differences(self) -> list[str]:
        """Return the names of files that differ, once a dead source and its mirror are the same, or after a while."""
        deadline = time.monotonic() + MIRROR_TIMEOUT_S
        while True:
            found = self._different_now()
            if not found or self.fault is not None or time.monotonic() > deadline:
                return found
            time.sleep(0.2)

    def _different_now(self) -> list[str]:
        try:
            theirs, ours = files_of_logs(self.source), files_of_logs(self.target) if self.target.is_dir() else {}
        except FileNotFoundError as gone:
            # The mirror goes on meanwhile: it renames and deletes the file that was just listed.
            return [gone.filename]
        return sorted(name for name in theirs.keys() | ours.keys() if theirs.get(name) != ours.get(name))


@dataclass
class Day:
    """What a scenario left: the copies of the disks, and what the cluster served of them when it was up again."""

    topic: str
    directories: list[Path]
    served: dict[int, list[Row]]
    leader: Path
    mirror_differences: list[str]
    logs: dict[int, list[list[OracleBatch]]] = field(default_factory=dict)

    def paths(self, directories: list[Path] | None = None) -> list[Path]:
        return [each / self.topic for each in directories or self.directories]

    def folder(self, directory: Path, partition: int) -> Path:
        return directory / f"{self.topic}-{partition}"

    def end(self, partition: int, number: int) -> int:
        """Return the log end offset of a replica, 0 to 2."""
        batches = self.logs[partition][number]
        return batches[-1].last_offset + 1 if batches else 0

    def common(self, partition: int, one: int, other: int) -> int:
        """Return the offset up to which two replicas have the same batches, without a look at any epoch's list."""
        pairs = zip(self.logs[partition][one], self.logs[partition][other], strict=False)
        same = [a for a, _ in takewhile(lambda pair: is_same(*pair), pairs)]
        return same[-1].last_offset + 1 if same else 0

    def best(self, partition: int) -> int:
        """Return the replica with the highest epoch, and with the most records of it, by its checkpoint's last line."""
        return max(range(3), key=lambda number: (self.epochs(partition, number)[-1][0], self.end(partition, number)))

    def epochs(self, partition: int, number: int) -> list[tuple[int, int]]:
        lines = (self.folder(self.directories[number], partition) / "leader-epoch-checkpoint").read_text().split("\n")
        return [(int(epoch), int(offset)) for epoch, offset in map(str.split, lines[2:-1])]

    def high_watermark(self, partition: int, number: int) -> int | None:
        """Return the high watermark that a broker last wrote down; None if it was killed before it wrote any."""
        lines = (self.directories[number] / "replication-offset-checkpoint").read_text().split("\n")
        found = (int(row[2]) for row in map(str.split, lines[2:-1]) if row[:2] == [self.topic, str(partition)])
        return next(found, None)


def is_same(one: OracleBatch, other: OracleBatch, besides: tuple[str, ...] = ("position",)) -> bool:
    """Return whether batches have the same fields, besides their position in a segment."""
    same = dict.fromkeys(besides, 0)
    return vars(one) | same == vars(other) | same


def read_logs(folder: Path) -> list[OracleBatch]:
    return [batch for path in sorted(folder.glob("*.log")) for batch in decode_log(path.read_bytes())]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.start(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def mirror(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    """Follow broker 1, through all of its deaths and truncations."""
    with Mirror(cluster.brokers[1].log_dir, tmp_path_factory.mktemp("mirror") / "logs") as mirror:
        yield mirror


@pytest.fixture(scope="module", params=SCENARIOS)
def day(
    request: pytest.FixtureRequest, cluster: Cluster, mirror: Mirror, tmp_path_factory: pytest.TempPathFactory
) -> Day:
    """Play a scenario, copy the disks of the dead brokers, and have the cluster serve them again."""
    topic: str = request.param
    cluster.create_topic(topic, REPLICAS, CONFIG)
    scratch = tmp_path_factory.mktemp(topic)
    copies = [scratch / f"broker-{number}" for number in BROKERS]
    try:
        first = SCENARIOS[topic](cluster, topic)
        for source, target in zip(cluster.log_dirs, copies, strict=True):
            shutil.copytree(source, target)
        differences = mirror.differences()
    except BaseException:
        # The next scenario finds all of them up.
        cluster.restart(CONTROLLER)
        cluster.restart(*BROKERS)
        raise
    cluster.restart(CONTROLLER)
    cluster.restart(first)
    cluster.wait(topic, lambda each: each["leader"] == first)
    cluster.restart(*(number for number in BROKERS if number != first))
    cluster.wait(topic, lambda each: each["leader"] == first and sorted(each["isr"]) == list(BROKERS))
    served: dict[int, list[Row]] = {number: [] for number in PARTITIONS}
    for row in map(decoded, cluster.consume(topic)):
        served[row["partition"]].append(
            (row["offset"], row["timestamp"], row["key"], row["value"], list(map(tuple, row["headers"])))
        )
    found = Day(topic, copies, served, copies[first - 1], differences)
    for number in PARTITIONS:
        found.logs[number] = [read_logs(found.folder(each, number)) for each in copies]
    return found


def merged(paths: list[Path], replicas_min: int | None = None) -> tuple[dict[int, list[Row]], dict[int, int]]:
    """Read the merged logs: their rows and their ends, by partition."""
    with sparklog.open_topic(paths, replicas="merge", replicas_min=replicas_min) as topic:
        rows: dict[int, list[Row]] = {number: [] for number in PARTITIONS}
        for row in topic.read(columns=["partition", "offset", "timestamp", "key", "value", "headers"]).to_pylist():
            headers = [(each["key"], each["value"]) for each in row["headers"] or ()]
            milliseconds = round(row["timestamp"].timestamp() * 1000)
            rows[row["partition"]].append((row["offset"], milliseconds, row["key"], row["value"], headers))
        return rows, {found.partition: end for found, end in topic.end_offsets.items()}


def until(rows: list[Row], end: int) -> list[Row]:
    return [row for row in rows if row[0] < end]


def test_merged_log_is_what_the_cluster_serves_again(day: Day) -> None:
    committed, ends = merged(day.paths())
    whole, whole_ends = merged(day.paths(), 1)
    for number in PARTITIONS:
        served = day.served[number]
        assert len(served) > 30
        assert committed[number] == until(served, ends[number])
        best = day.best(number)
        assert whole_ends[number] == day.end(number, best)
        if day.directories[best] == day.leader:
            assert whole[number] == served
        else:
            # Both were in sync, so the difference is at the end, and after every high watermark. A log may end with a
            # marker of a transaction, which is no row.
            end = day.end(number, day.directories.index(day.leader))
            assert until(whole[number], end) == served
            assert ends[number] <= end


def test_merged_log_ends_where_the_documentation_says(day: Day) -> None:
    read = {least: merged(day.paths(), least) for least in (None, 1, 2, 3)}
    with sparklog.open_topic(day.paths(), replicas="merge") as topic:
        told = {(each["partition"], each["directory"]): each for each in topic.replicas.to_pylist()}
    for number in PARTITIONS:
        best = day.best(number)
        agreed = [day.common(number, best, other) for other in range(3)]
        marks = [day.high_watermark(number, other) for other in range(3)]
        for other, directory in enumerate(day.directories):
            row = told[number, str(directory)]
            assert (row["agreed_offset"], row["end_offset"]) == (agreed[other], day.end(number, other))
            assert (row["leader_epoch"], row["high_watermark"]) == (day.epochs(number, other)[-1][0], marks[other])
        wanted = {least: sorted(agreed)[-least] for least in (1, 2, 3)}
        assert {least: read[least][1][number] for least in wanted} == wanted
        known = [min(mark, end) for mark, end in zip(marks, agreed, strict=True) if mark is not None]
        assert read[None][1][number] == max(known or agreed)
        for rows, ends in read.values():
            assert rows[number] == until(read[1][0][number], ends[number])


def test_logs_have_diverged(day: Day) -> None:
    """The scenarios are worth something: there are replicas to cut, unless nobody was elected uncleanly."""
    for number in PARTITIONS:
        best = day.best(number)
        cut = sum(day.common(number, best, other) < day.end(number, other) for other in range(3))
        if day.topic == "all-die-in-mid-write":
            assert cut == 0
        else:
            assert cut == (2 if day.topic in ("each-leads-alone", "two-are-given-up") else 1)
    # Of this partition, every scenario has killed the leader.
    assert len(day.epochs(0, day.best(0))) > 1


@pytest.mark.parametrize("is_best_damaged", [True, False])
def test_damage_of_two_replicas_is_healed(day: Day, tmp_path: Path, is_best_damaged: bool) -> None:
    """One replica loses its first segment, and another one has a damaged batch after that."""
    wanted = merged(day.paths(), 1)
    directories = [tmp_path / each.name for each in day.directories]
    for source, target in zip(day.directories, directories, strict=True):
        shutil.copytree(source, target)
    for number in PARTITIONS:
        best = day.best(number)
        other = max({0, 1, 2} - {best}, key=lambda each: day.common(number, best, each))
        damaged, robbed = (best, other) if is_best_damaged else (other, best)
        first, second, *_ = sorted(day.folder(directories[robbed], number).glob("*.log"))
        for suffix in (".log", ".index", ".timeindex"):
            first.with_suffix(suffix).unlink()
        shared = range(int(second.stem), day.common(number, best, other))
        folder = day.folder(directories[damaged], number)
        flip(folder, next(batch for batch in day.logs[number][damaged] if batch.base_offset in shared))
        with sparklog.open_log(folder) as log, pytest.raises(CorruptBatchError):
            log.read(columns="value")
    assert merged(day.paths(directories), 1) == wanted


def flip(folder: Path, batch: OracleBatch) -> None:
    """Flip a bit in the records of a batch."""
    path = max(path for path in folder.glob("*.log") if int(path.stem) <= batch.base_offset)
    data = bytearray(path.read_bytes())
    data[batch.position + 70] ^= 0x10
    path.write_bytes(data)


def test_diff_says_what_the_batches_say(day: Day) -> None:
    found = list(sparklog.diff(*day.paths()))
    for number in PARTITIONS:
        rows = [row for row in found if row.partition == number]
        ranges = [row for row in rows if row.is_range]
        ends = [day.end(number, each) for each in range(3)]
        assert [(row.start_offset, row.end_offset) for row in ranges] == [
            *zip([0, *(row.end_offset for row in ranges)], (row.end_offset for row in ranges), strict=False)
        ]
        assert ranges[-1].end_offset == max(ends)
        told = {offset: row for row in ranges for offset in range(row.start_offset or 0, row.end_offset or 0)}
        there = [{offset: batch for batch in log for offset in offsets_of(batch)} for log in day.logs[number]]
        for offset, row in told.items():
            assert (row.copies, row.kind) == compared([each.get(offset) for each in there]), (number, offset)
        assert [row.copies for row in rows if row.kind is DiffKind.END_OFFSET] == (
            [tuple(map(str, ends))] if len(set(ends)) > 1 else []
        )


def offsets_of(batch: OracleBatch) -> range:
    return range(batch.base_offset, batch.last_offset + 1)


def compared(batches: list[OracleBatch | None]) -> tuple[tuple[str, ...], DiffKind]:
    """Give the same letter to the same batches, as `diff` does, and say how they differ."""
    different: list[OracleBatch] = []
    states = []
    for batch in batches:
        if batch is None:
            states.append("missing")
            continue
        same = next((row for row, each in enumerate(different) if is_same(each, batch)), len(different))
        different += [batch] if same == len(different) else []
        states.append("ABC"[same])
    if len(different) > 1:
        # Some content is written twice, by producers without an id.
        is_epoch = all(is_same(*pair, ("position", "leader_epoch")) for pair in combinations(different, 2))
        return tuple(states), DiffKind.LEADER_EPOCH if is_epoch else DiffKind.DIVERGENT
    return tuple(states), DiffKind.MISSING if None in batches else DiffKind.EQUAL


def test_mirror_follows_its_source_through_every_truncation(day: Day, mirror: Mirror) -> None:
    assert mirror.fault is None
    # A file may change while it is copied: the next pass copies it again.
    assert {type(each) for each in mirror.errors} <= {PathNotFoundError}
    assert day.mirror_differences == []
