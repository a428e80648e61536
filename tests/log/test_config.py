"""Topic properties: what is taken, what is refused and in which words, and the sample file."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidOptionError, PathNotFoundError
from sparklog.log.config import LogConfig, property_names
from sparklog.log.properties import described, options_of

SAMPLE = Path(__file__).parents[2] / "conf" / "topic.properties"
INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1

# What Kafka 4 has, property by property, but for compression.type and max.decompressed.message.bytes (2147483639); and
# message.format.version, which Kafka 3 is the last to have.
DEFAULTS = {
    "segment.bytes": "1073741824",
    "segment.ms": "604800000",
    "segment.jitter.ms": "0",
    "segment.index.bytes": "10485760",
    "index.interval.bytes": "4096",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "max.message.bytes": "1048588",
    "max.decompressed.message.bytes": "1073741824",
    "delete.retention.ms": "86400000",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "9223372036854775807",
    "min.cleanable.dirty.ratio": "0.5",
    "file.delete.delay.ms": "60000",
    "cleanup.policy": "delete",
    "compression.type": "lz4",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.zstd.level": "3",
    "preallocate": "false",
    "message.format.version": "3.0-IV1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "3600000",
    "batch.size": "16384",
}


# What the sample file says of where a property acts.
ACTS = {
    ("append", "commit"): "",
    ("append", "commit", "read"): "(Of reads too.) ",
    ("append",): "(Of PartitionLog only; a write of Spark warns that it does nothing there.) ",
    ("clean",): "(Of a cleaning only; whoever sets it for a write is warned.) ",
}


def test_defaults_are_those_of_kafka() -> None:
    assert LogConfig.from_properties({}) == LogConfig()
    assert {each.name: each.default for each in described(LogConfig)} == DEFAULTS


def test_sample_file_holds_every_property_with_its_default_bound_and_meaning() -> None:
    assert LogConfig.from_file(str(SAMPLE)) == LogConfig()
    assert javaproperties.loads(SAMPLE.read_bytes()) == DEFAULTS
    words = " ".join(SAMPLE.read_text().replace("# ", "").split())
    for each in described(LogConfig):
        assert f"{ACTS[each.acts]}{each.doc} Takes {each.bound}. {each.name}={each.default}" in words


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("segment.bytes", "14", "segment_bytes", 14),
        ("segment.bytes", " 1048576 ", "segment_bytes", 1 << 20),
        ("log.segment.bytes", "+20000", "segment_bytes", 20_000),
        ("log.roll.ms", "5", "segment_ms", 5),
        ("log.roll.hours", "2", "segment_ms", 7_200_000),
        ("log.roll.jitter.ms", "5", "segment_jitter_ms", 5),
        ("log.roll.jitter.hours", "0", "segment_jitter_ms", 0),
        ("log.index.size.max.bytes", "4", "segment_index_bytes", 4),
        ("log.index.interval.bytes", "0", "index_interval_bytes", 0),
        ("log.flush.interval.messages", "1", "flush_messages", 1),
        ("log.flush.interval.ms", "0", "flush_ms", 0),
        ("log.flush.scheduler.interval.ms", "7", "flush_ms", 7),
        ("log.retention.bytes", "-1", "retention_bytes", -1),
        ("log.retention.minutes", "3", "retention_ms", 180_000),
        ("log.retention.hours", "1", "retention_ms", 3_600_000),
        ("log.retention.hours", "-1", "retention_ms", -1),
        ("message.max.bytes", "0", "max_message_bytes", 0),
        ("log.cleaner.delete.retention.ms", "1", "delete_retention_ms", 1),
        ("log.cleaner.min.compaction.lag.ms", "1", "min_compaction_lag_ms", 1),
        ("log.cleaner.max.compaction.lag.ms", "1", "max_compaction_lag_ms", 1),
        ("log.cleaner.min.cleanable.ratio", "1", "min_cleanable_dirty_ratio", 1.0),
        ("min.cleanable.dirty.ratio", "1e-3", "min_cleanable_dirty_ratio", 0.001),
        ("log.segment.delete.delay.ms", "0", "file_delete_delay_ms", 0),
        ("log.cleanup.policy", "compact, delete", "cleanup_policy", ("compact", "delete")),
        ("cleanup.policy", "", "cleanup_policy", ()),
        ("compression.type", "none", "compression_type", "uncompressed"),
        ("compression.zstd.level", "-131072", "compression_zstd_level", -131_072),
        ("log.preallocate", "TRUE", "preallocate", True),
        ("log.message.timestamp.type", "LogAppendTime", "message_timestamp_type", "LogAppendTime"),
        ("log.message.timestamp.before.max.ms", "0", "message_timestamp_before_max_ms", 0),
        ("log.message.timestamp.after.max.ms", "0", "message_timestamp_after_max_ms", 0),
        ("batch.size", "0", "batch_size", 0),
    ],
)
def test_value_is_taken_under_each_of_its_names(name: str, text: str, field: str, value: Any) -> None:
    assert LogConfig.from_properties({name: text}) == replace(LogConfig(), **{field: value})


def test_value_that_is_no_text_is_taken_as_its_text() -> None:
    config = LogConfig.from_properties({"segment.bytes": 1 << 20, "preallocate": True})
    assert (config.segment_bytes, config.preallocate) == (1 << 20, True)


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.ms": "3", "retention.ms": "4"}, 4),
        ({"log.retention.hours": "1", "retention.ms": "-1"}, -1),
    ],
)
def test_topics_own_name_and_finer_unit_come_first(given: dict[str, str], retention_ms: int) -> None:
    assert LogConfig.from_properties(given).retention_ms == retention_ms


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"segment.bytes": "13"}, "segment.bytes must be a whole number, at least 14 and at most 2147483647, got '13'"),
        ({"segment.bytes": "2147483648"}, "segment.bytes must be a whole number, at least 14 and at most 2147483647"),
        ({"segment.bytes": "1g"}, "got '1g'"),
        ({"segment.bytes": "1_000"}, "got '1_000'"),
        ({"segment.bytes": "1e9"}, "got '1e9'"),
        ({"segment.bytes": ""}, "got ''"),
        ({"segment.ms": "0"}, "segment.ms must be a whole number, at least 1"),
        ({"segment.ms": "9223372036854775808"}, "at most 9223372036854775807"),
        ({"log.roll.hours": "0"}, "log.roll.hours must be a whole number, at least 1 and at most 2562047788015"),
        ({"log.roll.hours": "2562047788016"}, "log.roll.hours must be"),
        ({"log.roll.jitter.hours": "-1"}, "log.roll.jitter.hours must be a whole number, at least 0"),
        ({"log.retention.hours": "-2"}, "log.retention.hours must be a whole number, at least -1"),
        ({"retention.ms": "1", "log.retention.hours": "x"}, "log.retention.hours must be a whole number"),
        ({"min.cleanable.dirty.ratio": "1.01"}, "min.cleanable.dirty.ratio must be a number, at least 0 and at most 1"),
        ({"min.cleanable.dirty.ratio": "nan"}, "got 'nan'"),
        ({"preallocate": "yes"}, "preallocate must be true or false, got 'yes'"),
        ({"cleanup.policy": "compact,compact"}, "cleanup.policy must be any of compact, delete, each once"),
        ({"cleanup.policy": "archive"}, "got 'archive'"),
        ({"cleanup.policy": "delete,"}, "got 'delete,'"),
        (
            {"compression.type": "LZ4"},
            "compression.type must be one of uncompressed, gzip, snappy",
        ),
        ({"compression.gzip.level": "0"}, "compression.gzip.level must be 1 to 9, or -1"),
        ({"compression.gzip.level": "10"}, "compression.gzip.level must be"),
        ({"compression.lz4.level": "18"}, "compression.lz4.level must be a whole number, at least 1 and at most 17"),
        ({"compression.zstd.level": "23"}, "compression.zstd.level must be"),
        ({"message.timestamp.type": "createtime"}, "must be CreateTime or LogAppendTime, got 'createtime'"),
        (
            {"min.compaction.lag.ms": "11", "max.compaction.lag.ms": "10"},
            r"min.compaction.lag.ms \(11\) must not be greater than max.compaction.lag.ms \(10\)",
        ),
        ({"segment.byte": "14"}, "no topic property 'segment.byte': did you mean 'segment.bytes'?"),
        ({"message.timestamp.difference.max.ms": "1"}, "did you mean 'message.timestamp.*.max.ms'"),
        ({"Segment.Bytes": "14"}, "no topic property 'Segment.Bytes': did you mean"),
        ({"xyzzy": "1"}, "no topic property 'xyzzy': see conf/topic.properties"),
    ],
)
def test_wrong_property_is_refused_by_name_value_and_bound(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message.replace(".", r"\.").replace(r"\.*", ".*")):
        LogConfig.from_properties(given)


@pytest.mark.parametrize(
    "wrong",
    [
        {"segment_bytes": 13},
        {"segment_bytes": True},
        {"segment_bytes": "1048576"},
        {"min_cleanable_dirty_ratio": 1.5},
        {"cleanup_policy": "delete"},
        {"preallocate": 1},
        {"compression_type": "none "},
        {"min_compaction_lag_ms": 2, "max_compaction_lag_ms": 1},
    ],
)
def test_wrong_argument_is_refused_too(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError):
        LogConfig(**wrong)


def test_properties_of_a_clusters_own_life_are_taken_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparklog"):
        config = LogConfig.from_properties({"min.insync.replicas": "2", "remote.storage.enable": "true"})
    assert config == LogConfig()
    (record,) = caplog.records
    assert "mean nothing here: min.insync.replicas, remote.storage.enable" in record.getMessage()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("min.insync.replicas", ["0", "-1", "", "1.5", "two", "\u0661"]),
        ("unclean.leader.election.enable", ["", "yes", "1"]),
        ("local.retention.ms", ["-3", "", "x"]),
        ("leader.replication.throttled.replicas", ["0", "0:1,", "a:b"]),
    ],
)
def test_values_that_a_broker_would_refuse_are_refused(name: str, wrong: list[str]) -> None:
    for text in wrong:
        with pytest.raises(InvalidOptionError, match=rf"{name} must be .*, got "):
            LogConfig.from_properties({name: text})
    for name, right in {
        "min.insync.replicas": ["1", " 2 "],
        "remote.storage.enable": ["TRUE", "false"],
        "local.retention.bytes": ["-2", "-1", "0", "12"],
        "follower.replication.throttled.replicas": ["", "*", "0:1,2:3"],
    }.items():
        for text in right:
            LogConfig.from_properties({name: text})


def test_no_spelling_is_of_two_properties() -> None:
    declared = options_of(LogConfig).values()
    names = [each.name for each in declared] + [spelling.name for each in declared for spelling in each.spellings]
    assert len(set(names)) == len(names)
    assert set(names) <= property_names()


@pytest.mark.parametrize(
    ("given", "codec", "level"),
    [
        ({}, "lz4", 9),
        ({"compression.type": "producer"}, "lz4", 9),
        ({"compression.type": "uncompressed"}, "none", None),
        ({"compression.type": "snappy"}, "snappy", None),
        ({"compression.type": "gzip", "compression.gzip.level": "4"}, "gzip", 4),
        ({"compression.type": "zstd", "compression.zstd.level": "-7"}, "zstd", -7),
    ],
)
def test_codec_and_its_level(given: dict[str, str], codec: str, level: int | None) -> None:
    config = LogConfig.from_properties(given)
    assert (config.codec, config.compression_level) == (codec, level)


def test_batch_is_bound_by_the_segment_as_well() -> None:
    assert LogConfig().batch_bytes_max == 1_048_588
    assert LogConfig(segment_bytes=16_384).batch_bytes_max == 16_384


LONGS = st.integers(1, LONG_MAX)
LEVELS = st.tuples(st.sampled_from([-1, 1, 9]), st.integers(1, 17), st.integers(-131_072, 22))


@given(
    segment_bytes=st.integers(14, INT_MAX),
    segment_ms=LONGS,
    lags=st.tuples(LONGS, LONGS),
    ratio=st.floats(0, 1),
    policy=st.lists(st.sampled_from(["compact", "delete"]), unique=True),
    codec=st.sampled_from(["uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"]),
    levels=LEVELS,
    preallocate=st.booleans(),
)
def test_properties_survive_being_written_and_read(
    segment_bytes: int,
    segment_ms: int,
    lags: tuple[int, int],
    ratio: float,
    policy: list[str],
    codec: str,
    levels: tuple[int, int, int],
    preallocate: bool,
) -> None:
    named = zip(("gzip", "lz4", "zstd"), levels, strict=True)
    levels_of_codecs: dict[str, Any] = {f"compression_{each}_level": level for each, level in named}
    config = LogConfig(
        segment_bytes=segment_bytes,
        segment_ms=segment_ms,
        min_compaction_lag_ms=min(lags),
        max_compaction_lag_ms=max(lags),
        min_cleanable_dirty_ratio=ratio,
        cleanup_policy=tuple(policy),
        compression_type=codec,
        **levels_of_codecs,
        preallocate=preallocate,
    )
    properties = {each.name: each.text(getattr(config, field)) for field, each in options_of(config).items()}
    assert LogConfig.from_properties(properties) == config


@pytest.mark.parametrize(
    ("magic", "versions"),
    [
        (0, "0.8.0 0.8.2 0.8.2.2 0.9.0 0.9.0.1"),
        (1, "0.10.0 0.10.0-IV0 0.10.0.1 0.10.1-IV2 0.10.2 0.10.2-IV0"),
        (2, "0.11.0 0.11.0-IV2 0.11.0.3 1.0 1.1-IV0 2.8 2.8-IV1 2.8.2 3.0-IV1 3.9 4.0-IV3"),
    ],
)
def test_version_of_kafka_says_the_record_format(magic: int, versions: str) -> None:
    for version in versions.split():
        assert LogConfig.from_properties({"message.format.version": version}).magic == magic, version
        assert LogConfig.from_properties({"log.message.format.version": version}).magic == magic, version


@pytest.mark.parametrize("version", ["", "0", "1", "0.7.2", "0.8.3", "0.9.1", "0.10.3", "0.12.0", "0.10", "2", "v2.8"])
def test_version_that_kafka_never_had_is_refused(version: str) -> None:
    with pytest.raises(
        InvalidOptionError, match=r"message\.format\.version must be a version of Kafka, such as 0\.9\.0"
    ):
        LogConfig.from_properties({"message.format.version": version})


def test_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "topic.properties"
    path.write_text(
        "! a note\nsegment.bytes : 2000\n  segment.ms\t5\ncleanup.policy=compact,\\\n   delete\nflush\\u002ems=3\n"
    )
    config = LogConfig.from_file(str(path))
    assert (config.segment_bytes, config.segment_ms, config.flush_ms) == (2000, 5, 3)
    assert config.cleanup_policy == ("compact", "delete")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("segment.bytes=2000\nsegment.bytes=3000\n", "segment.bytes is given twice: '2000' and '3000'"),
        ("segment.bytes=1\n", "segment.bytes must be"),
        ("segment.bytes=\\u12\n", "u12"),
        ("segment.bites=2000\n", "did you mean 'segment.bytes'"),
    ],
)
def test_wrong_file_is_refused_and_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "topic.properties"
    path.write_text(text)
    with pytest.raises(InvalidOptionError, match=rf"{message}.*\(file .*topic\.properties\)"):
        LogConfig.from_file(str(path))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PathNotFoundError, match=r"nowhere\.properties"):
        LogConfig.from_file(str(tmp_path / "nowhere.properties"))
