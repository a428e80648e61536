"""Each option of a read and of a write has its effect, which a test shows, or is warned of by its name."""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from sparklog.errors import LockedError
from sparklog.log.properties import described
from sparklog.spark.options.read import SeglogOptions
from sparklog.spark.options.write import WriteOptions
from sparklog.spark.writer import SeglogWriter
from sparklog.write.locking import hold
from tests.places import directory_at
from tests.spark.conftest import ROOT

PLAN, PACKING, SOURCE, WRITE = "read/test_plan.py", "test_packing.py", "test_source.py", "test_write.py"
DECODING, STREAM, REPLICAS = "read/test_decoding.py", "stream/test_reader.py", "read/test_replicas.py"
READ_EFFECTS = {
    "path": (SOURCE, "test_golden_directory_reads_as_the_consumer_read_it"),
    "paths": (SOURCE, "test_every_form_of_path_loads"),
    "assign": (PLAN, "test_topics_and_partitions_are_chosen"),
    "subscribe": (PLAN, "test_topics_and_partitions_are_chosen"),
    "subscribePattern": (PLAN, "test_topics_and_partitions_are_chosen"),
    "replicas": (REPLICAS, "test_replicas_are_read_as_one_log_by_many_tasks"),
    "replicas.min": (REPLICAS, "test_replicas_are_read_as_one_log_by_many_tasks"),
    "startingTimestamp": (PLAN, "test_times_become_the_first_offset_at_or_after_them"),
    "startingOffsetsByTimestamp": (PLAN, "test_times_become_the_first_offset_at_or_after_them"),
    "startingOffsetsByGroup": (PLAN, "test_read_begins_where_a_group_is_and_at_the_start_where_it_has_not_been"),
    "startingOffsets": (PLAN, "test_offsets_a_partition"),
    "endingTimestamp": (PLAN, "test_times_become_the_first_offset_at_or_after_them"),
    "endingOffsetsByTimestamp": (PLAN, "test_times_become_the_first_offset_at_or_after_them"),
    "endingOffsetsByGroup": (PLAN, "test_reads_up_to_a_group_and_from_it_on_are_all_together"),
    "endingOffsets": (PLAN, "test_offsets_a_partition"),
    "consumerOffsetsPath": (PLAN, "test_group_whose_offsets_are_elsewhere_is_found_where_it_is_said"),
    "startingOffsetsByTimestampStrategy": (PLAN, "test_time_after_every_record_is_an_error_or_the_end"),
    "failOnDataLoss": (PLAN, "test_offsets_outside_the_log_are_data_loss_or_a_warning"),
    "onDamage": ("test_damage.py", "test_read_gives_every_record_of_a_dead_disk_and_the_view_what_is_lost"),
    "unknown": ("test_damage.py", "test_records_whose_marker_is_lost_are_left_out_or_kept"),
    "quarantine": ("test_damage.py", "test_read_gives_every_record_of_a_dead_disk_and_the_view_what_is_lost"),
    "includeHeaders": (SOURCE, "test_schema_is_the_connectors"),
    "headersAsMap": (DECODING, "test_headers_as_a_map_are_looked_up_by_name"),
    "onDecodeError": (DECODING, "test_text_is_text_and_bytes_that_are_none_are_an_error_or_null"),
    "keyFormat": (DECODING, "test_text_is_text_and_bytes_that_are_none_are_an_error_or_null"),
    "keySchema": (DECODING, "test_key_and_value_take_the_same_options"),
    "keyWire": (DECODING, "test_key_and_value_take_the_same_options"),
    "keySchemaId": (DECODING, "test_key_and_value_take_the_same_options"),
    "keyMessage": (DECODING, "test_key_and_value_take_the_same_options"),
    "valueFormat": (DECODING, "test_text_is_text_and_bytes_that_are_none_are_an_error_or_null"),
    "valueSchema": (DECODING, "test_key_and_value_take_the_same_options"),
    "valueWire": (DECODING, "test_key_and_value_take_the_same_options"),
    "valueSchemaId": (DECODING, "test_key_and_value_take_the_same_options"),
    "valueMessage": (DECODING, "test_key_and_value_take_the_same_options"),
    "minPartitions": (PLAN, "test_large_partitions_are_split_by_the_connectors_arithmetic"),
    "maxRecordsPerPartition": (PLAN, "test_large_partitions_are_split_by_the_connectors_arithmetic"),
    "excludePattern": (STREAM, "test_new_partitions_and_topics_are_read_from_their_earliest_offset"),
    "maxOffsetsPerTrigger": (STREAM, "test_limit_is_shared_by_the_partitions_in_proportion"),
    "minOffsetsPerTrigger": (STREAM, "test_few_offsets_are_waited_for"),
    "maxTriggerDelay": (STREAM, "test_few_offsets_are_waited_for"),
    "maxBytesPerTrigger": (STREAM, "test_bytes_are_limited"),
    "packBytes": (PACKING, "test_small_partitions_share_a_task_unless_told_otherwise"),
    "isolationLevel": (PLAN, "test_read_committed_ends_at_the_last_stable_offset"),
    "columns": (SOURCE, "test_every_column_can_be_read_by_name"),
    "view": ("read/test_views.py", "test_view_has_the_rows_that_python_reads"),
    "viewHistory": ("read/test_views.py", "test_view_has_the_rows_that_python_reads"),
    "where": ("test_where.py", "test_filtered_read_equals_where_on_a_full_read"),
    "max.decompressed.message.bytes": (SOURCE, "test_batch_larger_than_the_limit_is_refused"),
}
WRITE_EFFECTS = {
    "path": (WRITE, "test_every_column_comes_back"),
    "topic": (WRITE, "test_explicit_partition_is_where_the_row_goes"),
    "numPartitions": (WRITE, "test_empty_dataframe_makes_the_topic"),
    "partitioner": (WRITE, "test_options_of_the_kafka_sink_mean_the_same"),
    "topicId": ("worker/test_boundary.py", "test_write_that_is_refused_at_its_commit"),
    "txnAppId": (WRITE, "test_rerun_of_a_transaction_writes_nothing"),
    "txnVersion": (WRITE, "test_rerun_of_a_transaction_writes_nothing"),
    "onReplay": ("stream/test_writer.py", "test_old_number_with_new_rows_is_an_error_and_not_a_loss"),
    "failOnDataLoss": ("stream/test_writer.py", "test_sink_that_has_lost_batches_is_not_written_on"),
    "transactional": (WRITE, "test_transactional_write_is_one_transaction"),
    "lockTimeoutMs": ("test_every_option.py", "test_other_writers_are_waited_for_as_long_as_said"),
    "reportPath": (WRITE, "test_report_says_what_went_where"),
}
WRITE_WARNED = {"includeHeaders": "includeHeaders does nothing in a write of Spark"}


