"""Decoders of a user's own: called with what they expect, and checked for what they return."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from sparklog.errors import InvalidOptionError
from sparklog.values.decoder import ValueDecoder, make_decoder
from sparklog.values.spec import parse_decoder
from tests.values import decoders


def decoder_of(name: str) -> ValueDecoder:
    return make_decoder(pickle.loads(pickle.dumps(parse_decoder(f"tests.values.decoders:{name}"))))


def test_type_is_that_of_an_empty_result() -> None:
    decoder = decoder_of("lengths")
    assert decoder.type == pa.int32()
    decoded = decoder.decode(pa.array([b"abc", None, b""]))
    assert decoded.array.to_pylist() == [3, None, 0]
    assert len(decoded.failures) == 0


def test_values_for_which_it_raises_fail_alone() -> None:
    decoder = decoder_of("evens")
    assert decoder.type == decoders.EVENS
    decoded = decoder.decode(pa.array([b"ab", b"a", None, b"", b"abc"]))
    assert decoded.array.to_pylist() == [{"half": 1}, None, None, {"half": 0}, None]
    assert decoded.failures.by_row() == {1: "1", 4: "3"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("too_short", "must return an array of int32 for each of 2 values, and returned an array of int32, 1 long"),
        ("of_another_type", "must return an array of int32 for each of 2 values, and returned an array of int64"),
    ],
)
def test_wrong_result_is_the_function_s_fault_and_no_row_s(name: str, message: str) -> None:
    decoder = decoder_of(name)
    with pytest.raises(InvalidOptionError, match=message):
        decoder.decode(pa.array([b"ab", b"a"]))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tests.values.decoders:no_array", "has no type: give"),
        ("tests.values.decoders:untyped", "has no attribute type, and fails for an empty array"),
        ("tests.values.decoders:number", "'number' cannot be called"),
        ("tests.values.decoders:none", "'none' is not in"),
        ("tests.values.none:lengths", "cannot be imported"),
    ],
)
def test_function_that_cannot_be_used_is_refused_before_a_byte_is_read(name: str, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        make_decoder(parse_decoder(name))
