"""Returns values unchanged, or as text.

`RawCodec` returns the bytes. `StringCodec` returns text: a value that is not UTF-8 fails. Both are compiled, and
valid bytes are not copied.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.values.rows import DecodedValues, Failures, no_failures, only_where

# Source: RFC 3629, section 4. Arrow matches binary data byte by byte.
_UTF_8: Final = (
    r"\A(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    r"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*\z"
)


# The characters that begin a formula in a spreadsheet. Source: OWASP, CSV Injection.
FORMULA: Final = "\\A([=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20])"
NO_FORMULA: Final = r"'\1"


class RawCodec:
    """Returns values as they are."""

    type = pa.binary()

    def decode(self, values: pa.Array) -> DecodedValues:
        return DecodedValues(values, no_failures())


class StringCodec:
    """Returns values as text."""

    type = pa.string()

    def decode(self, values: pa.Array) -> DecodedValues:
        return decode_text(values)


def decode_text(values: pa.Array) -> DecodedValues:
    """Return values without nulls as text; a value that is not UTF-8 fails."""
    try:
        return DecodedValues(values.cast(pa.string()), no_failures())
    except pa.ArrowInvalid:
        are_text = is_text(values)
    wrong = np.flatnonzero(~np.asarray(are_text))
    texts = only_where(values, are_text).cast(pa.string())
    return DecodedValues(texts, Failures(wrong, ["the value is not UTF-8"] * len(wrong)))


def without_formulas(texts: pa.Array) -> pa.Array:
    """Return texts with a ' before each that a spreadsheet would take for a formula."""
    return pc.replace_substring_regex(texts, FORMULA, NO_FORMULA)


def is_text(data: pa.Array) -> pa.Array:
    """Return which keys or values are UTF-8; null if one is null."""
    return pc.match_substring_regex(data.cast(pa.large_binary()), _UTF_8)