def test_every_option_of_a_read_has_a_test_of_its_effect() -> None:
    assert {each.name for each in described(SeglogOptions)} == set(READ_EFFECTS)
    assert_there(READ_EFFECTS)


def test_every_option_of_a_write_has_a_test_of_its_effect_or_is_warned_of() -> None:
    assert {each.name for each in described(WriteOptions)} == {*WRITE_EFFECTS, *WRITE_WARNED}
    assert_there(WRITE_EFFECTS)


def assert_there(effects: dict[str, tuple[str, str]]) -> None:
    for name, (file, test) in effects.items():
        text = (ROOT / "tests" / "spark" / file).read_text()
        assert re.search(rf"^def {test}\(", text, re.MULTILINE), f"{name}: there is no {file}::{test}"


@pytest.mark.parametrize(("name", "warning"), WRITE_WARNED.items())
def test_option_of_a_write_that_does_nothing_is_warned_of_once(
    caplog: pytest.LogCaptureFixture, name: str, warning: str
) -> None:
    with caplog.at_level(logging.WARNING, "sparklog"):
        WriteOptions.parse({"path": "/logs/t", name: "true"})
    (message,) = caplog.messages
    assert message.startswith(warning)


def test_other_writers_are_waited_for_as_long_as_said(tmp_path: Path) -> None:
    given = {"path": str(tmp_path / "events"), "numPartitions": "1", "lockTimeoutMs": "300"}
    made = SeglogWriter(WriteOptions.parse(given), StructType([StructField("value", BinaryType())]), is_overwrite=False)
    with hold(directory_at(tmp_path), 1.0):
        began = time.monotonic()
        with pytest.raises(LockedError):
            made.commit([])
        assert 0.3 <= time.monotonic() - began < 5.0
    made.commit([])
    assert (tmp_path / "events-0").is_dir()
