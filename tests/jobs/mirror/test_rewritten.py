"""A source that is cut and written on at any call of a copy never leaves a mixture of two logs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

import pyarrow as pa
import pytest

import sparklog
from sparklog.storage.base import Storage
from sparklog.storage.local import LocalStorage
from tests.growth import settle
from tests.jobs.mirror.sources import CONFIG, assert_equal, batches_in, mirror_into

BATCHES = 12


class Meddled:
    """A storage of this machine or a file of it: something happens before the n-th call about the files of a folder."""

    def __init__(self, inner: Any, root: Path, at: int, happens: Callable[[], object]) -> None:
        self._inner, self._root, self._happens, self.left = inner, root, happens, [at]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._meddling(name, found) if callable(found) else found

    def _meddling(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def meddled(*arguments: Any) -> Any:
            path = getattr(self._inner, "path", "") or str(arguments[0])
            if Path(path).is_relative_to(self._root) and name not in ("absolute", "beneath", "close"):
                self.left[0] -= 1
                if not self.left[0]:
                    self._happens()
            result = call(*arguments)
            if name != "open":
                return result
            file = Meddled(result, self._root, 0, self._happens)
            file.left = self.left
            return file

        return meddled

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._inner.close()


def append(source: Path, count: int, word: str) -> None:
    """Append batches of one size."""
    with sparklog.PartitionLog.open(str(source / "events-0"), CONFIG) as log:
        for number in range(count):
            values = [f"{word}{number:02}".encode() * 20] * 2
            log.append(pa.table({"key": pa.array([b"k"] * 2, pa.binary()), "value": pa.array(values, pa.binary())}))


def rewrite(source: Path, offset: int, word: str = "b") -> None:
    """Cut the log, and write other batches of the same sizes in the same leader epoch."""
    sparklog.truncate_to(source / "events-0", offset)
    append(source, BATCHES + 4 - offset // 2, word)


def begin(folder: Path, held: int) -> Path:
    """Make a source of which a mirror has the first batches."""
    source = folder / "source"
    append(source, held or BATCHES, "a")
    settle(source)
    if held:
        mirror_into(source, folder / "mirror")
        append(source, BATCHES - held, "c")
    return source


@pytest.mark.parametrize(("held", "offset"), [(0, 2), (3, 20), (11, 2)])
def test_mirror_of_a_source_that_is_rewritten_at_any_call_is_no_mixture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int, offset: int
) -> None:
    monkeypatch.setattr("sparklog.log.windows.WINDOW_BYTES", 150)
    for at in range(1, 10_000):
        source, target = begin(tmp_path / str(at), held), tmp_path / str(at) / "mirror"
        old = batches_in(source / "events-0")
        storage = Meddled(LocalStorage(), source, at, partial(rewrite, source, offset))
        mirror_into(source, target, source_storage=cast("Storage", storage))
        if storage.left[0] > 0:
            break
        new, found = batches_in(source / "events-0"), batches_in(target / "events-0")
        assert found in (old[: len(found)], new[: len(found)]), at
        mirror_into(source, target)
        assert_equal(source, target)
        assert batches_in(target / "events-0") == new
        shutil.rmtree(tmp_path / str(at))
    assert at > 50, "all calls are passed over"
