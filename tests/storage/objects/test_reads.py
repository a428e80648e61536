"""Logs in an object store: equal to those on the disk, in few requests, and never two versions of an object in one."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import PathNotFoundError, SeglogError, StorageError
from sparklog.log.clock import wall_clock_ns
from sparklog.storage.looks import one_look
from sparklog.storage.objects.failures import ObjectReplacedError
from sparklog.storage.registry import expand, locate
from sparklog.topic.places.discovery import discover
from sparklog.topic.places.live import LiveLogs
from tests.storage.objects.stores import counted, new_root, put, put_folder

DATA = Path(__file__).parents[2] / "data"
LOGS = sorted({path.parent for path in DATA.rglob("*.log")})
ONE = DATA / "v2-records/logs/headers-none-0"


def contents(path: str | Path, isolation_level: str) -> object:
    try:
        with sparklog.open_log(path) as log:
            table = log.read(isolation_level=isolation_level, columns=[*log.schema.names, "leader_epoch", "position"])  # type: ignore[arg-type]
            return table, log.start_offset, log.end_offset, log.last_stable_offset
    except SeglogError as error:
        return type(error)


@pytest.mark.parametrize("folder", LOGS, ids=lambda path: str(path.relative_to(DATA)))
def test_log_of_a_broker_is_the_same_in_a_store(folder: Path) -> None:
    root = new_root()
    url = put_folder(root, folder, f"logs/{folder.name}")
    for name in ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint"):
        if (folder.parent / name).is_file():
            put(root, f"logs/{name}", (folder.parent / name).read_bytes())
    for isolation_level in ("read_uncommitted", "read_committed"):
        assert contents(url, isolation_level) == contents(folder, isolation_level)


@pytest.fixture(scope="module")
def thousand() -> str:
    """A directory of 1,000 partitions in a store, four files each."""
    root = new_root()
    for number in range(1000):
        for path in ONE.iterdir():
            put(root, f"logs/events-{number}/{path.name}", path.read_bytes())
    for path in ONE.parent.iterdir():
        if path.is_file():
            put(root, f"logs/{path.name}", path.read_bytes())
    return f"{root}/logs"


def test_plan_of_a_thousand_partitions_takes_one_request_for_each(thousand: str) -> None:
    with counted() as requests, sparklog.open_topic(f"{thousand}/events") as topic:
        assert requests.count <= 1100
    with sparklog.open_log(ONE) as log:
        assert list(topic.end_offsets.values()) == [log.end_offset] * 1000


def test_look_of_a_stream_that_rests_is_one_listing(thousand: str) -> None:
    logs = LiveLogs(is_committed=False)
    with one_look():
        first = logs.look(discover([thousand]).partitions)
    with counted() as requests, one_look():
        assert logs.look(discover([thousand]).partitions) == first
    # The names in the directory, and all files below it in one pass.
    assert requests.count <= 2


def test_look_of_a_stream_sees_a_new_segment_and_a_longer_one(tmp_path: Path) -> None:
    root, logs = new_root(), LiveLogs(is_committed=False)
    source = tmp_path / "events-0"
    ends = []
    for count in (1, 2, 3):
        with sparklog.PartitionLog.open(source) as log:
            log.append(pa.table({"value": [b"x"] * count}))
        url = put_folder(root, source, "logs/events-0")
        with one_look():
            ends += [each.latest for each in logs.look(discover([url]).partitions).values()]
    assert ends == [1, 3, 6]


def test_one_offset_and_one_time_take_few_requests(thousand: str) -> None:
    with sparklog.open_log(f"{thousand}/events-7") as log, counted() as requests:
        log.read(start_offset=log.end_offset - 1)
        assert requests.count <= 4
        log.offset_for_time(1)
        assert requests.count <= 8


def test_object_that_is_replaced_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    root = new_root()
    values = pa.table({"value": [b"%06d" % number for number in range(40_000)]})
    with sparklog.PartitionLog.open(tmp_path / "events-0", sparklog.LogConfig(compression_type="uncompressed")) as log:
        log.append(values)
    url = put_folder(root, tmp_path / "events-0", "events-0")
    with sparklog.open_log(url) as log:
        put_folder(root, tmp_path / "events-0", "events-0")
        with pytest.raises(ObjectReplacedError, match=r"memory://.*\.log was replaced while it was read"):
            log.read()


def test_place_in_a_task_has_the_listed_versions_and_no_more(thousand: str) -> None:
    with one_look():
        folder = discover([f"{thousand}/events-3"]).partitions[0].pinned()
    sent = pickle.dumps(folder)
    assert len(sent) < 4000
    with counted() as requests:
        again = pickle.loads(sent)
        assert again == folder
        assert again.storage.stamp(folder.location) == folder.storage.stamp(folder.location)
        assert [each.name for each in again.storage.names(folder.location)] == sorted(
            path.name for path in ONE.iterdir()
        )
        assert requests.count == 0


def test_names_of_a_store_are_folders_and_files() -> None:
    root = new_root()
    for key in ("a/b/c", "a/b/d e%20ü#+:", "a/f", "a/b.log", "a/b"):
        put(root, key, b"12")
    storage, path = locate(f"{root}/a")
    entries = storage.entries(path)
    assert [(each.name, each.is_folder, each.is_file, each.size_bytes) for each in entries] == [
        ("b", True, False, 0),
        ("b.log", False, True, 2),
        ("f", False, True, 2),
    ]
    assert [each.name for each in storage.names(f"{path}/b")] == ["c", "d e%20ü#+:"]
    assert storage.read_small(f"{path}/b/d e%20ü#+:") == b"12"
    assert storage.is_folder(f"{path}/b")
    assert not storage.is_folder(f"{path}/f")
    assert storage.identity(f"{path}/f") == storage.identity(f"{path}/./f") != storage.identity(f"{path}/b.log")
    assert storage.stamp(f"{path}/none") is None
    for call in (storage.entries, storage.names, storage.open):
        with pytest.raises(PathNotFoundError, match=r"memory://.*none"):
            call(f"{path}/none")
    with one_look(), pytest.raises(PathNotFoundError, match="not a regular file"):
        storage.open(f"{path}/b")
    with pytest.raises(StorageError, match="not a folder"):
        storage.entries(f"{path}/f")
    assert [each.path for each in expand(locate(f"{root}/a/b*"))] == [f"{root}/a/b", f"{root}/a/b.log"]


def test_stamp_of_a_folder_tells_of_every_change_in_it() -> None:
    root = new_root()
    storage, path = locate(f"{root}/a")
    seen = []
    for key, data in (("a/1", b"x"), ("a/2", b"x"), ("a/2", b"y"), ("a/2", b"yy"), ("a/c/d", b"")):
        put(root, key, data)
        seen.append(storage.stamp(path))
        assert storage.stamp(path) == seen[-1]
    assert len(set(seen)) == 5
    assert all(each is not None and 0 < each.modified_ns <= wall_clock_ns() for each in seen)


def test_write_to_a_store_is_refused_by_name() -> None:
    with pytest.raises(sparklog.errors.InvalidOptionError, match=r"memory://logs/events-0 cannot be written to"):
        sparklog.PartitionLog.open("memory://logs/events-0")
