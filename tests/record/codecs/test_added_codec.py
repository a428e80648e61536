"""A codec is one module and one row: all that writes, reads and names codecs knows one that is added so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sparklog

MODULE = '''
"""squash: a byte with the level, and a zlib stream."""

from __future__ import annotations

import zlib
from typing import Final

from sparklog.record.codecs.table import CompressInto, Functions, above_limit, write_into


def _decompress(data: memoryview, limit_bytes: int) -> bytes:
    content = zlib.decompressobj().decompress(data[1:], limit_bytes + 1)
    if len(content) > limit_bytes:
        raise above_limit(limit_bytes)
    return content


def _compressor(level: int) -> CompressInto:
    return lambda records, target: write_into(bytes([level]) + zlib.compress(records, level), target)


FUNCTIONS: Final = Functions(_decompress, _compressor)
'''
ROW = '        Codec(5, "squash", 2, range(1, 9), 6),\n'
LAST_ROW = '        Codec(4, "zstd", 2, range(-(1 << 17), 23), 3),\n'

# Runs where the package has the codec.
START = """
import os
import sys
import pyarrow as pa
import sparklog
from sparklog.cli.commands.main import app
from sparklog.errors import SeglogError
from sparklog.record.batches.framing import scan_headers
from typer.testing import CliRunner

def refusal(call, *given, **named):
    try:
        call(*given, **named)
    except SeglogError as error:
        return error.message
    raise AssertionError("it was not refused")

def says(text, message):
    assert text in message, message

def batches(folder):
    from pathlib import Path
    found = []
    for path in sorted(Path(folder).glob("*.log")):
        data = memoryview(path.read_bytes())
        headers = scan_headers(data)
        for at, size, codec_id, magic in zip(headers.column("position").tolist(),
                headers.column("batch_bytes").tolist(), headers.codec_ids.tolist(), headers.column("magic").tolist()):
            found.append((magic, codec_id, data[at + 61 : at + size][0]))
    return found

def values(folder, **given):
    with sparklog.open_log(folder) as log:
        read = log.read(columns=["value", "compression"], **given)
    return list(zip(*(read.column(name).to_pylist() for name in ("value", "compression"))))

ROOT = sys.argv[1]
DIRECTORY = ROOT + "/logs"
os.mkdir(DIRECTORY)
FOLDER = DIRECTORY + "/events-0"
ROWS = [b"%03d" % n + bytes(40) for n in range(300)]

def written(folder, keys=1000, **properties):
    config = sparklog.LogConfig.from_properties({"batch.size": "1000", **properties})
    rows = pa.record_batch({"key": [b"%d" % (n % keys) for n in range(300)], "value": ROWS})
    with sparklog.PartitionLog.open(folder, config) as log:
        log.append(rows)
"""

WRITTEN = """
written(FOLDER, **{"compression.type": "squash", "compression.squash.level": "8"})
assert len(batches(FOLDER)) > 8 and set(batches(FOLDER)) == {(2, 5, 8)}, batches(FOLDER)
assert values(FOLDER) == [(value, "squash") for value in ROWS]
assert [row for row, _ in values(FOLDER, where="offset >= 200 AND key = '250'")] == [ROWS[250]]
written(DIRECTORY + "/default-0", **{"compression.type": "squash"})
assert set(batches(DIRECTORY + "/default-0")) == {(2, 5, 6)}
verified = CliRunner().invoke(app, ["verify", DIRECTORY])
assert verified.exit_code == 0, verified.output
"""

REWRITTEN = """
written(FOLDER, keys=7, **{"compression.type": "squash", "segment.bytes": "500"})
config = {"min.cleanable.dirty.ratio": "0", "file.delete.delay.ms": "0"}
sparklog.clean([DIRECTORY], config=config, cleanup_policy="compact")
assert 7 <= len(values(FOLDER)) < 100, len(values(FOLDER))
assert {codec for _, codec in values(FOLDER)} == {"squash"}
left = [value for value, _ in values(FOLDER)]
for codec, codec_id in (("zstd", 4), ("squash", 5)):
    sparklog.clean([DIRECTORY], recompress=codec)
    assert values(FOLDER) == [(value, codec) for value in left], codec
