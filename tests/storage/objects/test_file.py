"""Reading one object by ranges: the right bytes in any order, read ahead or not."""

from __future__ import annotations

import multiprocessing
import random
from multiprocessing.queues import Queue

import pytest

from sparklog.errors import SeglogError, StorageError
from sparklog.storage.base import ReadableFile
from sparklog.storage.objects import file as file_module
from sparklog.storage.objects.stores import store_of
from sparklog.storage.registry import locate
from tests.storage.objects.stores import counted, new_root, put

MIB = 1 << 20


def opened(data: bytes) -> ReadableFile:
    root = new_root()
    put(root, "f", data)
    storage, path = locate(f"{root}/f")
    return storage.open(path)


@pytest.mark.parametrize("size_bytes", [0, 1, 1 << 16, (1 << 18) + 1, 9 * MIB])
def test_any_read_has_the_bytes_of_the_object(size_bytes: int) -> None:
    choose = random.Random(size_bytes)
    data = choose.randbytes(size_bytes)
    with opened(data) as file:
        for _ in range(60):
            position, length = choose.randrange(size_bytes + 10), choose.choice((0, 1, 61, 1 << 16, 1 << 19, 5 * MIB))
            assert len(file.read(position, length)) > 0 or not data[position : position + length]
            assert data[position : position + length].startswith(bytes(file.read(position, length)))
            room = memoryview(bytearray(length))
            filled = file.read_into(position, room)
            assert bytes(room[:filled]) == data[position : position + length]
        assert (file.size_bytes(), file.data_position(0)) == (size_bytes, 0 if size_bytes else None)


def test_scan_reads_ahead_and_fetches_each_byte_once() -> None:
    data = random.Random(1).randbytes(40 * MIB)
    with opened(data) as file, counted() as requests:
        position, room, found = 0, memoryview(bytearray(4 * MIB)), []
        while count := file.read_into(position, room):
            found.append(bytes(room[:count]))
            # As a scan does, which begins again with the batch that its last piece has cut.
            position += count if count < len(room) else count - 1000
            found[-1] = found[-1] if count < len(room) else found[-1][:-1000]
        assert b"".join(found) == data
        assert requests.count <= 13


def test_small_reads_near_each_other_are_one_request() -> None:
    with opened(bytes(2 * MIB)) as file, counted() as requests:
        for position in range(MIB, MIB + 60_000, 61):
            file.read(position, 61)
        assert requests.count == 1


def test_bytes_that_are_kept_have_a_bound() -> None:
    for _ in range(3):
        with opened(random.Random(2).randbytes(30 * MIB)) as file:
            for position in range(0, 30 * MIB, 1 << 16):
                file.read(position, 100)
    kept = file_module._spans
    assert sum(len(each.data) for each in kept._kept.values()) == kept._ours.number <= 1 << 26
    assert sum(map(len, kept._starts.values())) == len(kept._kept)


def _ask(found: Queue[str], root: str) -> None:
    try:
        locate(f"{root}/f").storage.names(f"{root}/f")
        found.put("answered")
    except SeglogError as error:
        found.put(f"{type(error).__name__}: {error}")


@pytest.mark.processes
def test_forked_process_of_one_that_has_read_gets_an_error_at_once() -> None:
    opened(b"x").close()
    context = multiprocessing.get_context("fork")
    found = context.Queue()
    child = context.Process(target=_ask, args=(found, new_root()))
    child.start()
    assert "StorageError: [SEGLOG_STORAGE] this process was forked" in found.get(timeout=20)
    child.join(20)


def test_answer_that_is_shorter_than_listed_is_an_error() -> None:
    root = new_root()
    put(root, "f", bytes(1000))
    storage, path = locate(f"{root}/f")
    with storage.open(path) as file:
        file._stamp = file._stamp._replace(size_bytes=2000)  # type: ignore[attr-defined]
        with pytest.raises(StorageError, match=r"memory://.*/f: 1000 bytes came of the 2000 at position 0"):
            file.read(0, 2000)


def test_store_is_opened_once_for_a_process() -> None:
    root = new_root()
    assert store_of(root, ()) is store_of(root, ())
