"""Lists the codecs of record batches, and gives access to their functions.

A codec id is the three lowest bits of a batch's attributes. A codec is a row of `CODECS`, and a module of this folder
with its name, which has `FUNCTIONS`. Libraries do the work. The modules add the framing of Kafka's producers, and
ensure that no stream makes us allocate more than a limit, whatever it claims. A module is imported when its codec is
first needed, since planning a read needs no library.

Source: apache/kafka, common/compress, CompressionType.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from typing import Any, Final, NamedTuple

from sparklog.errors import CorruptBatchError, DecompressedSizeError, InvalidOptionError

DECOMPRESSED_BYTES_MAX: Final = 1 << 30
"""The default of ``max.decompressed.message.bytes``, the most bytes that a batch may decompress to."""

DECOMPRESSED_BYTES_LIMIT: Final = (1 << 31) - 9
"""The largest value of that property: the size of the largest array in Java, which is Kafka's own default."""

Decompress = Callable[[memoryview, int], bytes | bytearray]
DecompressInto = Callable[[memoryview, memoryview, int], int]
CompressInto = Callable[[memoryview, memoryview], int]
Prefix = Callable[[memoryview, int], Iterator[bytes | bytearray]]

TARGET_TOO_SMALL: Final = -1
"""Returned instead of a size if the content does not fit the target, or might not."""

SNAPPY_BLOCK_BYTES: Final = 32 << 10
_FED_BYTES: Final = 64


class Functions(NamedTuple):
    """The functions of a codec. For a damaged stream, decompression may raise any exception.

    Attributes
    ----------
    decompress : callable of (data, limit_bytes)
        Decompresses the records of a v2 batch or the value of a wrapper. It never allocates more than ``limit_bytes``
        for the content, and raises `above_limit` if there is more.
    compressor : callable of (level)
        Returns the callable of (records, target) that compresses into memory of the size `compressed_bytes_max`, framed
        as by Kafka's producers, and returns how many bytes it has written. The level of a codec without levels is None.
    decompress_into : callable of (data, target, limit_bytes), optional
        Writes the content to the beginning of ``target`` and returns its size, or `TARGET_TOO_SMALL` if ``decompress``
        must be called instead. None if the library has no such function.
    in_magic_0 : Functions, optional
        The functions for messages of magic 0, if their streams differ.
    prefix : callable of (data, limit_bytes), optional
        Yields the content of a damaged stream in pieces, none longer than the limit or 4 MiB, up to its first fault,
        at which it may raise any exception. Without it, a stream is decompressed as a whole or not at all.
    """

    decompress: Decompress
    compressor: Callable[[Any], CompressInto]
    decompress_into: DecompressInto | None = None
    in_magic_0: Functions | None = None
    prefix: Prefix | None = None


@dataclass(frozen=True)
class Codec:
    """A codec, by its id and name in Kafka.

    Attributes
    ----------
    codec_id : int
        The number in the attributes.
    name : str
        Kafka's name, and the name of its module.
    magic_min : int
        The lowest record format that has it.
    levels : range
        The levels that users may set; empty if it has none.
    level_default : int, optional
        The level unless a user sets one: a fast one. It may lie outside of ``levels``.
    level_doc : str
        The rest of the sentence that describes the level.
    """

    codec_id: int
    name: str
    magic_min: int = 0
    levels: range = range(0)
    level_default: int | None = None
    level_doc: str = ""

    @cached_property
    def functions(self) -> Functions:
        """The functions of the codec; the first access imports the library that they need."""
        found: Functions = import_module(f"{__package__}.{self.name}").FUNCTIONS
        return found

    def of_magic(self, magic: int) -> Functions:
        """Return the functions of the codec for a record format."""
        return (self.functions.in_magic_0 if magic == 0 else None) or self.functions


_LZ4_LEVELS: Final = "; 9 is the fast compressor, as in Kafka, and every other the slower high compressor"
CODECS: Final = {
    codec.codec_id: codec
    for codec in (
        Codec(0, "none"),
        Codec(1, "gzip", 0, range(1, 10), -1, ", 1 to 9; -1 is its own default"),
        Codec(2, "snappy"),
        Codec(3, "lz4", 0, range(1, 18), 9, _LZ4_LEVELS),
        Codec(4, "zstd", 2, range(-(1 << 17), 23), 3),
    )
}

CODEC_IDS: Final = {codec.name: codec.codec_id for codec in CODECS.values()}


def codec_name(codec_id: int) -> str:
    """Return Kafka's name of a codec, or ``unknown-<id>``."""
    return CODECS[codec_id].name if codec_id in CODECS else f"unknown-{codec_id}"