sparklog.copy([DIRECTORY], ROOT + "/copies", recompress="lz4")
sparklog.copy([ROOT + "/copies"], ROOT + "/again", recompress="squash")
assert values(ROOT + "/again/events-0") == [(value, "squash") for value in left]
written(ROOT + "/old/events-0", **{"compression.type": "gzip", "message.format.version": "0.10.2"})
sparklog.clean([ROOT + "/old"], recompress="squash", format=2)
assert values(ROOT + "/old/events-0") == [(value, "squash") for value in ROWS]
"""

REFUSED = """
old = {"compression.type": "squash", "message.format.version": "0.10.2"}
says("which has no codec squash: compression.type must be gzip, snappy, lz4 or", refusal(written, FOLDER, **old))
written(FOLDER, **{"compression.type": "squash"})
message = refusal(sparklog.clean, [DIRECTORY], recompress="squash", format=1)
assert message == "format 1 does not have the codec squash: name gzip, snappy, lz4 or none", message
from sparklog.record.codecs.table import decompressor
says("unknown codec 5 in a batch of magic 1", refusal(decompressor(5, 1), memoryview(b""), 9))
"""

NAMED = """
names = "none, gzip, snappy, lz4, zstd, squash"
written(FOLDER)
read = sparklog.LogConfig.from_properties
says("one of uncompressed, gzip, snappy, lz4, zstd, squash, producer", refusal(read, {"compression.type": "x"}))
says("compression.squash.level must be a whole number, at least 1 and at most 8", refusal(
    read, {"compression.squash.level": "9"}))
assert read({"compression.squash.level": "3"}).idle("append") == {
    "compression.squash.level": "compression.type is lz4"}
says(names, refusal(sparklog.clean, [DIRECTORY], recompress="x"))
says(names, refusal(sparklog.copy, [DIRECTORY], ROOT + "/b", recompress="x"))
says(names, refusal(sparklog.Producer, log_directory=DIRECTORY, compression_type="x"))
with sparklog.Producer(log_directory=DIRECTORY, compression_type="squash") as producer:
    producer.send("events", b"value")
assert values(FOLDER)[-1] == (b"value", "squash")
from sparklog.spark.options.write import WriteOptions
given = {"kafka.compression.type": "squash", "kafka.compression.squash.level": "2"}
options = WriteOptions.parse({"path": DIRECTORY, **given})
assert options.config.compression_level == 2 and options.config.codec == "squash"
for command in ("clean", "copy"):
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "300"}).output
    assert names in shown, shown
shown = CliRunner().invoke(app, ["describe", DIRECTORY, "--full"], env={"COLUMNS": "300"}).output
assert "squash" in shown, shown
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the package is with one more module and one more row, and nothing else."""
    root = tmp_path_factory.mktemp("package")
    source = Path(sparklog.__file__).parent
    shutil.copytree(source, root / "sparklog", ignore=shutil.ignore_patterns("__pycache__"))
    codecs = root / "sparklog" / "record" / "codecs"
    (codecs / "squash.py").write_text(MODULE)
    table = (codecs / "table.py").read_text()
    assert table.count(LAST_ROW) == 1
    (codecs / "table.py").write_text(table.replace(LAST_ROW, LAST_ROW + ROW))
    return root


@pytest.mark.parametrize(
    "script", [WRITTEN, REWRITTEN, REFUSED, NAMED], ids=["written", "rewritten", "refused", "named"]
)
def test_codec_that_is_added_as_a_module_and_a_row_is_known_everywhere(
    tmp_path: Path, package: Path, script: str
) -> None:
    command = [sys.executable, "-c", START + script, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(package)}
    ran = subprocess.run(command, cwd=package, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
