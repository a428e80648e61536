"""What stands where no sound batch does: zeros, torn batches, whole batches behind damage."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import CorruptBatchError
from sparklog.log import damage
from sparklog.log.damage import DamageKind, DamageScanner, data_end, has_wrong_header, is_intact_at, is_zero
from sparklog.log.reader import open_log
from sparklog.record.batches.framing import is_intact
from sparklog.record.kernels.search import LARGE_BYTES
from sparklog.storage.local import LocalFile
from tests.build import CODEC_IDS, LEGACY_CODECS, Record, legacy_message, legacy_wrapper, v2_batch
from tests.log.logs import CountingFile, CountingStorage, batch


def file_of(folder: Path, data: bytes | bytearray) -> LocalFile:
    path = folder / "f"
    path.write_bytes(data)
    return LocalFile(str(path))


def first_whole_batch(file: LocalFile, position: int, zeros_from: int | None = None) -> int | None:
    found = DamageScanner(file, is_last=True).whole_batches(position, file.size_bytes(), zeros_from)
    return next(found, None)


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what is looked for lies across their borders."""
    monkeypatch.setattr(damage, "_WINDOW_BYTES", 64)
    monkeypatch.setattr(damage, "_ZEROS", bytes(64))


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 200])
def test_one_bit_among_zeros_is_seen(tmp_path: Path, size: int) -> None:
    for at in range(size):
        data = bytearray(size)
        data[at] = 1
        with file_of(tmp_path, data) as file:
            assert [is_zero(file, start, size) for start in range(size)] == [start > at for start in range(size)]
            assert [data_end(file, start, size) for start in (0, at)] == [at + 1] * 2
            assert data_end(file, at + 1, size) == at + 1
    with file_of(tmp_path, bytes(size)) as file:
        assert is_zero(file, 0, size)
        assert data_end(file, 0, size) == 0


SOME = {
    "v2": v2_batch([Record(0, value=b"a"), Record(1, key=b"", value=None)], base_offset=70),
    "v1": legacy_message(70, None, b"a", magic=1),
    "v0": legacy_message(70, None, b"a", magic=0),
    "wrapper": legacy_wrapper([Record(0, value=b"a" * 100)], codec="gzip", magic=1, base_offset=70),
}


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("kind", SOME)
@pytest.mark.parametrize("lead", ["zeros", "noise", "headers"])
def test_whole_batch_is_found_at_every_distance(tmp_path: Path, kind: str, lead: str) -> None:
    whole = SOME[kind]
    noise = random.Random(7).randbytes(300)
    # What looks like a header of a batch that is longer than a window, again and again.
    torn = batch(70, 40)[:100] * 3
    before = {"zeros": bytes(300), "noise": noise, "headers": torn}[lead]
    for distance in range(140):
        with file_of(tmp_path, before[:distance] + whole + noise) as file:
            assert first_whole_batch(file, 0) == distance
            assert first_whole_batch(file, distance + 1) is None
            assert is_intact_at(file, distance, len(whole))


# Half of the bytes are such as headers begin with, so that the quick rejection of eight positions at once is tried.
LIKELY_BYTES = st.lists(st.one_of(st.sampled_from([0, 0, 1, 2, 3]), st.integers(0, 255)), max_size=400).map(bytes)


@settings(max_examples=150)
@given(st.one_of(st.binary(max_size=400), LIKELY_BYTES), st.integers(0, 400))
def test_search_agrees_with_looking_at_every_byte(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int
) -> None:
    data = junk[:at] + b"".join(SOME.values()) + junk[at:]
    with file_of(tmp_path_factory.mktemp("f"), data) as file:
        expected = [
            start
            for start in range(len(data))
            for size in [int.from_bytes(data[start + 8 : start + 12], "big", signed=True) + 12]
            if 26 <= size <= len(data) - start and is_intact(memoryview(data)[start : start + size])
        ]
        assert list(DamageScanner(file, is_last=True).whole_batches(0, len(data))) == expected


