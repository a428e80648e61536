"""A backup of a source that is cut and written on at any call of it never has a mixture of two logs."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from sparklog.jobs.backup.checking import verify_backups
from sparklog.storage.base import Storage
from sparklog.storage.local import LocalStorage
from tests.growth import settle
from tests.jobs.backup.test_backup import back_up, restored
from tests.jobs.mirror.sources import batches_in
from tests.jobs.mirror.test_rewritten import BATCHES, Meddled, append, rewrite


@pytest.mark.parametrize(("held", "offset"), [(0, 2), (11, 20)])
def test_backup_of_a_source_that_is_rewritten_at_any_call_is_no_mixture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int, offset: int
) -> None:
    monkeypatch.setattr("sparklog.log.windows.WINDOW_BYTES", 150)
    for at in range(1, 10_000):
        source, target = tmp_path / str(at) / "source", tmp_path / str(at) / "set"
        append(source, held or BATCHES, "a")
        settle(source)
        target.mkdir()
        if held:
            back_up(source, target)
            append(source, BATCHES - held, "c")
        old = batches_in(source / "events-0")
        storage = Meddled(LocalStorage(), source, at, partial(rewrite, source, offset))
        manifest = back_up(source, target, source_storage=cast("Storage", storage))
        if storage.left[0] > 0:
            break
        assert list(verify_backups(target)) == []
        found = batches_in(restored(target, manifest.backup_id, tmp_path / str(at) / "restored") / "events-0")
        new = batches_in(source / "events-0")
        assert found in (old[: len(found)], new[: len(found)]), at
        assert [each.end_offset for each in manifest.partitions] == [2 * len(found)], at
        shutil.rmtree(tmp_path / str(at))
    assert at > 50, "all calls are passed over"
