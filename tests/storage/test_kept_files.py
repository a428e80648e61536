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


def test_file_that_is_not_there_is_asked_for_again() -> None:
    storage, calls = counting_storage(MemoryStorage())
    kept = KeptFiles()
    for _ in range(2):
        with pytest.raises(PathNotFoundError):
            kept.open(storage, PATH)
    assert calls["open"] == 2
