"""Describes messages of magic 0 and 1, which Kafka wrote before 0.11, and still reads.

There is no batch header. A message stands alone, or is a wrapper: codec bits set, key null, value a compressed run of
messages. All integers are big-endian.

    byte  size  field
    0     8     offset        of a wrapper: that of the last message inside
    8     4     size          bytes after this field
    12    4     crc           CRC-32 (zlib) of the bytes after this field
    16    1     magic         0 or 1
    17    1     attributes    bits 0-2 codec (no zstd), 3 log append time (magic 1)
    18    8     timestamp     ms, magic 1 only; of a wrapper: the largest inside, or the append time of all inside
                key           int32 length and bytes, -1 null
                value         int32 length and bytes, -1 null

Offsets inside a wrapper are absolute in magic 0. In magic 1 they count from 0, and are added to the wrapper's offset
less the last offset inside; compaction leaves gaps in them. A wrapper must not hold a wrapper.

No checksum covers a message's own offset, but a wrapper's checksum covers the offsets inside. So the offset of a
wrapper of magic 0 must equal that of the last message inside, though Kafka would accept either; the first offset in a
wrapper of magic 1 must be above the batch before it. Damage to the offset of magic 1 goes unnoticed if it moves all
messages to offsets that no other batch has. If the offset is 0, as old librdkafka left it, the offsets inside are
absolute, and the last of them is the wrapper's.

Source: apache/kafka, LegacyRecord.java, AbstractLegacyRecordBatch.java; KIP-31, KIP-32.
"""

from __future__ import annotations

from typing import Final

import numpy as np

HEADER_V0: Final = np.dtype(
    [("offset", ">i8"), ("size", ">i4"), ("crc", ">u4"), ("magic", "u1"), ("attributes", "i1"), ("key_length", ">i4")]
)
HEADER_V1: Final = np.dtype(
    [
        ("offset", ">i8"),
        ("size", ">i4"),
        ("crc", ">u4"),
        ("magic", "u1"),
        ("attributes", "i1"),
        ("timestamp", ">i8"),
        ("key_length", ">i4"),
    ]
)
assert HEADER_V0.itemsize == 22
assert HEADER_V1.itemsize == 30

MESSAGE_BYTES_MIN: Final = {0: 26, 1: 34}
"""The smallest message of each magic: null key, null value."""

SIZE_MIN: Final = 14
"""The lowest legal size field of a batch of any magic."""
