"""Every verb that reads takes a bucket, and every verb that writes refuses one by name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.errors import InvalidOptionError
from tests.storage.cloud.conftest import DATA, Golden
from tests.storage.servers.buckets import put_folder_into

NAME = "v2-transactions/logs"


def equal(one: Path | str, other: Path | str) -> None:
    with sparklog.open_topic(one) as here, sparklog.open_topic(other) as there:
        assert here.end_offsets == there.end_offsets
        for at, log in here.logs.items():
            assert log.read().equals(there.logs[at].read())


def test_mirror_backup_and_salvage_of_a_bucket_are_those_of_a_disk(s3: Golden, tmp_path: Path) -> None:
    url = f"{s3.url}/{NAME}"
    sparklog.mirror(url, tmp_path / "mirror")
    equal(tmp_path / "mirror", DATA / NAME)
    sparklog.backup(url, tmp_path / "backups")
    sparklog.restore(tmp_path / "backups", tmp_path / "restored")
    equal(tmp_path / "restored", DATA / NAME)
    sparklog.salvage(url, tmp_path / "salvaged")
    equal(tmp_path / "salvaged", DATA / NAME)
    assert not [row for row in sparklog.diff(url, DATA / NAME) if row.kind != "equal"]


def test_backups_and_mirrors_in_a_bucket_are_restored(s3: Golden, tmp_path: Path) -> None:
    bucket = s3.url.rpartition("/")[0]
    sparklog.backup(DATA / NAME, tmp_path / "backups")
    backups = put_folder_into(s3.server, bucket, tmp_path / "backups", "backups")
    assert not [each for each in sparklog.verify_backups(backups) if each.severity == "error"]
    sparklog.restore(backups, tmp_path / "restored")
    equal(tmp_path / "restored", DATA / NAME)


def test_checks_and_views_of_a_bucket_are_those_of_a_disk(s3: Golden) -> None:
    for name in (NAME, "v2-internal/logs"):
        url, path = f"{s3.url}/{name}", DATA / name
        found, expected = (
            [(each.code, each.position, each.offset) for each in sparklog.verify(where, deep=True)]
            for where in (url, path)
        )
        assert found == expected
    for view in ("consumer_groups", "consumer_offsets"):
        found, expected = (sparklog.views.read(where, view) for where in (f"{s3.url}/v2-internal/logs", str(path)))
        assert found.num_rows == expected.num_rows > 0
    assert sparklog.open_topic([f"{s3.url}/{NAME}", DATA / NAME], replicas="merge").read().num_rows == 221


@pytest.mark.parametrize(
    "write",
    [
        lambda url, _: sparklog.clean(url),
        lambda url, _: sparklog.PartitionLog.open(f"{url}/events-0"),
        lambda url, _: sparklog.Producer(url),
        lambda url, _: sparklog.Consumer(url),
        lambda url, _: sparklog.copy(DATA / NAME, f"{url}-copy"),
        lambda url, _: sparklog.export(DATA / NAME, f"{url}-export"),
        lambda url, _: sparklog.mirror(DATA / NAME, f"{url}-mirror"),
        lambda url, _: sparklog.backup(DATA / NAME, f"{url}-backups"),
        lambda url, _: sparklog.restore(DATA / NAME, f"{url}-restored"),
    ],
)
def test_write_to_a_bucket_is_refused_by_name(s3: Golden, tmp_path: Path, write: Callable[[str, Path], Any]) -> None:
    with pytest.raises(InvalidOptionError, match=r"s3://.* cannot be written to in the storage of 's3:'"):
        write(f"{s3.url}/{NAME}", tmp_path)


def test_processes_that_have_read_a_bucket_end_by_themselves(s3: Golden) -> None:
    program = str(Path(sys.executable).parent / "sparklog")
    for _ in range(6):
        done = subprocess.run([program, "describe", f"{s3.url}/{NAME}"], capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")
