"""A log directory whose disk has died: every kind of damage, and the records that can be read all the same."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

from tests.build import offset_checkpoint, write_partition
from tests.log.logs import batches

BATCHES: Final = 40
Offsets = set[tuple[str, int]]


def make_dead_disk(root: Path) -> Offsets:
    """Write a log of each kind of damage; return the topics and offsets of the records in undamaged batches."""
    sound: Offsets = set()
    for topic in ("flipped", "zeros", "noise", "torn", "segment", "indexes", "nothing", "clean"):
        folder, made = root / f"{topic}-0", batches(BATCHES)
        write_partition(folder, made, index_interval_bytes=300, segment_bytes=2600)
        sound |= {(topic, 10 * n + each) for n in _damage(topic, folder, made) for each in range(10)}
    return sound


def _damage(topic: str, folder: Path, made: list[bytes]) -> list[int]:
    """Damage a log, and return the numbers of the batches that no damaged byte is in."""
    logs = sorted(folder.glob("*.log"))
    assert len(logs) > 4
    middle, following = logs[2], logs[3]
    of_middle = range(int(middle.stem) // 10, int(following.stem) // 10)
    if topic == "flipped":
        at = of_middle.start + 3
        position = sum(len(each) for each in made[of_middle.start : at]) + 100
        overwrite(middle, position, bytes([middle.read_bytes()[position] ^ 1]))
        return _without(range(at, at + 1))
    if topic == "zeros":
        overwrite(middle, 50, bytes(2048))
        ends = [sum(len(each) for each in made[of_middle.start : n + 1]) for n in of_middle]
        return _without(range(of_middle.start, of_middle.start + 1 + sum(end < 50 + 2048 for end in ends)))
    if topic == "noise":
        overwrite(logs[0], 0, Random(1).randbytes(40))
        return _without(range(1))
    if topic == "torn":
        data = logs[-1].read_bytes()
        logs[-1].write_bytes(data[:-100])
        checkpoint = offset_checkpoint({(topic, 0): 10 * BATCHES})
        (folder.parent / "recovery-point-offset-checkpoint").write_text(checkpoint)
        return _without(range(BATCHES - 1, BATCHES))
    if topic == "segment":
        middle.unlink()
        return _without(of_middle)
    if topic == "indexes":
        for path in (*folder.glob("*.index"), *folder.glob("*.timeindex")):
            path.unlink()
    if topic == "nothing":
        for path in logs:
            path.write_bytes(Random(2).randbytes(path.stat().st_size))
        return []
    return list(range(BATCHES))


def _without(lost: range) -> list[int]:
    return [n for n in range(BATCHES) if n not in lost]


def overwrite(path: Path, position: int, octets: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(octets)
