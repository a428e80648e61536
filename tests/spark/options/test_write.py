"""The options of a write: their names, their text, and what is wrong with them."""

from __future__ import annotations

import logging

import pytest

from sparklog.errors import InvalidOptionError
from sparklog.spark.options.write import WriteOptions
from sparklog.topic.write.txn_versions import TxnVersion


def parse(**given: str) -> WriteOptions:
    return WriteOptions.parse({"path": "/logs", **given})


def test_names_are_taken_in_any_case() -> None:
    found = WriteOptions.parse({"PATH": "/logs", "NumPartitions": "3", "TOPIC": "t", "Compression.Type": "zstd"})
    assert (str(found.path), found.num_partitions, found.topic, found.config.codec) == ("/logs", 3, "t", "zstd")


def test_defaults_are_kafkas_but_for_the_codec() -> None:
    found = parse()
    assert (found.config.codec, found.config.batch_size, found.partitioner) == ("lz4", 16_384, "default")
    assert found.transaction is None
    assert parse(txnAppId="a", txnVersion="0").transaction == TxnVersion("a", 0)
    assert parse(txnAppId="a", txnVersion="0").transactional_id is None


def test_transaction_needs_no_version() -> None:
    found = parse(transactional="true", txnAppId="a")
    assert (found.transactional_id, found.transaction) == ("a", None)
    assert parse(transactional="true", txnAppId="a", txnVersion="3").transaction == TxnVersion("a", 3)


def test_what_is_for_streams_does_nothing_in_a_batch_write() -> None:
    assert parse().idle_in_batches() == []
    assert parse(onReplay="skip", failOnDataLoss="false").idle_in_batches() == ["onReplay", "failOnDataLoss"]
    found = parse(onReplay="SKIP", txnAppId="a", txnVersion="1")
    assert found.idle_in_batches() == []
    assert found.transaction == TxnVersion("a", 1, skips_replays=True)


def test_what_only_a_broker_needs_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparklog"):
        parse(**{"kafka.bootstrap.servers": "x:9092", "kafka.acks": "all"})
    (record,) = caplog.records
    assert "kafka.acks, kafka.bootstrap.servers" in record.message


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": ""}, "no path is given"),
        ({"topics": "t"}, "no option 'topics' of a write: did you mean 'topic'"),
        ({"startingOffsets": "earliest"}, "no option 'startingoffsets' of a write"),
        ({"numPartitions": "many"}, "numPartitions must be a whole number"),
        ({"numPartitions": "2147483648"}, "numPartitions must be at most 1000000, got 2147483648"),
        ({"numPartitions": "10000000000"}, "numPartitions must be at most 1000000, got 10000000000"),
        ({"txnAppId": "a", "txnVersion": "9223372036854775808"}, "txnVersion must be a whole number, 0 or more"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "txnVersion must be a whole number, 0 or more"),
        ({"transactional": "true"}, "transactional needs txnAppId, which is the transactional id"),
        ({"transactional": "true", "txnVersion": "1"}, "transactional needs txnAppId"),
        ({"transactional": "yes", "txnAppId": "a"}, "transactional must be true or false"),
        ({"transactional": "false", "txnAppId": "a"}, "txnAppId and txnVersion go together"),
        ({"topicId": "AAAAAAAAAAAAAAAAAAAAAA"}, "topicId must be"),
        ({"segment.bytes": "12"}, "segment.bytes must be"),
        ({"batch.size": "1", "kafka.batch.size": "2"}, "give one of them"),
        ({"includeHeaders": "yes"}, "includeHeaders must be true or false"),
    ],
    ids=str,
)
def test_wrong_option_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        parse(**given)
