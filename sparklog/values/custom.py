"""Decodes with a user's own function of Arrow arrays, named ``package.module:function``.

The function takes an array of binary without nulls, and returns an array of the same length. Its attribute
``type`` is the `pyarrow.DataType` of the result; without it, the function is called with an empty array,
and its result has the type. A null in the result is a value, and no failure. If the function raises, the
block is halved until the values at fault are found; only they fail.
"""

from __future__ import annotations

import pyarrow as pa

from sparklog.errors import InvalidOptionError
from sparklog.values.imports import imported
from sparklog.values.rows import DecodedValues, decode_rows


class CallableCodec:
    """Decodes with a user's function.

    Parameters
    ----------
    name : str
        ``package.module:function``.

    Raises
    ------
    InvalidOptionError
        It cannot be imported or called, or its type is unknown.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._function = imported(name, "the decoder")
        self.type = self._type()

    def decode(self, values: pa.Array) -> DecodedValues:
        return decode_rows(values, self._checked, self.type)

    def _checked(self, values: pa.Array) -> pa.Array:
        found = self._function(values)
        if not isinstance(found, pa.Array) or len(found) != len(values) or found.type != self.type:
            what = f"an array of {found.type}, {len(found)} long" if isinstance(found, pa.Array) else repr(type(found))
            raise InvalidOptionError(
                f"the decoder {self._name!r} must return an array of {self.type} for each of {len(values)} values, "
                f"and returned {what}"
            )
        return found

    def _type(self) -> pa.DataType:
        kind = getattr(self._function, "type", None)
        if kind is None:
            try:
                kind = getattr(self._function(pa.array([], pa.binary())), "type", None)
            except Exception as error:
                raise InvalidOptionError(
                    f"the decoder {self._name!r} has no attribute type, and fails for an empty array: {error!r}"
                ) from error
        if not isinstance(kind, pa.DataType):
            raise InvalidOptionError(
                f"the decoder {self._name!r} has no type: give it an attribute type, a pyarrow.DataType, or let it "
                "return an empty array for an empty array"
            )
        return kind
