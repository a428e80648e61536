"""Options as Spark hands them over: every one, its default, and what is said where it is wrong."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from sparklog.errors import InvalidOptionError
from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition
from sparklog.log.properties import described
from sparklog.record.codecs.table import DECOMPRESSED_BYTES_MAX
from sparklog.spark.options.parsing import declared_names
from sparklog.spark.options.read import WRITE_ONLY, SeglogOptions
from sparklog.spark.options.warnings import warn_batch
from sparklog.spark.options.write import WriteOptions

A0, A1, B0 = TopicPartition("topicA", 0), TopicPartition("topicA", 1), TopicPartition("topicB", 0)
OFFSETS = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
TIMES_FORM = (
    '{"topicA": {"0": 123456789, "1": 123456789}, "topicB": {"0": 123456789, "1": 123456789}}'  # in the message
)


TIMES = "ms since the epoch, as 1772442000000, or ISO 8601, as 2026-03-02T09:00:00Z"


def parse(**given: str) -> SeglogOptions:
    return SeglogOptions.parse({"path": "/logs", **{name.replace("__", "."): text for name, text in given.items()}})


def refusal(**given: str) -> str:
    with pytest.raises(InvalidOptionError) as raised:
        parse(**given).check_batch()
    return raised.value.message


def test_defaults_are_the_connectors() -> None:
    options = parse()
    assert options.starting.word == "earliest"
    assert options.ending.word == "latest"
    assert options.fail_on_data_loss is True
    assert options.include_headers is False
    assert options.timestamp_strategy == "error"
    assert options.isolation_level == "read_uncommitted"
    assert options.min_partitions is None
    assert options.max_records_per_partition is None
    options.check_batch()


def test_every_option_is_declared_with_a_sentence() -> None:
    for declaring in (SeglogOptions, WriteOptions):
        options = described(declaring)
        assert all(each.name and each.doc.endswith(".") for each in options)
        assert len({each.name.lower() for each in options}) == len(options)


def test_names_are_read_in_any_case() -> None:
    options = SeglogOptions.parse({"PATH": "/logs", "INCLUDEHEADERS": "True", "Subscribe": " a , b ,,"})
    assert (options.include_headers, options.subscribe) == (True, ("a", "b"))


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "file://[x", "file:", "file://", "file:///a%00"])
def test_path_that_no_file_can_have_is_refused_by_its_option(path: str) -> None:
    assert refusal(path=path).startswith("path ")
    assert refusal(paths=json.dumps([path])).startswith("paths ")
    for option in ("path", "reportPath"):
        with pytest.raises(InvalidOptionError, match=rf"\] {option} "):
            WriteOptions.parse({"path": "/logs", "topic": "t", option: path})


@pytest.mark.parametrize("path", ["", " "])
def test_empty_path_is_not_the_folder_that_we_run_in(path: str) -> None:
    assert "no path is given" in refusal(path=path)
    assert refusal(paths=json.dumps([path])).startswith("paths must be a JSON list of paths")
    with pytest.raises(InvalidOptionError, match="no path is given"):
        WriteOptions.parse({"path": path, "topic": "t"})
    with pytest.raises(InvalidOptionError, match="reportPath is empty"):
        WriteOptions.parse({"path": "/logs", "topic": "t", "reportPath": path})


def test_paths_become_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    options = SeglogOptions.parse({"paths": '["a", "/b", "file:///c%20d"]'})
    assert [place.path for place in options.all_paths] == [f"{tmp_path}/a", "/b", "/c d"]


def test_values_are_read() -> None:
    options = parse(
        assign='{"topicA":[0,1],"topicB":[2]}',
        startingOffsets=OFFSETS,
        endingTimestamp=" 1000 ",
        startingOffsetsByTimestampStrategy="LATEST",
        failOnDataLoss="false",
        minPartitions="7",
        maxRecordsPerPartition="1000",
        kafka__isolation__level="read_committed",
        columns="offset, value",
        max__decompressed__message__bytes="1024",
    )
    assert options.assign == {"topicA": (0, 1), "topicB": (2,)}
    assert options.starting.offsets == {A0: 23, A1: -1, B0: -2}
    assert options.ending.time == 1000
    assert options.timestamp_strategy == "latest"
    assert options.fail_on_data_loss is False
    assert (options.min_partitions, options.max_records_per_partition) == (7, 1000)
    assert options.isolation_level == "read_committed"
    assert options.columns == ("offset", "value")
    assert options.decompressed_bytes_max == 1024


def test_a_group_goes_before_offsets_and_after_times() -> None:
    given = {"startingOffsets": "latest", "endingOffsets": "earliest"}
    groups = {"startingOffsetsByGroup": " g", "endingOffsetsByGroup": "h"}
    options = parse(**given, **groups)
    assert (options.starting.group, options.ending.group) == (" g", "h")
    options.check_batch()
    options = parse(**groups, startingTimestamp="1", endingOffsetsByTimestamp='{"topicA":{"0":6}}')
    assert (options.starting.group, options.ending.group) == (None, None)


def test_a_time_goes_before_times_a_partition_and_they_before_offsets() -> None:
    given = {"startingOffsets": "latest", "endingOffsets": "earliest"}
    times = {"startingOffsetsByTimestamp": '{"topicA":{"0":5}}', "endingOffsetsByTimestamp": '{"topicA":{"0":6}}'}
    options = parse(**given, **times, startingTimestamp="1", endingTimestamp="2")
    assert (options.starting.time, options.ending.time) == (1, 2)
    options.check_batch()
    options = parse(**given, **times)
    assert (options.starting.times, options.ending.times) == ({A0: 5}, {A0: 6})
    options.check_batch()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        ({"endingOffsets": "EARLIEST"}, "ending offset can't be earliest for batch queries on Kafka"),
        (
            {"startingOffsets": '{"topicA":{"0":-1}}'},
            "startingOffsets for topicA-0 can't be latest for batch queries on Kafka",
        ),
        (
            {"endingOffsets": '{"topicA":{"0":-2}}'},
            "ending offset for topicA-0 can't be earliest for batch queries on Kafka",
        ),
        ({"startingTimestamp": "soon"}, f"Expected a single long value, got soon: give {TIMES}"),
        ({"endingTimestamp": "1.5"}, f"Expected a single long value, got 1.5: give {TIMES}"),
        ({"minPartitions": "0"}, "minPartitions must be positive"),
        ({"maxRecordsPerPartition": "-1"}, "maxrecordsperpartition must be positive"),
        (
            {"assign": "topicA"},
            "No topicpartitions to assign as specified value for option 'assign' is 'topicA'",
        ),
        ({"assign": "{}"}, "No topicpartitions to assign as specified value for option 'assign' is '{}'"),
        (
            {"assign": '{"topicA":0}'},
            'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got {"topicA":0}',
        ),
        ({"assign": '{"a":["0"]}'}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got {"a":["0"]}'),
        ({"assign": '{"a":[0]'}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got {"a":[0]'),
        ({"subscribe": " , "}, "No topics to subscribe to as specified value for option 'subscribe' is ' , '"),
        (
            {"subscribePattern": " "},
            "Pattern to subscribe is empty as specified value for option 'subscribePattern' is ' '",
        ),
        ({"startingOffsets": "first"}, f"Expected e.g. {OFFSETS}, got first"),
        ({"startingOffsets": '{"a":5}'}, f'Expected e.g. {OFFSETS}, got {{"a":5}}'),
        ({"endingOffsets": '{"a":{"x":5}}'}, f'Expected e.g. {OFFSETS}, got {{"a":{{"x":5}}}}'),
        ({"endingOffsets": '{"a":{"0":"5"}}'}, f'Expected e.g. {OFFSETS}, got {{"a":{{"0":"5"}}}}'),
        ({"startingOffsetsByTimestamp": "1"}, f"Expected e.g. {TIMES_FORM}, got 1; a time is {TIMES}"),
        (
            {"subscribe": "a", "assign": '{"a":[0]}'},
            "Only one of the following options can be specified for Kafka source: "
            "subscribe, subscribepattern, assign. See the docs for more details.",
        ),
    ],
)
def test_wrong_value_is_refused_in_the_connectors_words(given: dict[str, str], message: str) -> None:
    assert refusal(**given) == message


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"failOnDataLoss": "yes"}, "failOnDataLoss must be true or false, got 'yes'"),
        ({"includeHeaders": ""}, "includeHeaders must be true or false"),
        ({"isolationLevel": "committed"}, "isolationLevel must be read_uncommitted or read_committed"),
        ({"kafka__isolation__level": "x"}, "isolationLevel must be"),
        ({"isolationLevel": "read_committed", "kafka__isolation__level": "read_uncommitted"}, "give one of them"),
        ({"startingOffsetsByTimestampStrategy": "skip"}, "must be error or latest"),
        ({"minPartitions": "many"}, "minPartitions must be a whole number, got 'many'"),
        ({"max__decompressed__message__bytes": "0"}, "must be positive"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "startingOffsets for a-0 is -3"),
        ({"subscribePattern": "("}, "not a regular expression"),
        ({"columns": "ofset"}, "no column 'ofset': did you mean 'offset'?"),
        ({"columns": "timestamptype"}, "did you mean 'timestampType'?"),
        ({"columns": "offset,offset"}, "column 'offset' is given twice"),
        ({"columns": ","}, "columns names no column"),
        ({"paths": "/a,/b"}, "JSON list"),
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'?"),
        ({"isolation__level": "read_committed"}, "did you mean 'isolationLevel'?"),
        ({"subscribed": "a"}, "did you mean 'subscribe'?"),
        ({"zzz": "1"}, "no option 'zzz': there are"),
    ],
)
def test_wrong_value_is_refused_with_what_would_be_right(given: dict[str, str], told: str) -> None:
    assert told in refusal(**given)


@pytest.mark.parametrize("given", [{}, {"path": ""}, {"paths": "[]"}])
def test_missing_path_says_what_to_do_also_for_tables(given: dict[str, str]) -> None:
    with pytest.raises(InvalidOptionError, match="no path is given") as raised:
        SeglogOptions.parse(given)
    for way in ("CREATE TEMPORARY VIEW", "WITH (path = '...')", "spark.read.options(path='...').table('t')"):
        assert way in raised.value.message


def test_what_spark_adds_for_a_table_is_passed_over() -> None:
    added = {"provider": "seglog", "owner": "me", "location": "/x", "option.subscribe": "a", "option.path": "/logs"}
    assert SeglogOptions.parse({"path": "/logs", "subscribe": "a", **added}).subscribe == ("a",)


def test_options_of_brokers_and_streams_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    given = {
        "path": "/logs",
        "kafka.bootstrap.servers": "host:9092",
        "kafka.security.protocol": "SSL",
        "kafka.isolation.level": "read_committed",
        "groupIdPrefix": "g",
        "maxOffsetsPerTrigger": "10",
    }
    with caplog.at_level(logging.WARNING, "sparklog"):
        SeglogOptions.parse(given)
        warn_batch(given, [])
    assert caplog.messages == [
        "maxOffsetsPerTrigger option ignored in batch queries",
        "no broker is asked, so these options mean nothing here: "
        "groupIdPrefix, kafka.bootstrap.servers, kafka.security.protocol",
    ]


DEEP = "[" * 100_000


@pytest.mark.parametrize("name", ["assign", "startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "paths"])
def test_json_that_is_nested_endlessly_is_refused_by_the_options_name(name: str) -> None:
    message = refusal(**{name: f'{{"a":{DEEP}'})
    assert message.startswith(f"{name} is JSON that is nested too deep: ")
    assert len(message) < 400


def test_pattern_that_is_too_large_is_refused_by_the_options_name() -> None:
    for pattern in ("(" * 100_000 + ")" * 100_000, "a{99999999999999999999}"):
        message = refusal(subscribePattern=pattern)
        assert message.startswith("subscribePattern is too large a regular expression: ")
        assert len(message) < 400


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1772442000000", 1772442000000),
        ("2026-03-02T09:00:00Z", 1772442000000),
        (" 2026-03-02 10:00:00+01:00 ", 1772442000000),
        ("2026-03-02 09:00", 1772442000000),
        ("2026-03-02", 1772409600000),
        ("20260302", 20260302),
    ],
)
def test_time_is_ms_or_iso_8601_in_every_option_that_takes_times(text: str, milliseconds: int) -> None:
    for name in ("startingTimestamp", "endingTimestamp"):
        options = parse(**{name: text})
        assert (options.starting_timestamp or options.ending_timestamp) == milliseconds
    if not text.isdigit():
        for name in ("startingOffsetsByTimestamp", "endingOffsetsByTimestamp"):
            options = parse(**{name: json.dumps({"a": {"0": text, "1": 5}})})
            times = options.starting_times or options.ending_times
            assert times == {TopicPartition("a", 0): milliseconds, TopicPartition("a", 1): 5}


@pytest.mark.parametrize(
    "given",
    [
        {"startingTimestamp": "yesterday"},
        {"endingTimestamp": "2026-13-01"},
        {"startingOffsetsByTimestamp": '{"a":{"0":"yesterday"}}'},
        {"endingOffsetsByTimestamp": '{"a":{"0":"5"}}'},
    ],
)
def test_time_that_is_none_is_refused_with_both_forms_that_it_may_have(given: dict[str, str]) -> None:
    message = refusal(**given)
    assert message.startswith(("Expected a single long value, got ", "Expected e.g. {"))
    assert "ms since the epoch, as 1772442000000, or ISO 8601, as 2026-03-02T09:00:00Z" in message


def test_offset_is_no_time() -> None:
    assert refusal(startingOffsets='{"a":{"0":"2026-03-02"}}').startswith("Expected e.g.")


@pytest.mark.parametrize("number", ["10000000", "2147483648", "1000000000000000000", "100001"])
def test_more_tasks_than_spark_can_plan_are_refused(number: str) -> None:
    assert refusal(minPartitions=number) == f"minPartitions must be at most 100000, got {number}"


@pytest.mark.parametrize("number", ["9223372036854775808", "9999999999999999999", "1" * 5000])
def test_numbers_beyond_64_bits_are_no_numbers(number: str) -> None:
    assert "minPartitions must be a whole number" in refusal(minPartitions=number)
    assert "Expected a single long value" in refusal(startingTimestamp=number)
    assert "Expected e.g." in refusal(endingOffsets=f'{{"a":{{"0":{number}}}}}')


def warnings_of(caplog: pytest.LogCaptureFixture, *columns: str, **given: str) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "sparklog"):
        warn_batch(given, columns or ("value", "headers"))
    return caplog.messages


def test_option_that_others_leave_nothing_to_do_is_warned_of_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_of(caplog, startingTimestamp="1", startingOffsets="earliest", endingOffsets="latest") == [
        "the option startingOffsets does nothing here: startingTimestamp goes before it"
    ]
    assert warnings_of(caplog, endingOffsets="latest", endingOffsetsByTimestamp="{}", endingTimestamp="1") == [
        "the option endingOffsetsByTimestamp does nothing here: endingTimestamp goes before it",
        "the option endingOffsets does nothing here: endingTimestamp goes before it",
    ]
    assert warnings_of(caplog, startingOffsetsByTimestampStrategy="latest") == [
        "the option startingOffsetsByTimestampStrategy does nothing here: no starting time is given"
    ]
    assert warnings_of(caplog, startingOffsetsByGroup="g", startingOffsets="earliest", consumerOffsetsPath="/x") == [
        "the option startingOffsets does nothing here: startingOffsetsByGroup goes before it"
    ]
    assert warnings_of(caplog, consumerOffsetsPath="/x") == [
        "the option consumerOffsetsPath does nothing here: no group is given to begin or to end at"
    ]
    assert warnings_of(caplog, "value", includeHeaders="true") == [
        "the option includeHeaders does nothing here: the columns are chosen, and headers is not among them"
    ]


def test_options_that_have_their_effect_are_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    given = {"startingOffsetsByTimestamp": "{}", "startingOffsetsByTimestampStrategy": "latest"}
    assert warnings_of(caplog, **given, includeHeaders="true", endingOffsets="latest", minPartitions="3") == []
    assert warnings_of(caplog, "value", includeHeaders="false") == []


def test_one_limit_of_decompression_for_reads_and_writes() -> None:
    assert parse().decompressed_bytes_max == LogConfig().max_decompressed_message_bytes == DECOMPRESSED_BYTES_MAX
    assert "at most 2147483639" in refusal(max__decompressed__message__bytes="2147483640")


def test_option_of_a_write_is_refused_with_what_to_say_instead() -> None:
    with pytest.raises(InvalidOptionError, match=r"the option topic is of a write.* set subscribe to its name"):
        SeglogOptions.parse({"path": "/logs", "topic": "events"})
    with pytest.raises(InvalidOptionError, match=r"the option numPartitions is of a write"):
        SeglogOptions.parse({"path": "/logs", "NUMPARTITIONS": "3"})


def test_options_of_a_write_are_those_that_no_read_has() -> None:
    assert set(WRITE_ONLY) == set(declared_names(WriteOptions)) - set(declared_names(SeglogOptions))


def test_table_is_refused_with_what_to_say_instead() -> None:
    """Spark hands neither the path nor the options of a table on, and says nothing that tells a table from a path."""
    with pytest.raises(InvalidOptionError, match=r"no path is given.*saveAsTable.* read with \.load\(path\)"):
        SeglogOptions.parse({})
    with pytest.raises(InvalidOptionError, match=r"say \.save.*saveAsTable.*Write with \.save\(path\)"):
        WriteOptions.parse({"topic": "events"})