def codec_named(name: str) -> Codec:
    """Return the codec with a name of Kafka's; raise `InvalidOptionError` if there is none."""
    if name not in CODEC_IDS:
        raise InvalidOptionError(f"unknown codec {name!r}; there are {', '.join(CODEC_IDS)}")
    return CODECS[CODEC_IDS[name]]


def codecs_of(magic: int) -> str:
    """Return the names of a record format's codecs except none, separated by commas."""
    return ", ".join(codec.name for codec in CODECS.values() if codec.codec_id and codec.magic_min <= magic)


def refuse_codec(name: str, magic: int) -> None:
    """Raise `InvalidOptionError` if a record format does not have a codec; the message names the codecs it has."""
    if codec_named(name).magic_min > magic:
        raise InvalidOptionError(f"format {magic} does not have the codec {name}: name {codecs_of(magic)} or none")


def compressor(name: str, level: int | None = None, magic: int = 2) -> CompressInto:
    """Return the compressing function of a codec, for a record format that has it; see `Functions`."""
    codec = codec_named(name)
    return codec.of_magic(magic).compressor(codec.level_default if level is None else level)


def compressed_bytes_max(records_bytes: int) -> int:
    """Return a size that the compressed form of ``records_bytes`` bytes never exceeds, with any codec.

    Snappy can grow the most: each block by a sixth and 32 bytes, plus its length, plus the header of the stream.
    """
    blocks = records_bytes // SNAPPY_BLOCK_BYTES + 1
    return records_bytes + records_bytes // 6 + 36 * blocks + 256


@lru_cache(maxsize=32)
def decompressor(codec_id: int, magic: int) -> Decompress:
    """Return the decompressing function of a codec; see `Functions`.

    The magic decides which codecs are legal. Pass exceptions of the function to `to_corrupt_error`.
    """
    codec = CODECS.get(codec_id)
    return _illegal(codec_id, magic) if codec is None or magic < codec.magic_min else codec.of_magic(magic).decompress


@lru_cache(maxsize=32)
def decompressor_into(codec_id: int, magic: int) -> DecompressInto:
    """Return the function that decompresses into the caller's memory; otherwise like `decompressor`."""
    codec, decompress = CODECS.get(codec_id), decompressor(codec_id, magic)
    if codec is not None and magic >= codec.magic_min and (into := codec.of_magic(magic).decompress_into) is not None:
        return into
    return lambda data, target, limit_bytes: copy_into(decompress(data, limit_bytes), target)


def decompressed_prefix(codec_id: int, magic: int, data: memoryview, limit_bytes: int) -> bytearray:
    """Return the content of a damaged stream up to its first fault, or to a limit; nothing if its codec is illegal."""
    codec, content = CODECS.get(codec_id), bytearray()
    if codec is None or magic < codec.magic_min:
        return content
    functions = codec.of_magic(magic)
    with suppress(Exception):  # Each library raises its own errors.
        for piece in (
            functions.prefix(data, limit_bytes) if functions.prefix else [functions.decompress(data, limit_bytes)]
        ):
            content += piece[: limit_bytes - len(content)]
            if len(content) == limit_bytes:
                break
    return content


def stream_pieces(stream: Any, data: memoryview) -> Iterator[bytes]:
    """Feed a decompressor of a library's streams little by little: its error costs the content of one step."""
    for position in range(0, len(data), _FED_BYTES):
        yield stream.decompress(data[position : position + _FED_BYTES])
        if stream.eof:
            return


def copy_into(data: bytes | bytearray | memoryview, target: memoryview) -> int:
    """Copy uncompressed data into a target; return its size, or `TARGET_TOO_SMALL`."""
    return TARGET_TOO_SMALL if len(data) > len(target) else write_into(data, target)


def write_into(data: bytes | bytearray | memoryview, target: memoryview) -> int:
    """Copy data into a target, and return its size; raise if the target is too small."""
    target[: len(data)] = data
    return len(data)


def above_limit(limit_bytes: int) -> DecompressedSizeError:
    """Return the error for a stream with more content than a limit."""
    return DecompressedSizeError(
        f"the batch decompresses to more than {limit_bytes} bytes",
        hint="Raise max.decompressed.message.bytes if its producer is trusted",
    )


def to_corrupt_error(error: Exception, codec_id: int) -> CorruptBatchError:
    """Turn an exception of a codec's library into our error; it does not name a file and position yet."""
    if isinstance(error, CorruptBatchError):
        return error
    return CorruptBatchError(f"the {codec_name(codec_id)} stream cannot be decompressed: {error}")


def _illegal(codec_id: int, magic: int) -> Decompress:
    def refuse(data: memoryview, limit_bytes: int) -> bytes:  # noqa: ARG001
        raise CorruptBatchError(f"unknown codec {codec_id} in a batch of magic {magic}")

    return refuse
