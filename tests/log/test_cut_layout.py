"""A layout that is cut at an offset: it ends there, with the position of the end."""

from __future__ import annotations

from pathlib import Path

from sparklog.log.layout import cut_at, read_layout
from sparklog.log.scans.of_range import scan_range
from sparklog.log.transactions import last_stable_offset
from tests.build import Record, control_batch, v2_batch, write_partition
from tests.log.logs import batches
from tests.places import folder_at


def test_log_that_is_cut_ends_with_the_batch_before_and_knows_its_position(tmp_path: Path) -> None:
    made = batches(6)
    write_partition(tmp_path / "events-0", made, segment_bytes=3 * len(made[0]) + 10)
    whole = read_layout(folder_at(tmp_path / "events-0"))
    assert len(whole.segments) > 1
    for count in range(7):
        cut = cut_at(whole, 10 * count)
        first = cut.segments[-1].base_offset // 10 if count else 0
        assert (cut.end.offset, cut.end.position) == (10 * count, sum(map(len, made[first:count])))
        found = [
            n for _, window in scan_range(cut, 0, 10 * count) for n in window.headers.column("base_offset").tolist()
        ]
        assert found == list(range(0, 10 * count, 10))
    assert cut_at(whole, 60) is whole


def test_transaction_that_ends_behind_the_cut_is_open_before_it(tmp_path: Path) -> None:
    data = v2_batch([Record(0, 0, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    write_partition(tmp_path / "events-0", [data, control_batch("commit", 1, producer_id=7, producer_epoch=0)])
    whole = read_layout(folder_at(tmp_path / "events-0"))
    assert (last_stable_offset(whole), last_stable_offset(cut_at(whole, 1))) == (2, 0)
