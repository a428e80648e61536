"""What every storage must do, as one set of tests: a storage is listed in `STORAGES`, and is tested by that.

Each test is given an empty folder of the storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from sparklog.errors import LockedError, PathNotFoundError, StorageError
from sparklog.storage.base import Name, WritableStorage
from sparklog.storage.local_writing import LocalWritableStorage
from tests.storage.memory import MemoryStorage
from tests.storage.wrapping import WrappedStorage


class Place(NamedTuple):
    """An empty folder, and the storage that it is in."""

    storage: WritableStorage
    folder: str

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def write(self, name: str, data: bytes) -> str:
        with self.storage.open_for_append(self.path(name)) as file:
            file.append(data)
        return self.path(name)


@contextmanager
def local(tmp_path: Path) -> Iterator[Place]:
    yield Place(LocalWritableStorage(), str(tmp_path))


@contextmanager
def wrapped(tmp_path: Path) -> Iterator[Place]:
    yield Place(WrappedStorage(), str(tmp_path))


@contextmanager
def memory(tmp_path: Path) -> Iterator[Place]:
    storage = MemoryStorage()
    storage.make_folder(str(tmp_path))
    yield Place(storage, str(tmp_path))


STORAGES: Final = (local, wrapped, memory)


class Conformance:
    """The tests; `tests/storage/test_conformance.py` runs them over every storage."""

    @pytest.fixture(params=STORAGES, ids=lambda make: make.__name__)
    def place(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
        with request.param(tmp_path) as place:
            yield place

    def test_time_of_a_file_is_that_of_its_last_write(self, place: Place) -> None:
        place.write("f", b"0123456789")
        with place.storage.open(place.path("f")) as file:
            before = file.modified_ns()
            file.read(0, 10)
            assert file.modified_ns() == before
            while file.modified_ns() == before:
                place.write("f", b"0")
            assert file.modified_ns() > before

    def test_read_is_short_only_where_the_file_ends(self, place: Place) -> None:
        place.write("f", b"0123456789")
        room = memoryview(bytearray(4))
        with place.storage.open(place.path("f")) as file:
            assert [bytes(file.read(at, count)) for at, count in ((3, 4), (8, 100), (10, 5))] == [b"3456", b"89", b""]
            assert (file.read_into(3, room), bytes(room)) == (4, b"3456")
            assert (file.read_into(8, room), file.read_into(10, room)) == (2, 0)
            assert (file.size_bytes(), file.data_position(0), file.data_position(10)) == (10, 0, None)

    def test_file_that_is_open_shows_what_is_appended_since(self, place: Place) -> None:
        place.write("f", b"1")
        with place.storage.open(place.path("f")) as file:
            place.write("f", b"2")
            assert (file.size_bytes(), bytes(file.read(0, 9))) == (2, b"12")

    def test_what_is_not_there_is_named(self, place: Place) -> None:
        path = place.path("nowhere")
        for call in (place.storage.open, place.storage.entries, place.storage.names, place.storage.sync_folder):
            with pytest.raises(PathNotFoundError, match="nowhere"):
                call(path)
        with pytest.raises(PathNotFoundError, match="nowhere"):
            place.storage.rename(path, place.path("new"))
        assert place.storage.read_small(path) is None
        assert place.storage.identity(path) is None
        assert not place.storage.is_folder(path)

    def test_folder_is_no_file_and_a_file_no_folder(self, place: Place) -> None:
        place.storage.make_folder(place.path("folder"))
        path = place.write("f", b"")
        with pytest.raises(PathNotFoundError, match="not a regular file"):
            place.storage.open(place.path("folder"))
        for listing in (place.storage.entries, place.storage.names):
            with pytest.raises(StorageError, match="not a folder"):
                listing(path)

    def test_both_listings_are_sorted_and_have_the_same_names(self, place: Place) -> None:
        for name in ("b", "a.log", "B"):
            place.write(name, b"123")
        place.storage.make_folder(place.path("a/within"))
        entries = place.storage.entries(place.folder)
        assert [(each.name, each.is_folder, each.is_file, each.size_bytes) for each in entries] == [
            ("B", False, True, 3),
            ("a", True, False, 0),
            ("a.log", False, True, 3),
            ("b", False, True, 3),
        ]
        assert place.storage.names(place.folder) == [Name(each.name, each.is_folder) for each in entries]

    def test_file_grows_at_its_end_and_is_changed_in_place(self, place: Place) -> None:
        place.write("f", b"12")
        with place.storage.open_for_append(place.path("f")) as file:
            for data in (b"34", bytearray(b"5"), memoryview(b"6")):
                file.append(data)
            file.write_at(0, b"x")
            file.truncate(5)
            file.append(b"7")
            file.sync()
            assert file.size_bytes() == 6
        assert place.storage.read_small(place.path("f")) == b"x23457"

    def test_file_that_is_made_longer_beforehand_goes_on_where_it_was(self, place: Place) -> None:
        with place.storage.open_for_append(place.path("f")) as file:
            file.append(b"1")
            file.preallocate(4)
            file.append(b"2")
            assert file.size_bytes() == 2
        assert place.storage.read_small(place.path("f")) == b"12\0\0"

    def test_part_of_another_file_is_appended_or_refused_where_that_is_shorter(self, place: Place) -> None:
        source = place.write("source", b"0123456789")
        with place.storage.open_for_append(place.path("f")) as file:
            file.append_from(source, 2, 3)
            with pytest.raises(StorageError, match=r"ends .* bytes early"):
                file.append_from(source, 8, 3)
        assert (place.storage.read_small(place.path("f")) or b"")[:3] == b"234"

    def test_rename_takes_the_place_of_what_is_there(self, place: Place) -> None:
        for name, data in (("old", b"old"), ("new", b"new")):
            place.write(name, data)
        place.storage.rename(place.path("new"), place.path("old"))
        assert place.storage.names(place.folder) == [Name("old", False)]
        assert place.storage.read_small(place.path("old")) == b"new"

    def test_removing_and_making_twice_is_once(self, place: Place) -> None:
        place.write("f", b"")
        for _ in range(2):
            place.storage.make_folder(place.path("a/b"))
            place.storage.remove(place.path("f"))
            place.storage.remove_folder(place.path("nothing"))
        place.storage.remove_folder(place.path("a"))
        assert place.storage.is_folder(place.path("a/b"))
        place.storage.remove_folder(place.path("a/b"))
        assert place.storage.entries(place.path("a")) == []

    def test_everything_can_be_synced(self, place: Place) -> None:
        paths = [place.write(name, b"x") for name in ("f", "g")]
        place.storage.sync_files(paths)
        place.storage.sync_folder(place.folder)
        assert [place.storage.read_small(path) for path in paths] == [b"x", b"x"]

    def test_identity_is_that_of_the_file_by_whatever_name(self, place: Place) -> None:
        first, other = place.write("f", b""), place.write("g", b"")
        identity = place.storage.identity(first)
        assert identity is not None
        assert identity == place.storage.identity(f"{place.folder}/./f") != place.storage.identity(other)
        place.storage.rename(first, place.path("h"))
        assert place.storage.identity(place.path("h")) == identity

    def test_stamp_tells_that_a_file_was_changed(self, place: Place) -> None:
        path = place.write("f", b"12")
        stamp = place.storage.stamp(path)
        assert stamp is not None
        assert (stamp.identity, stamp.size_bytes) == (place.storage.identity(path), 2)
        assert place.storage.stamp(path) == stamp
        with place.storage.open_for_append(path) as file:
            file.append(b"3")
        assert place.storage.stamp(path) != stamp
        assert place.storage.stamp(place.path("none")) is None
        assert place.storage.stamp(place.folder) is not None

    def test_path_has_one_spelling(self, place: Place) -> None:
        assert place.storage.absolute(f"{place.folder}/a/../b/.") == place.path("b")
        assert place.storage.real(place.folder) == place.folder
        assert not place.storage.is_link(place.folder)

    def test_lock_is_one_writers_or_shared_by_those_who_ask_for_that(self, place: Place) -> None:
        lock: Callable[..., object] = place.storage.lock
        path = place.path(".lock")
        with place.storage.lock(path, 1):
            for is_shared in (False, True):
                with pytest.raises(LockedError):
                    lock(path, 0, is_shared=is_shared)
        with place.storage.lock(path, 0, is_shared=True), place.storage.lock(path, 0, is_shared=True) as second:
            second.close()
            second.close()
            with pytest.raises(LockedError):
                lock(path, 0)
        place.storage.lock(path, 0).close()

    def test_folder_is_claimed_once(self, place: Place) -> None:
        assert place.storage.claimed_as(place.folder) is None
        with place.storage.claim(place.folder, "mine"):
            assert place.storage.claimed_as(f"{place.folder}/.") == "mine"
            with pytest.raises(LockedError, match="is open in this process already"):
                place.storage.claim(place.folder, "mine")
        place.storage.claim(place.folder, "mine").close()

    def test_storage_says_what_it_can_do(self, place: Place) -> None:
        assert place.storage.scheme
        assert place.storage.capabilities.can_lock
