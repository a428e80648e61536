"""Every golden directory read from real servers of object stores equals the one on the disk."""

from __future__ import annotations

import pytest

import sparklog
from sparklog.errors import PathNotFoundError, StorageError
from sparklog.inspect.describe import PartitionDescription
from sparklog.log.reads.columns import LOG_SCHEMA
from sparklog.storage.registry import locate
from tests.storage.cloud.conftest import DATA, Golden
from tests.storage.objects.test_reads import LOGS, contents
from tests.storage.servers.buckets import put_object
from tests.terminal import run

DIRECTORIES = sorted({folder.parent for folder in LOGS})


def test_logs_are_equal(golden: Golden) -> None:
    for folder in LOGS:
        url = f"{golden.url}/{folder.relative_to(DATA)}"
        for isolation_level in ("read_uncommitted", "read_committed"):
            assert contents(url, isolation_level) == contents(folder, isolation_level), url


def test_directories_are_equal_with_filters_and_in_descriptions(golden: Golden) -> None:
    for directory in DIRECTORIES:
        url = f"{golden.url}/{directory.relative_to(DATA)}"
        try:
            with sparklog.open_topic(directory) as there:
                expected = there.read(where="offset >= 3 AND key IS NOT NULL", columns=[*LOG_SCHEMA.names])
        except sparklog.errors.SeglogError as error:
            with pytest.raises(type(error)):
                sparklog.open_topic(url)
            continue
        with sparklog.open_topic(url) as topic:
            found = topic.read(where="offset >= 3 AND key IS NOT NULL", columns=[*LOG_SCHEMA.names])
            assert found.drop(["file"]) == expected.drop(["file"]), url
        assert [(_described(each), each.stats) for each in sparklog.describe(url, full=True)] == [
            (_described(each), each.stats) for each in sparklog.describe(directory, full=True)
        ]
        # Without a full scan, a disk counts the batches near the ends only.
        assert [_described(each) for each in sparklog.describe(url)] == [
            _described(each) for each in sparklog.describe(directory)
        ]


def _described(found: PartitionDescription) -> object:
    return (
        found.topic_partition,
        found.start_offset,
        found.end_offset,
        found.last_stable_offset,
        found.segments and found.segments[-1].end_offset,
    )


def test_commands_print_what_they_print_of_a_disk(golden: Golden) -> None:
    directory, url = DATA / "v2-transactions/logs", f"{golden.url}/v2-transactions/logs"
    for command in (["describe", "--full"], ["dump"], ["groups"], ["transactions"]):
        mine, theirs = run(*command, str(directory)), run(*command, url)
        assert theirs.exit_code == mine.exit_code, theirs.output
        assert theirs.output.replace(url, str(directory)) == mine.output


def test_missing_things_are_errors_that_name_the_url(golden: Golden) -> None:
    bucket = golden.url.rpartition("/")[0]
    is_hdfs = golden.server.buckets.startswith("hdfs:")
    with pytest.raises(PathNotFoundError, match=r"no such path: .*://.*golden-.*/v2-record; did you mean 'v2-records'"):
        sparklog.open_topic(f"{golden.url}/v2-record")
    with pytest.raises((PathNotFoundError, StorageError), match=r"://.*no-such-bucket/logs"):
        sparklog.open_log(f"{golden.server.buckets}no-such-bucket/logs/events-0")
    if is_hdfs:
        return  # Its names have no such signs.
    put_object(golden.server, bucket, "x y/ü#+%20/f", b"12")
    storage, path = locate(f"{bucket}/x y/ü#+%20/f")
    assert storage.read_small(path) == b"12"
    assert [each.name for each in storage.names(f"{bucket}/x y")] == ["ü#+%20"]