@pytest.mark.parametrize(
    ("magic", "codec"),
    [(2, each) for each in CODEC_IDS] + [(magic, each) for magic in (0, 1) for each in LEGACY_CODECS],
)
def test_large_batch_is_found_in_noise_at_any_place_of_a_window(tmp_path: Path, magic: int, codec: str) -> None:
    chance = random.Random(7)
    value = chance.randbytes(3 << 18)
    if magic == 2:
        whole = v2_batch([Record(0, value=value)], base_offset=70, codec=codec)
    elif codec == "none":
        whole = legacy_message(70, value[: 1 << 19], value, magic=magic)
    else:
        whole = legacy_wrapper([Record(0, value=value)], codec=codec, magic=magic, base_offset=70)
    assert len(whole) > LARGE_BYTES
    noise = chance.randbytes(damage._WINDOW_BYTES)
    for lead in (0, 7, len(noise) - len(whole), *range(len(noise) - 70, len(noise) + 1, 9)):
        with file_of(tmp_path, noise[:lead] + whole + noise[:100]) as file:
            scanner = DamageScanner(file, is_last=True)
            assert list(scanner.whole_batches(0, file.size_bytes())) == [lead]


def test_noise_costs_hardly_more_than_to_look_at_it_once(tmp_path: Path) -> None:
    """Noise often says to be a batch as long as the rest of the file."""
    size = 1 << 26
    whole = SOME["v2"]
    noise = b"".join(random.Random(seed).randbytes(1 << 24) for seed in range(size >> 24))
    with CountingFile(str(_written(tmp_path, noise + whole)), storage := CountingStorage()) as file:
        assert first_whole_batch(file, 0) == size
    assert storage.read_bytes[""] < 1.5 * size


def test_bytes_made_to_look_like_headers_are_given_up(tmp_path: Path) -> None:
    """Every one of them says that it reaches to the end of the file."""
    header = bytearray(batch(5)[:26])
    size = 1 << 20
    data = bytearray()
    while len(data) < size:
        header[8:12] = (size - len(data) - 12).to_bytes(4, "big")
        data += header
    with CountingFile(str(_written(tmp_path, bytes(data))), storage := CountingStorage()) as file:
        scanner = DamageScanner(file, is_last=True)
        assert list(scanner.whole_batches(0, size)) == []
        assert scanner.is_given_up
    assert storage.read_bytes[""] < 8 * size + (8 << 20)


@pytest.mark.parametrize("order", ["big", "little"])
@pytest.mark.parametrize("shift", range(4))
def test_numbers_in_a_value_are_not_taken_for_so_many_headers_that_the_search_ends(
    tmp_path: Path, order: Literal["big", "little"], shift: int
) -> None:
    rng = random.Random(3)
    numbers = b"".join(rng.choice((rng.randrange(300), 0)).to_bytes(4, order) for _ in range(1 << 16))
    whole = SOME["v0"]
    with file_of(tmp_path, bytes(shift) + numbers + whole) as file:
        assert first_whole_batch(file, 0) == shift + len(numbers)


def _written(folder: Path, data: bytes) -> Path:
    (folder / "f").write_bytes(data)
    return folder / "f"


@pytest.mark.parametrize("zeros", [0, 1, 5000])
@pytest.mark.parametrize("kind", SOME)
def test_wrong_size_of_a_whole_batch_is_told_from_a_torn_one(tmp_path: Path, kind: str, zeros: int) -> None:
    whole = SOME[kind]
    damaged = whole[:8] + (len(whole) + 9000).to_bytes(4, "big") + whole[12:]
    with file_of(tmp_path, b"x" * 10 + damaged + bytes(zeros)) as file:
        assert has_wrong_header(file, 10, data_end(file, 10, file.size_bytes()), file.size_bytes())
    for torn in (damaged[:-1] + b"\1" * (damaged[-1] != 1), damaged[:-3], damaged[:20], b""):
        with file_of(tmp_path, b"x" * 10 + torn) as file:
            assert not has_wrong_header(file, 10, data_end(file, 10, file.size_bytes()), file.size_bytes())


