"""What producers have in flight, as a real broker writes it down when it rolls, stops and begins again."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.log.files import SNAPSHOT, TRANSACTION_INDEX, offset_file_name
from sparklog.log.layout import PartitionLayout, read_layout
from sparklog.log.producer_snapshots import producers_at_end, snapshots_of
from sparklog.log.producer_state import AbortedTransaction, Producers, encode_aborted
from sparklog.log.windows import Window
from sparklog.storage.local import LocalStorage
from tests.kafka.broker import Broker, Producer, Record
from tests.kafka.content import segment_bytes
from tests.places import folder_at

pytestmark = pytest.mark.kafka

TOPIC = "produced"
# More than three quarters of the places that a hash map of Java begins with, and then of twice as many.
IDEMPOTENT = 26
STORAGE = LocalStorage()


def test_brokers_snapshots_and_transaction_indexes_are_ours_byte_for_byte(tmp_path: Path) -> None:
    with Broker.start(tmp_path / "broker") as broker:
        broker.create_topic(TOPIC, config=segment_bytes(broker, 4096))
        write_everything(broker)
        (told,) = broker.offsets(TOPIC)
        broker.stop()
        folder = broker.log_dir / f"{TOPIC}-0"
        layout = read_layout(folder_at(folder))
        assert len(layout.segments) > 2
        bases = [segment.base_offset for segment in layout.segments[1:]]
        assert compared_snapshots(layout) == [layout.end_offset, *reversed(bases)]
        assert compared_aborted(layout) == 10
        assert producers_at_end(layout).first_unstable_offset == told["last_stable"] < told["end"]
        # What the snapshot says of a producer is all that the broker now goes on with.
        broker.restart()
        with broker.producer() as producer:
            send(producer, 4)
        broker.stop()
        layout = read_layout(folder_at(folder))
        last = folder / offset_file_name(layout.end_offset, SNAPSHOT)
        written = last.read_bytes()
        last.unlink()
        assert producers_at_end(layout).encode() == written


def write_everything(broker: Broker) -> None:
    idempotent = [broker.producer() for _ in range(IDEMPOTENT)]
    around, within, left_open = (
        broker.producer(transactional_id=name, transaction_timeout_ms=900_000)
        for name in ("around", "within", "left-open")
    )
    for turn in range(7):
        for producer in idempotent[turn % 3 :: 3]:
            send(producer, 3)
        # The stable offset of the one that is aborted within is the start of the one around it.
        around.begin()
        send(around, 2)
        within.begin()
        send(within, 2)
        send(around, 1)
        within.abort()
        if turn % 2:
            around.abort()
        else:
            around.commit()
    left_open.begin()
    send(left_open, 2)
    send(idempotent[0], 1)


def send(producer: Producer, count: int) -> None:
    producer.send([Record(TOPIC, b"k", b"v" * 40)] * count)


def compared_snapshots(layout: PartitionLayout) -> list[int]:
    """Compare every snapshot with the state folded from the start of the log; their offsets, the last first."""
    found = snapshots_of(folder_at(layout.path))
    for offset, path in found:
        producers = Producers()
        for segment in layout.segments:
            with segment.open() as log:
                for window in log.windows(log.start):
                    is_before = window.headers.column("last_offset") < offset
                    producers.fold(Window(window.buffer, window.headers.where(is_before)))
        assert producers.encode() == Path(path).read_bytes(), path
    return [offset for offset, _ in found]


def compared_aborted(layout: PartitionLayout) -> int:
    """Compare every transaction index; how many transactions they have."""
    compared, producers = 0, Producers()
    for segment in layout.segments:
        aborted: list[AbortedTransaction] = []
        with segment.open() as log:
            for window in log.windows(log.start):
                aborted += producers.fold(window)
        path = Path(segment.path(TRANSACTION_INDEX))
        assert encode_aborted(aborted) == (path.read_bytes() if path.exists() else b""), str(path)
        compared += len(aborted)
    return compared
