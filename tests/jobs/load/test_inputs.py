"""Which files are found, and in what order."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.errors import InvalidOptionError, PathNotFoundError, SeglogError, StorageError
from sparklog.jobs.load.inputs import find_files
from sparklog.topic.places.discovery import places_at


def make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def names(folder: Path, *sources: Path | str) -> list[str]:
    return [str(Path(file.path).relative_to(folder)) for file in find_files(places_at(sources or [folder]))]


def test_files_come_sorted_and_hidden_names_are_passed_over(tmp_path: Path) -> None:
    make(tmp_path, "b/2.csv", "b/10.csv", "a.json", "_SUCCESS", ".a.csv.crc", "_seglog/ledger.jsonl", "c.PARQUET")
    make(tmp_path, ".hidden/x.csv")
    assert names(tmp_path) == ["a.json", "b/10.csv", "b/2.csv", "c.PARQUET"]


def test_sources_come_in_their_order_and_a_file_once(tmp_path: Path) -> None:
    make(tmp_path, "b.csv", "a.csv", "sub/c.csv", "_SUCCESS")
    assert names(tmp_path, tmp_path / "sub", f"{tmp_path}/*", tmp_path / "a.csv") == ["sub/c.csv", "a.csv", "b.csv"]


@pytest.mark.parametrize(
    ("name", "kind", "codec"),
    [
        ("a.parquet", "parquet", None),
        ("a.snappy.parquet", "parquet", None),
        ("a.arrows", "arrow", None),
        ("a.csv.gz", "csv", "gzip"),
        ("a.ndjson.zst", "json", "zstd"),
    ],
)
def test_names_say_the_format(tmp_path: Path, name: str, kind: str, codec: str | None) -> None:
    make(tmp_path, name)
    (found,) = find_files(places_at(tmp_path / name))
    assert (found.format, found.codec, found.size_bytes) == (kind, codec, 1)


def test_a_format_that_is_given_counts_more_than_names(tmp_path: Path) -> None:
    make(tmp_path, "a.txt", "b")
    assert [file.format for file in find_files(places_at(tmp_path), "json")] == ["json", "json"]


def test_folders_named_as_hive_does_give_columns(tmp_path: Path) -> None:
    make(tmp_path, "topic=a%2Fb/partition=3/d=__HIVE_DEFAULT_PARTITION__/x.csv")
    (found,) = find_files(places_at(tmp_path))
    assert found.columns[-3:] == (("topic", "a/b"), ("partition", "3"), ("d", None))


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("readme.txt", InvalidOptionError, r"readme.txt is of an unknown kind.*\.parquet.*pattern"),
        ("a.parquet.gz", InvalidOptionError, r"a.parquet.gz is compressed as a whole"),
        ("_SUCCESS", PathNotFoundError, "no file to load in"),
        ("meta.properties", InvalidOptionError, "has logs of Kafka.*sparklog copy"),
        ("logs/events-0/00000000000000000000.index", InvalidOptionError, "events-0 has logs of Kafka.*sparklog copy"),
    ],
)
def test_a_folder_without_anything_to_load_says_what_it_has(
    tmp_path: Path, name: str, error: type[SeglogError], message: str
) -> None:
    make(tmp_path, name)
    with pytest.raises(error, match=message):
        find_files(places_at(tmp_path))


def test_a_folder_within_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").symlink_to(tmp_path)
    with pytest.raises(StorageError, match="round in a circle"):
        find_files(places_at(tmp_path))


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").symlink_to(tmp_path / "none")
    with pytest.raises(StorageError, match=r"a.csv: it is a symbolic link that leads nowhere"):
        find_files(places_at(tmp_path))


def test_nothing_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(PathNotFoundError, match="none"):
        find_files(places_at(tmp_path / "none.csv"))
    with pytest.raises(PathNotFoundError, match=r"no such file or folder: .*none$"):
        find_files(places_at(tmp_path / "none"))
    with pytest.raises(PathNotFoundError, match="nothing matches"):
        find_files(places_at(f"{tmp_path}/*.csv"))
