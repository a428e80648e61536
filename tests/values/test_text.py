"""Values as they are, and as text: what is not UTF-8 fails alone."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.values.decoder import make_decoder
from sparklog.values.spec import parse_decoder
from sparklog.values.text import is_text


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=6))
def test_text_is_what_the_library_decodes(data: bytes) -> None:
    assert is_text(pa.array([data, None])).to_pylist() == [decodes(data), None]


def test_every_lead_byte_with_every_second_byte_is_told_as_the_library_tells_it() -> None:
    data = [
        bytes([lead, second, *tail])
        for lead in range(128, 256)
        for second in range(256)
        for tail in ([], [0x80], [0x80] * 2)
    ]
    assert is_text(pa.array(data)).to_pylist() == [decodes(each) for each in data]


def decodes(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(st.lists(st.none() | st.binary(max_size=8)), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_raw_values_stay_as_they_are(values: list[bytes | None], kind: pa.DataType) -> None:
    decoded = make_decoder(parse_decoder("raw")).decode(pa.array(values, kind))
    assert decoded.array.type == pa.binary()
    assert decoded.array.to_pylist() == values
    assert len(decoded.failures) == 0


@given(st.lists(st.none() | st.binary(max_size=4) | st.text(max_size=4).map(str.encode)))
def test_text_is_decoded_and_what_is_none_is_named(values: list[bytes | None]) -> None:
    decoder = make_decoder(parse_decoder("string"))
    decoded = decoder.decode(pa.array(values, pa.binary()))
    wrong = [row for row, value in enumerate(values) if value is not None and not decodes(value)]
    assert decoded.array.type == decoder.type == pa.string()
    assert decoded.failures.rows.tolist() == wrong
    assert decoded.failures.reasons == ["the value is not UTF-8"] * len(wrong)
    expected = [None if value is None or row in wrong else value.decode() for row, value in enumerate(values)]
    assert decoded.array.to_pylist() == expected


def test_slice_is_decoded_from_where_it_begins() -> None:
    values = pa.array([b"\xff", b"a", None, b"", b"\xff", b"b"])[1:5]
    decoded = make_decoder(parse_decoder("string")).decode(values)
    assert decoded.array.to_pylist() == ["a", None, "", None]
    assert decoded.failures.rows.tolist() == [3]
