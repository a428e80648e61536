"""Reads that go on after damage: every sound batch is given, and rows say what is lost."""

from __future__ import annotations

import random
from itertools import accumulate
from pathlib import Path

import pytest

from sparklog.errors import CorruptLogError, InvalidOptionError
from sparklog.log.damage_rows import DamagedStretch
from sparklog.log.reader import open_log
from tests.build import Record, control_batch, legacy_wrapper, message_set, v2_batch, write_partition
from tests.log.logs import batch, batches, only_log


def overwrite(folder: Path, position: int, octets: bytes) -> None:
    with only_log(folder).open("r+b") as file:
        file.seek(position)
        file.write(octets)


@pytest.mark.parametrize("lost", range(5))
def test_every_other_batch_is_read_whichever_one_is_damaged(tmp_path: Path, lost: int) -> None:
    folder, made = tmp_path / "events-0", batches(5)
    write_partition(folder, made)
    overwrite(folder, sum(map(len, made[:lost])), b"\xee" * len(made[lost]))
    with open_log(folder, on_damage="skip") as log:
        found = log.read(columns="offset")["offset"].to_pylist()
        assert found == [offset for offset in range(50) if offset // 10 != lost]
        (row,) = log.damage().to_pylist()
    assert (row["position"], row["length_bytes"]) == (sum(map(len, made[:lost])), len(made[lost]))
    assert row["first_offset"] == 10 * lost
    assert row["end_offset"] == (10 * lost + 10 if lost < 4 else 40)
    assert (row["topic"], row["partition"], row["file"]) == ("events", 0, str(only_log(folder)))


def test_damage_is_an_error_unless_it_is_skipped(tmp_path: Path) -> None:
    folder, made = tmp_path / "events-0", batches(3)
    write_partition(folder, made)
    overwrite(folder, len(made[0]) + 70, b"\xee")
    with open_log(folder) as log:
        with pytest.raises(CorruptLogError):
            log.read()
        parts = list(log.batches_and_damage())
        assert [part.first_offset for part in parts if isinstance(part, DamagedStretch)] == [10]
        assert log.read(on_damage="skip").num_rows == 20
        assert [raw.base_offset for raw in log.raw_batches(on_damage="skip")] == [0, 20]


@pytest.mark.parametrize("lost", range(6))
def test_times_are_found_past_damage(tmp_path: Path, lost: int) -> None:
    folder, made = tmp_path / "events-0", batches(6)
    write_partition(folder, made, with_indexes=False)
    overwrite(folder, sum(map(len, made[:lost])), b"\xee" * 40)
    with open_log(folder, on_damage="skip") as log:
        for offset in range(60):
            there = [each for each in range(offset, 60) if each // 10 != lost]
            assert log.offset_for_time(1000 + offset) == (there[0] if there else None)
            found = log.read(columns="offset", where=f"timestamp >= {1000 + offset}")["offset"].to_pylist()
            assert found == there


def test_damage_of_all_of_the_last_segment_is_told(tmp_path: Path) -> None:
    folder, made = tmp_path / "events-0", batches(3)
    write_partition(folder, made)
    only_log(folder).write_bytes(b"\xee" * 5000)
    with open_log(folder, on_damage="skip") as log:
        assert log.read().num_rows == 0
        (row,) = log.damage().to_pylist()
        assert (row["position"], row["length_bytes"], row["first_offset"]) == (0, 5000, 0)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_best_effort_gives_the_records_that_decode_of_a_batch_and_marks_them(tmp_path: Path, codec: str) -> None:
    folder = tmp_path / "events-0"
    # Longer than two blocks of zstd, whose blocks are the longest.
    records = [Record(n, timestamp=n, value=random.Random(n).randbytes(40_000)) for n in range(10)]
    made = [batches(1)[0], v2_batch(records, base_offset=10, codec=codec), batches(1, 20)[0]]
    write_partition(folder, made)
    overwrite(folder, len(made[0]) + 263_000, b"\xee" * 50_000)
    with open_log(folder) as log:
        found = log.read(columns=["offset", "damaged", "value"], on_damage="best_effort")
        skipped = log.read(columns=["offset"], on_damage="skip")["offset"].to_pylist()
        with pytest.raises(InvalidOptionError, match="damaged"):
            log.read(columns=["damaged"], on_damage="skip")
    assert skipped == [*range(10), *range(20, 30)]
    given = found.filter(found["damaged"])["offset"].to_pylist()
    assert given == list(range(10, 10 + len(given)))
    assert 4 <= len(given) < 10
    values = found.filter(found["damaged"])["value"].to_pylist()
    assert values[:4] == [record.value for record in records[:4]]
    assert found["offset"].to_pylist() == [*range(10), *given, *range(20, 30)]


@pytest.mark.parametrize("magic", [0, 1])
def test_best_effort_gives_the_right_messages_of_a_damaged_wrapper_with_their_offsets(
    tmp_path: Path, magic: int
) -> None:
    folder, records = tmp_path / "events-0", [Record(n, value=random.Random(n).randbytes(200)) for n in range(10)]
    made = [
        legacy_wrapper(records, magic=magic, codec="snappy", base_offset=base, timestamp=5, log_append_time=magic > 0)
        for base in (0, 10, 20)
    ]
    write_partition(folder, made)
    overwrite(folder, len(made[0]) + 1200, b"\xee" * 30)
    with open_log(folder, on_damage="best_effort") as log:
        found = log.read(columns=["offset", "damaged", "value", "timestampType"])
    given = found.filter(found["damaged"])
    assert given["offset"].to_pylist() == list(range(10, 10 + given.num_rows))
    assert 3 <= given.num_rows < 10
    assert given["value"].to_pylist() == [record.value for record in records[: given.num_rows]]
    assert set(found["timestampType"].to_pylist()) == {1 if magic else -1}
    assert found.num_rows == 20 + given.num_rows


def test_batches_of_another_log_inside_a_value_are_never_read(tmp_path: Path) -> None:
    """The values are segments of a log with the same offsets, so that each batch in them would fit."""
    folder = tmp_path / "events-0"
    made = []
    for base in range(0, 60, 3):
        carried = [b"".join(batch(base + n, 1) for n in range(3)), batch(base + 1, 1), b"".join(batches(3, 500))]
        records = [Record(n, timestamp=n, key=b"carrier", value=value) for n, value in enumerate(carried)]
        made.append(v2_batch(records, base_offset=base))
    write_partition(folder, made)
    data = only_log(folder).read_bytes()
    starts = list(accumulate(map(len, made), initial=0))
    for lost in range(len(made)):
        for size in (40, 61, 100, 300):
            only_log(folder).write_bytes(data[: starts[lost]] + bytes(size) + data[starts[lost] + size :])
            with open_log(folder, on_damage="skip") as log:
                found = log.read(columns=["offset", "key"])
            assert set(found["key"].to_pylist()) == {b"carrier"}, (lost, size)
            assert found["offset"].to_pylist() == [n for n in range(60) if n // 3 != lost], (lost, size)


def test_transaction_whose_marker_is_lost_is_left_out_unless_it_is_kept(tmp_path: Path) -> None:
    folder, fields = tmp_path / "events-0", {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    made = [
        batch(0, base_sequence=0, **fields),
        control_batch("commit", 10, 7),
        batch(11, base_sequence=10, **fields),
        control_batch("abort", 21, 7),
        batch(22, base_sequence=20, **fields),
        control_batch("commit", 32, 7),
        batch(33),
    ]
    write_partition(folder, made)
    data = only_log(folder).read_bytes()
    starts = list(accumulate(map(len, made), initial=0))
    both = [*range(10), *range(22, 32), *range(33, 43)]
    for lost, dropped in ((1, range(10)), (3, ()), (5, range(22, 32))):
        overwrite(folder, 0, data)
        overwrite(folder, starts[lost] + 70, b"\xee\xee")
        with open_log(folder, on_damage="skip") as log:
            assert log.last_stable_offset == 43
            found = log.read(columns="offset", isolation_level="read_committed")["offset"].to_pylist()
            assert found == [offset for offset in both if offset not in dropped], lost
            kept = log.read(columns="offset", isolation_level="read_committed", unknown="keep")["offset"].to_pylist()
            assert set(both) <= set(kept), lost
            reasons = log.damage(isolation_level="read_committed")["reason"].to_pylist()
            assert sum("marker" in reason for reason in reasons) == 1, lost


def test_fault_that_only_decoding_finds_costs_its_batch_alone(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    made = [batch(0), batch(10, record_count=11), batch(20)]
    write_partition(folder, made)
    with open_log(folder, on_damage="skip") as log:
        assert log.read(columns="offset")["offset"].to_pylist() == [*range(10), *range(20, 30)]
        (row,) = log.damage().to_pylist()
    assert (row["position"], row["first_offset"], row["end_offset"]) == (len(made[0]), 10, 20)


def test_one_warning_counts_what_is_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, made = tmp_path / "events-0", batches(9)
    write_partition(folder, made)
    for lost in (2, 5):
        overwrite(folder, sum(map(len, made[:lost])) + 70, b"\xee\xee")
    with open_log(folder) as log:
        list(log.batches(on_damage="skip"))
    (message,) = [record.message for record in caplog.records]
    assert "2 damaged stretches" in message
    assert "20 offsets" in message


@pytest.mark.parametrize("magic_after", [None, 1, 2])
def test_messages_that_a_damaged_wrapper_left_have_no_offsets_of_their_own(
    tmp_path: Path, magic_after: int | None
) -> None:
    folder, records = tmp_path / "events-0", [Record(n, key=b"%d" % n) for n in range(8)]
    wrapper = legacy_wrapper(records[:1])
    rest = legacy_wrapper(records, base_offset=1, value=bytes(100) + message_set(records[1:]))
    after = {None: b"", 1: legacy_wrapper(records, base_offset=9), 2: v2_batch(records, base_offset=9)}[magic_after]
    write_partition(folder, [wrapper, rest, after] if after else [wrapper, rest])
    overwrite(folder, len(wrapper), b"\xee" * 60)
    with open_log(folder, on_damage="skip") as log:
        assert log.read(columns="offset")["offset"].to_pylist() == [0, *(range(9, 17) if after else ())]


def test_plain_messages_are_read_up_to_the_end_of_a_log_without_wrappers(tmp_path: Path) -> None:
    folder, records = tmp_path / "events-0", [Record(n, key=b"%d" % n) for n in range(8)]
    made = [message_set(records[n : n + 1]) for n in range(8)]
    write_partition(folder, made)
    overwrite(folder, len(made[0]), b"\xee" * 10)
    with open_log(folder, on_damage="skip") as log:
        assert log.read(columns="offset")["offset"].to_pylist() == [0, *range(2, 8)]