@pytest.mark.parametrize("padding", [0, 3000])
def test_batch_that_ends_with_zeros_of_its_own_is_found_and_measured(tmp_path: Path, padding: int) -> None:
    whole = v2_batch([Record(0, value=bytes(5000))], base_offset=70)
    with file_of(tmp_path, b"x" * 10 + whole + bytes(padding)) as file:
        size = file.size_bytes()
        assert first_whole_batch(file, 0, data_end(file, 0, size)) == 10
    damaged = whole[:8] + (len(whole) + 9000).to_bytes(4, "big") + whole[12:]
    with file_of(tmp_path, damaged) as file:
        assert has_wrong_header(file, 0, data_end(file, 0, len(damaged)), len(damaged))


def test_batch_that_claims_a_gibibyte_takes_no_such_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    damaged = bytearray(batch(10))
    claimed = 1 << 30
    damaged[8:12] = claimed.to_bytes(4, "big")
    log = folder / f"{0:020d}.log"
    log.write_bytes(batch(0) + damaged)
    with log.open("r+b") as file:
        file.truncate(claimed + 10_000)
    largest = [0]
    whole = LocalFile.read_into

    def read_into(self: LocalFile, position: int, room: memoryview) -> int:
        largest[0] = max(largest[0], len(room))
        return whole(self, position, room)

    monkeypatch.setattr(LocalFile, "read_into", read_into)
    with pytest.raises(CorruptBatchError, match="position 241, offset 10"):
        open_log(str(folder)).read()
    assert largest[0] <= 1 << 24


WHOLE = batch(10, 2)
TORN = WHOLE[:8] + (1 << 20).to_bytes(4, "big") + WHOLE[12:]


@pytest.mark.parametrize(
    ("data", "fault", "what", "next_position", "is_log_end"),
    [
        pytest.param(bytes(50), None, DamageKind.ZEROS, None, True, id="zeros"),
        pytest.param(WHOLE[:-1], None, DamageKind.TORN_BATCH, None, True, id="torn"),
        pytest.param(WHOLE[:12] + bytes(200), "bad", DamageKind.NOT_A_BATCH, None, False, id="torn behind its size"),
        pytest.param(WHOLE[:90] + bytes(50), None, DamageKind.TORN_BATCH, None, True, id="torn, preallocated"),
        pytest.param(TORN, None, DamageKind.WRONG_SIZE, None, False, id="size"),
        pytest.param(TORN + batch(12), None, DamageKind.TORN_BATCH, len(TORN), False, id="batch behind"),
        pytest.param(TORN + batch(0), None, DamageKind.TORN_BATCH, len(TORN), False, id="low offset at the end"),
        pytest.param(TORN + batch(0) + b"x", None, DamageKind.TORN_BATCH, None, True, id="low offset in a record"),
        pytest.param(TORN + batch(0) * 2 + b"x", None, DamageKind.TORN_BATCH, len(TORN), False, id="two of them"),
        pytest.param(b"\xff" * 70, "bad", DamageKind.NOT_A_BATCH, None, False, id="noise"),
        pytest.param(bytes(70) + b"\xff", "bad", DamageKind.NOT_A_BATCH, None, False, id="hole"),
        pytest.param(WHOLE[:16] + b"\6" + WHOLE[17:], "bad", DamageKind.WRONG_SIZE, None, False, id="magic"),
        pytest.param(b"\xff" * 70 + batch(12), "bad", DamageKind.NOT_A_BATCH, 70, False, id="noise before a batch"),
    ],
)
def test_what_stands_at_the_end_of_the_last_segment_is_judged(
    tmp_path: Path, data: bytes, fault: str | None, what: DamageKind, next_position: int | None, is_log_end: bool
) -> None:
    start = len(batch(0))
    with file_of(tmp_path, batch(0) + data) as file:
        size_bytes = file.size_bytes()
        found = DamageScanner(file, is_last=True).judge(start, 10, size_bytes, fault)
    assert (found.what, found.is_log_end) == (what, is_log_end)
    assert found.next_position == (None if next_position is None else start + next_position)
    assert (found.position, found.expected_offset) == (start, 10)
    assert found.length_bytes == (size_bytes if found.next_position is None else found.next_position) - start


