"""Damage of every block of a log in turn: each untouched batch is read, none is invented, and rows say what is lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from sparklog.log.damage_rows import DamagedStretch
from sparklog.log.reader import open_log
from tests.build import CODEC_IDS, LEGACY_CODECS, Record, legacy_message, legacy_wrapper, v2_batch, write_partition
from tests.log.logs import only_log

BLOCK_BYTES = 512
FORMATS = [(2, codec) for codec in CODEC_IDS if "broken" not in codec]
FORMATS += [(magic, each) for magic in (0, 1) for each in LEGACY_CODECS]
FORMATS.remove((1, "lz4-broken-checksum"))

Edit = Callable[[bytes, int, int], bytes]


def _replaced(data: bytes, begin: int, end: int, octets: bytes) -> bytes:
    return data[:begin] + octets[: end - begin] + data[end:]


EDITS: dict[str, Edit] = {
    "zeroed": lambda data, begin, end: _replaced(data, begin, end, bytes(BLOCK_BYTES)),
    "flipped": lambda data, begin, end: _replaced(data, begin, end, bytes(b ^ 0xFF for b in data[begin:end])),
    "cut out": lambda data, begin, end: data[:begin] + data[end:],
    "doubled": lambda data, begin, end: data[:end] + data[begin:],
    "noise": lambda data, begin, end: _replaced(data, begin, end, random.Random(begin).randbytes(BLOCK_BYTES)),
    "from before": lambda data, begin, end: _replaced(data, begin, end, (data * 2)[len(data) + begin - 1536 :]),
    "from after": lambda data, begin, end: _replaced(data, begin, end, (data * 2)[begin + 1536 :]),
}


def made_log(magic: int, codec: str, count: int = 16) -> list[bytes]:
    """Make batches of 1 to 8 records, of which some are as small as a header, and some longer than a block."""
    chance, offset, found = random.Random(count), 0, list[bytes]()
    for _ in range(count):
        records = [
            Record(
                n,
                timestamp=5000 + offset + n,
                key=b"%d" % (offset + n),
                value=chance.randbytes(chance.choice([3, 150])),
            )
            for n in range(chance.choice([1, 1, 2, 8]))
        ]
        if magic == 2:
            found.append(v2_batch(records, base_offset=offset, codec=codec))
        elif codec == "none":
            found += [legacy_message(offset + n, each.key, each.value, magic=magic) for n, each in enumerate(records)]
        else:
            found.append(legacy_wrapper(records, base_offset=offset, codec=codec, magic=magic))
        offset += len(records)
    return found


def offsets_of(folder: Path, batches: list[bytes]) -> list[list[int]]:
    """The offsets in each batch of a sound log."""
    with open_log(folder) as log:
        table = log.read(columns=["offset", "position"])
    by_position: dict[int, list[int]] = {}
    for offset, position in zip(*(column.to_pylist() for column in table.columns), strict=True):
        by_position.setdefault(position, []).append(offset)
    assert len(by_position) == len(batches)
    return list(by_position.values())


def untouched(batches: list[bytes], edited: bytes, name: str, begin: int, end: int) -> Iterator[bool]:
    """Yield for each batch whether all its bytes are still in one piece."""
    start = 0
    for batch in batches:
        stop = start + len(batch)
        if name == "cut out":
            yield stop <= begin or start >= end
        elif name == "doubled":
            yield stop <= end or start >= begin
        else:
            yield edited[start:stop] == batch
        start = stop


def check(
    folder: Path, batches: list[bytes], held: list[list[int]], name: str, begin: int, magic: int, codec: str
) -> None:
    data, path = b"".join(batches), only_log(folder)
    end = min(begin + BLOCK_BYTES, len(data))
    edited = EDITS[name](data, begin, end)
    path.write_bytes(edited)
    sound = list(untouched(batches, edited, name, begin, end))
    expected = [offset for is_sound, offsets in zip(sound, held, strict=True) if is_sound for offset in offsets]
    with open_log(folder, on_damage="skip") as log:
        found = log.read(columns=["offset", "key"])
        rows = [part for part in log.batches_and_damage() if isinstance(part, DamagedStretch)]
        log_end = log.end_offset
    offsets = found["offset"].to_pylist()
    if magic == 0 and "snappy" in codec:
        # Snappy may leave messages inside a wrapper as they are: in magic 0 with their own checksum and offset.
        assert offsets == sorted(set(offsets)), (name, begin)
        assert set(expected) <= set(offsets) <= {offset for each in held for offset in each}, (name, begin)
    else:
        assert offsets == expected, (name, begin)
    assert found["key"].to_pylist() == [b"%d" % offset for offset in offsets]
    lost = {offset for row in rows for offset in range(row.first_offset, row.end_offset)}
    missing = {offset for each in held for offset in each} - set(offsets)
    inside = {offset for offset in missing if offset < log_end}
    assert rows or not inside, (name, begin)
    if magic == 2 or codec == "none":
        assert {offset for offset in lost if offset < log_end} == inside, (name, begin, rows)
    else:
        # A wrapper does not say at which offset it begins.
        assert lost >= inside, (name, begin, rows)
    ends = [(row.position, row.position + row.length_bytes) for row in rows]
    assert all(first[1] <= second[0] for first, second in pairwise(ends)), (name, begin, rows)


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_every_untouched_batch_is_read_whichever_block_is_damaged(tmp_path: Path, magic: int, codec: str) -> None:
    folder, batches = tmp_path / "events-0", made_log(magic, codec)
    write_partition(folder, batches, with_indexes=codec == "none", index_interval_bytes=300)
    held, size = offsets_of(folder, batches), sum(map(len, batches))
    for name in EDITS:
        for begin in range(0, size, BLOCK_BYTES):
            check(folder, batches, held, name, begin, magic, codec)
