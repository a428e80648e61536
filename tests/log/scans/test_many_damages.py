"""Several damages of a log of magic 2 at once: each untouched batch is read, and none is invented or doubled."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.log import sound_batches
from sparklog.log.reader import open_log
from tests.build import write_partition
from tests.log.logs import only_log
from tests.log.scans.test_every_block import made_log, offsets_of

CODECS = ("none", "gzip", "zstd")
PLACES = st.lists(
    st.tuples(
        st.sampled_from(["zeroed", "flipped", "noise"]),
        st.floats(0, 1, exclude_max=True),
        st.sampled_from([1, 30, 61, 200, 512, 1500]),
    ),
    min_size=2,
    max_size=5,
)


def damaged(data: bytes, name: str, begin: int, size: int) -> bytes:
    """Return the data with other bytes at a place."""
    end, chance = min(begin + size, len(data)), random.Random(begin)
    octets = {
        "zeroed": bytes(size),
        "flipped": bytes(octet ^ 0xFF for octet in data[begin:end]),
        "noise": chance.randbytes(size),
    }[name]
    return data[:begin] + octets[: end - begin] + data[end:]


def is_untouched(found: bytes, batch: bytes) -> bool:
    """Return whether a batch is as it was, apart from its leader epoch, which no checksum covers."""
    return found[:12] + found[16:] == batch[:12] + batch[16:]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[bytes], list[list[int]]]]:
    found = {}
    for codec in CODECS:
        folder, batches = tmp_path_factory.mktemp(codec) / "events-0", made_log(2, codec, 40)
        write_partition(folder, batches, with_indexes=False)
        found[codec] = folder, batches, offsets_of(folder, batches)
    return found


# Always the same examples: no checksum covers base offsets, and a changed one may fit.
@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(codec=st.sampled_from(CODECS), places=PLACES)
def test_every_untouched_batch_is_read_wherever_a_log_is_damaged(
    logs: dict[str, tuple[Path, list[bytes], list[list[int]]]], codec: str, places: list[tuple[str, float, int]]
) -> None:
    folder, batches, held = logs[codec]
    whole = data = b"".join(batches)
    for name, share, size in places:
        data = damaged(data, name, int(share * len(whole)), size)
    untouched, start = list[int](), 0
    for batch, offsets in zip(batches, held, strict=True):
        untouched += offsets if is_untouched(data[start : start + len(batch)], batch) else []
        start += len(batch)
    only_log(folder).write_bytes(data)
    with open_log(folder, on_damage="skip") as log:
        found = log.read(columns=["offset", "key"])
        rows, log_end = log.damage().to_pylist(), log.end_offset
    offsets = found["offset"].to_pylist()
    assert offsets == untouched
    assert found["key"].to_pylist() == [b"%d" % offset for offset in offsets]
    lost = {offset for row in rows for offset in range(row["first_offset"], row["end_offset"]) if offset < log_end}
    assert lost == {offset for offset in range(log_end) if offset not in set(offsets)}


def test_rows_of_a_log_without_a_sound_batch_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sound_batches, "_ROWS_MAX", 4)
    folder, batches = tmp_path / "events-0", made_log(2, "none")
    write_partition(folder, [each[:-1] + bytes([each[-1] ^ 1]) for each in batches], with_indexes=False)
    with open_log(folder, on_damage="skip") as log:
        rows = log.damage().to_pylist()
    assert [row["position"] for row in rows] == [sum(map(len, batches[:number])) for number in range(4)]
    assert rows[-1]["position"] + rows[-1]["length_bytes"] == sum(map(len, batches))