def test_noise_behind_the_last_batch_may_be_torn_where_nothing_whole_follows(tmp_path: Path) -> None:
    torn = WHOLE[:12] + bytes(200)
    cases = (b"\xff" * 70, True), (bytes(70) + b"\xff", True), (torn, True), (b"\xff" * 70 + batch(12), False)
    for data, may_be_torn in cases:
        with file_of(tmp_path, data) as file:
            for is_last in (True, False):
                found = DamageScanner(file, is_last=is_last).judge(0, 10, len(data), "bad")
                assert (found.may_be_torn, found.is_log_end) == (may_be_torn and is_last, False)


def test_sealed_segment_has_no_torn_end_and_no_batch_of_the_next_one(tmp_path: Path) -> None:
    cut = {"torn": WHOLE[:-1], "zeros": bytes(100), "zeros before a batch": bytes(100) + batch(12)}
    judged = {}
    for name, data in cut.items():
        with file_of(tmp_path, data) as file:
            scanner = DamageScanner(file, is_last=False, upper_offset=30)
            judged[name] = scanner.judge(0, 10, len(data), None if name == "torn" else "batch size 0")
    assert {name: (found.what, found.next_position) for name, found in judged.items()} == {
        "torn": (DamageKind.TORN_BATCH, None),
        "zeros": (DamageKind.ZEROS, None),
        "zeros before a batch": (DamageKind.ZEROS, 100),
    }
    assert not any(found.is_log_end for found in judged.values())
    # A value may hold a batch of another log: one of offsets that the next segment has is not of this segment.
    with file_of(tmp_path, data := b"\xff" * 70 + batch(30) + b"\xff" + batch(20) + b"\xff") as file:
        found = DamageScanner(file, is_last=False, upper_offset=30).judge(0, 10, len(data), "bad")
        assert found.next_position == 71 + len(batch(30))


def test_batch_inside_a_damaged_one_shows_that_its_size_is_wrong(tmp_path: Path) -> None:
    """The damaged one says that it ends in the midst of the next one, where nothing can be told any more."""
    data = WHOLE + batch(12) + batch(22)
    with file_of(tmp_path, data) as file:
        position = len(WHOLE) + 30
        found = DamageScanner(file, is_last=True).judge(position, 10, len(data), "bad", doubtful_position=0)
    assert (found.what, found.position, found.next_position) == (DamageKind.WRONG_SIZE, 0, len(WHOLE))


@pytest.mark.parametrize(("end", "may_be_torn"), [(b"", True), (bytes(40), True), (batch(12), False)])
def test_wrong_checksum_may_be_of_a_torn_write_where_nothing_follows(
    tmp_path: Path, end: bytes, may_be_torn: bool
) -> None:
    data = WHOLE[:-1] + bytes([WHOLE[-1] ^ 1]) + end
    with file_of(tmp_path, data) as file:
        found = DamageScanner(file, is_last=True).judge(0, 10, len(data), "bad", what=DamageKind.WRONG_CHECKSUM)
    assert (found.what, found.may_be_torn, found.is_log_end) == (DamageKind.WRONG_CHECKSUM, may_be_torn, False)


@pytest.mark.parametrize("size", [70, len(WHOLE) + 500])
def test_wrong_checksum_because_of_a_wrong_size_is_told_from_a_torn_write(tmp_path: Path, size: int) -> None:
    data = WHOLE[:8] + size.to_bytes(4, "big") + WHOLE[12:]
    with file_of(tmp_path, data) as file:
        found = DamageScanner(file, is_last=True).judge(0, 10, len(data), "bad", what=DamageKind.WRONG_CHECKSUM)
    assert (found.what, found.may_be_torn) == (DamageKind.WRONG_SIZE, False)


def test_many_batches_in_a_torn_value_are_searched_in_linear_time(tmp_path: Path) -> None:
    """Each is of another log, and followed by what says that it is a batch to the end of the file."""
    inner = batch(3, 1) + batch(3, 1)[:8] + (1 << 20).to_bytes(4, "big") + batch(3, 1)[12:61]
    data = TORN[:80] + inner * 5000
    with CountingFile(str(_written(tmp_path, data)), storage := CountingStorage()) as file:
        assert DamageScanner(file, is_last=True).judge(0, 10, len(data), None).next_position is None
    assert storage.read_bytes[""] < 20 * len(data)
