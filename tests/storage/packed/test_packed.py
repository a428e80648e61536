"""Archives of log directories: read like the directory, and refused by name where they are damaged or forged."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import shutil
import stat
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard

import sparklog
from sparklog.errors import ForeignNameError, InvalidOptionError, PathNotFoundError, SeglogError, StorageError
from sparklog.storage.packed import spill
from sparklog.storage.registry import locate
from tests.storage.objects.stores import new_root, put
from tests.storage.objects.test_reads import DATA, LOGS, contents

SETS = sorted({folder.parent for folder in LOGS if folder.parent.name == "logs"})
SMALL = DATA / "v2-records/logs/headers-none-0"


def as_tar(folder: Path, path: Path, within: str = "./") -> Path:
    with tarfile.open(path, "w") as archive:
        archive.add(folder, within)
    return path


def as_gz(folder: Path, path: Path, within: str = "./") -> Path:
    data = as_tar(folder, path.with_suffix(".plain"), within).read_bytes()
    # Two members, as a parallel gzip writes them.
    path.write_bytes(gzip.compress(data[:5000]) + gzip.compress(data[5000:]))
    return path


def as_zst(folder: Path, path: Path, within: str = "./") -> Path:
    data = as_tar(folder, path.with_suffix(".plain"), within).read_bytes()
    compress = zstandard.ZstdCompressor().compress
    path.write_bytes(compress(data[:5000]) + compress(data[5000:]))
    return path


def as_zip(folder: Path, path: Path, within: str = "", kind: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", kind) as archive:
        for each in sorted(folder.rglob("*")):
            archive.write(each, f"{within}{each.relative_to(folder)}")
    return path


def as_deflated(folder: Path, path: Path, within: str = "") -> Path:
    return as_zip(folder, path, within, zipfile.ZIP_DEFLATED)


KINDS: dict[str, Callable[..., Path]] = {
    "a.tar": as_tar,
    "a.tar.gz": as_gz,
    "a.tgz": as_gz,
    "a.tar.zst": as_zst,
    "a.zip": as_zip,
    "b.ZIP": as_deflated,
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("directory", SETS, ids=lambda path: path.parent.name)
def test_every_log_of_an_archive_is_that_of_the_directory(directory: Path, name: str, tmp_path: Path) -> None:
    archive = KINDS[name](directory, tmp_path / name)
    for folder in sorted(path for path in directory.iterdir() if path.is_dir()):
        if list(folder.glob("*.log")):
            for isolation_level in ("read_uncommitted", "read_committed"):
                assert contents(archive / folder.name, isolation_level) == contents(folder, isolation_level)


@pytest.mark.parametrize("within", ["./", "kafka-logs/", "var/lib/kafka/data/"])
@pytest.mark.parametrize("name", KINDS)
def test_folders_around_a_log_directory_are_left_out(name: str, within: str, tmp_path: Path) -> None:
    archive = KINDS[name](
        SMALL.parent, tmp_path / name, "" if name.lower().endswith("zip") and within == "./" else within
    )
    with sparklog.open_topic(archive) as packed, sparklog.open_topic(SMALL.parent) as plain:
        assert packed.read() == plain.read()
        assert packed.topics == plain.topics
    assert [each.topic_partition for each in sparklog.describe(archive)] == [
        each.topic_partition for each in sparklog.describe(SMALL.parent)
    ]
    assert pickle.loads(pickle.dumps(locate(archive))) == locate(archive)


def test_archive_of_one_folder_and_topics_and_patterns_in_it(tmp_path: Path) -> None:
    archive = as_tar(SMALL, tmp_path / "one.tar", SMALL.name)
    assert contents(archive / SMALL.name, "read_uncommitted") == contents(SMALL, "read_uncommitted")
    with sparklog.open_topic(archive / "headers-none") as topic, sparklog.open_topic(f"{archive}/headers-*") as same:
        assert topic.read() == same.read()
    with pytest.raises(PathNotFoundError, match=r"no such path: .*one\.tar/headers-non; did you mean 'headers-none'"):
        sparklog.open_topic(archive / "headers-non")


@pytest.mark.parametrize("name", KINDS)
def test_archive_in_a_bucket_is_read_in_place(name: str, tmp_path: Path) -> None:
    root = new_root()
    put(root, f"x/{name}", KINDS[name](SMALL.parent, tmp_path / name).read_bytes())
    with sparklog.open_topic(f"{root}/x/{name}") as packed, sparklog.open_topic(SMALL.parent) as plain:
        assert packed.read() == plain.read()


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.zip"])
def test_jobs_take_archives(name: str, tmp_path: Path) -> None:
    archive = KINDS[name](SMALL.parent, tmp_path / name)
    sparklog.copy(archive, tmp_path / "copied")
    sparklog.copy(SMALL.parent, tmp_path / "expected")
    with sparklog.open_topic(tmp_path / "copied") as found, sparklog.open_topic(tmp_path / "expected") as expected:
        assert found.read() == expected.read()
    sparklog.export(archive, tmp_path / "out")
    assert list((tmp_path / "out").rglob("*.parquet"))
    assert not [each for each in sparklog.verify(archive) if each.severity == "error"]


def test_folder_with_the_name_of_an_archive_is_a_folder(tmp_path: Path) -> None:
    with sparklog.PartitionLog.open(tmp_path / "logs.tar" / "events-0"):
        pass
    assert sparklog.open_log(tmp_path / "logs.tar" / "events-0").end_offset == 0


def test_write_into_an_archive_is_refused_by_name(tmp_path: Path) -> None:
    archive = as_tar(SMALL.parent, tmp_path / "a.tar")
    before = archive.read_bytes()
    with pytest.raises(InvalidOptionError, match=r"a\.tar.* cannot be written to"):
        sparklog.PartitionLog.open(archive / "events-0")
    assert archive.read_bytes() == before


def read_or_error(path: Path) -> pa.Table | SeglogError:
    try:
        with sparklog.open_log(path) as log:
            return log.read()
    except SeglogError as error:
        return error


@pytest.mark.parametrize("name", KINDS)
def test_archive_that_is_cut_anywhere_is_an_error_or_the_same(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "events-0"
    folder.mkdir(parents=True)
    for path in SMALL.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    data = KINDS[name](folder.parent, tmp_path / name).read_bytes()
    expected = read_or_error(SMALL)
    cuts = sorted({*range(0, len(data), max(len(data) // 150, 1)), *range(max(len(data) - 30, 0), len(data))})
    for number, cut in enumerate(cuts):
        path = tmp_path / f"{number}-{name}"
        path.write_bytes(data[:cut])
        found = read_or_error(path / "events-0")
        assert found == expected or (isinstance(found, StorageError) and str(path) in str(found))
        path.unlink()


@pytest.mark.parametrize("name", KINDS)
def test_flipped_bytes_are_an_error_or_the_same(name: str, tmp_path: Path) -> None:
    data = bytearray(KINDS[name](SMALL, tmp_path / name, "events-0/").read_bytes())
    expected = contents(SMALL, "read_uncommitted")
    for number, position in enumerate(range(0, len(data), max(len(data) // 100, 1))):
        path = tmp_path / f"{number}-{name}"
        changed = bytearray(data)
        changed[position] ^= 0x55
        path.write_bytes(changed)
        found = read_or_error(path / "events-0")
        # The name of its segment, or the size of an index, may be another one: then the log is empty or the same.
        is_log = isinstance(found, pa.Table) and found.num_rows in (0, expected[0].num_rows)  # type: ignore[index]
        assert is_log or (isinstance(found, SeglogError) and str(path) in str(found))
        path.unlink()


def forged(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w") as archive:
        for each in members:
            archive.addfile(each, io.BytesIO(bytes(each.size)))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.size = kind, target, 4 if kind == tarfile.REGTYPE else 0
    return found


@pytest.mark.parametrize(
    "bad",
    [
        member("../outside"),
        member("logs/../../outside"),
        member("/etc/passwd"),
        member("events-0/link", tarfile.SYMTYPE, "/etc/passwd"),
        member("events-0/link", tarfile.LNKTYPE, "events-0/x"),
        member("events-0/device", tarfile.CHRTYPE),
        member("events-0/pipe", tarfile.FIFOTYPE),
        member("events-0\\x"),
        member("events-0/x"),
        member("y" * 5000),
    ],
    ids=lambda each: each.name[:20],
)
def test_member_that_leads_out_or_is_no_file_is_refused_by_name(bad: tarfile.TarInfo, tmp_path: Path) -> None:
    archive = forged(tmp_path / "a.tar", member("events-0/x"), bad)
    with pytest.raises(ForeignNameError, match=r"a\.tar: .*member"):
        sparklog.open_topic(archive)


def test_zip_with_links_doubles_or_names_that_lead_out_is_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("events-0/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    cases: list[list[str | zipfile.ZipInfo]] = [["../x"], ["/etc/x"], [link], ["a", "a"]]
    for number, names in enumerate(cases):
        path = tmp_path / f"{number}.zip"
        with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
            warnings.simplefilter("ignore")
            for name in names:
                archive.writestr(name, b"x")
        with pytest.raises(ForeignNameError, match=rf"{number}\.zip: .*member"):
            sparklog.open_topic(path)


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tar.zst", "b.ZIP"])
def test_bomb_ends_where_the_disk_would_become_full(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "logs" / "events-0"
    folder.mkdir(parents=True)
    (folder / "00000000000000000000.log").write_bytes(bytes(50 << 20))
    archive = KINDS[name](folder.parent, tmp_path / name)
    real = os.fstatvfs
    written: list[int] = []

    def nearly_full(descriptor: int) -> os.statvfs_result:
        found = real(descriptor)
        written.append(os.fstat(descriptor).st_size)
        room = (spill._LEFT_FREE_BYTES + (10 << 20) - written[-1]) // found.f_frsize
        return os.statvfs_result((*found[:4], room, *found[5:]))

    monkeypatch.setattr(os, "fstatvfs", nearly_full)
    with pytest.raises(StorageError, match=r"cannot decompress .* has no room for it: set TMPDIR"):
        sparklog.open_topic(archive).read()
    assert max(written) <= 12 << 20


def test_header_that_claims_gigabytes_is_an_error(tmp_path: Path) -> None:
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 7 << 30
    path = tmp_path / "a.tar"
    path.write_bytes(header.tobuf())
    os.truncate(path, 8 << 30)
    with pytest.raises(StorageError, match=r"a\.tar"):
        sparklog.open_topic(path)


def test_forked_and_other_threads_share_an_archive(tmp_path: Path) -> None:
    archive = as_gz(SMALL.parent, tmp_path / "a.tgz")
    with sparklog.open_topic(archive, threads=4) as topic, sparklog.open_topic(SMALL.parent) as plain:
        assert topic.read().num_rows == plain.read().num_rows
        child = os.fork()
        if not child:
            os._exit(0 if sparklog.open_topic(archive).read().num_rows == plain.read().num_rows else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_archive_that_is_replaced_is_read_anew(tmp_path: Path) -> None:
    path = as_tar(SMALL, tmp_path / "a.tar", "events-0")
    before = contents(path / "events-0", "read_uncommitted")
    as_tar(LOGS[0], tmp_path / "b.tar", "events-0").replace(path)
    assert contents(path / "events-0", "read_uncommitted") == contents(LOGS[0], "read_uncommitted") != before


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_segment_in_a_folder_is_no_silent_gap(suffix: str, tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    shutil.copytree(SMALL, folder)
    (log,) = folder.glob("*.log")
    packed = log.with_name(log.name + suffix)
    packed.write_bytes(b"anything")
    with sparklog.open_log(folder) as plain:
        assert plain.end_offset > 0
    log.unlink()
    with pytest.raises(StorageError, match=rf"\.log{suffix} is a compressed segment, .* decompress it"):
        sparklog.open_log(folder)
    with pytest.raises(StorageError, match="is a compressed segment"):
        sparklog.PartitionLog.open(folder)
