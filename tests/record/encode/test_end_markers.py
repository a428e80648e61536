"""Markers that end transactions, as bytes."""

from __future__ import annotations

from sparklog.record.batches.framing import checksum_fault
from sparklog.record.encode.end_markers import MarkerBatch, encode_end_markers
from sparklog.record.format import v2
from tests.build import control_batch

NOW_MS = 1_700_000_000_000


def test_markers_are_the_bytes_that_a_broker_writes() -> None:
    markers = [MarkerBatch(1 << 52, 7, False, 3), MarkerBatch(17, 32_766, True, 0, base_offset=9)]
    encoded = encode_end_markers(markers, NOW_MS)
    expected = [
        control_batch("commit", 0, 1 << 52, 7, NOW_MS, coordinator_epoch=3),
        control_batch("abort", 9, 17, 32_766, NOW_MS),
    ]
    assert bytes(encoded.data) == b"".join(expected)
    assert encoded.headers.column("base_offset").tolist() == [0, 9]
    assert encoded.headers.is_control.all()


def test_marker_is_read_as_it_was_written() -> None:
    for marker in (MarkerBatch(5, 1, True, 12), MarkerBatch(5, 1, False, 1 << 30)):
        data = encode_end_markers([marker], NOW_MS).data
        assert v2.end_marker(data) == v2.EndMarker(marker.is_abort, marker.coordinator_epoch)
        assert checksum_fault(data) is None
