"""Files that are asked several things are opened once, and closed when they are forgotten."""

from __future__ import annotations

import pytest

from sparklog.errors import PathNotFoundError
from sparklog.storage.kept_files import KeptFiles
from tests.storage.counting import counting_storage
from tests.storage.memory import MemoryStorage

PATH = "/logs/a"


def test_file_is_opened_once_until_it_is_forgotten() -> None:
    storage, calls = counting_storage(MemoryStorage())
    storage.make_folder("/logs")
    with storage.open_for_append(PATH) as written:
        written.append(b"first")
    kept = KeptFiles()
    for _ in range(3):
        with kept.open(storage, PATH) as file:
            assert bytes(file.read(0, 10)) == b"first"
    assert calls["open"] == 1
    storage.remove(PATH)
    with storage.open_for_append(PATH) as written:
        written.append(b"second")
    kept.forget(PATH)
    with kept.open(storage, PATH) as file:
        assert bytes(file.read(0, 10)) == b"second"
    kept.close()
    assert calls["open"] == 2
    assert calls["close"] == 2


def test_small_file_is_looked_at_and_read_once_and_by_place() -> None:
    storage, calls = counting_storage(MemoryStorage())
    storage.make_folder("/logs")
    with storage.open_for_append(PATH) as written:
        written.append(b"0123456789")
    kept = KeptFiles()
    calls.clear()
    for position, length, wanted in ((8, 2, b"89"), (0, 3, b"012"), (4, 99, b"456789"), (10, 4, b""), (12, 4, b"")):
        with kept.open(storage, PATH) as file:
            assert file.size_bytes() == 10
            assert bytes(file.read(position, length)) == wanted
            room = bytearray(length)
            assert file.read_into(position, memoryview(room)) == len(wanted)
            assert bytes(room) == wanted.ljust(length, b"\0")
            assert file.read_into(position, memoryview(b"")) == 0
    assert calls == {"open": 1, "size_bytes": 1, "read": 1, "bytes read": 10}


def test_large_file_is_read_where_it_is_asked_for() -> None:
    storage, calls = counting_storage(MemoryStorage())
    storage.make_folder("/logs")
    data = bytes(range(256)) * 256
    with storage.open_for_append(PATH) as written:
        written.append(data)
    kept = KeptFiles()
    calls.clear()
    with kept.open(storage, PATH) as file:
        assert bytes(file.read(1000, 10)) == data[1000:1010]
        room = bytearray(10)
        assert file.read_into(len(data) - 4, memoryview(room)) == 4
        assert bytes(room[:4]) == data[-4:]
        assert file.path == PATH
        assert file.data_position(5) == 5
    assert calls["bytes read"] == 14


def test_file_that_is_not_there_is_asked_for_again() -> None:
    storage, calls = counting_storage(MemoryStorage())
    kept = KeptFiles()
    for _ in range(2):
        with pytest.raises(PathNotFoundError):
            kept.open(storage, PATH)
    assert calls["open"] == 2


def test_of_many_files_those_that_were_used_last_stay_open() -> None:
    storage, calls = counting_storage(MemoryStorage())
    storage.make_folder("/logs")
    for number in range(100):
        with storage.open_for_append(f"/logs/{number}") as written:
            written.append(b"%d" % number)
    written_closed = calls["close"]
    kept = KeptFiles()
    for _ in range(2):
        for number in range(100):
            for name in ("0", str(number)):
                with kept.open(storage, f"/logs/{name}") as file:
                    assert bytes(file.read(0, 10)) == name.encode()
            assert calls["open"] - (calls["close"] - written_closed) <= 16
    assert calls["open"] < 200
    kept.close()
    assert calls["open"] == calls["close"] - written_closed
