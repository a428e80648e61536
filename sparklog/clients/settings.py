"""The configurations of producers and consumers, with the names and defaults of kafka-python.

Settings that only concern a broker or a network are ignored, with one warning, so that a program
written for a broker runs here unchanged. Unknown names are refused.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self, TypeVar

import pyarrow as pa

from sparklog.errors import InvalidOptionError, KafkaConfigurationError, SerializationError, did_you_mean
from sparklog.log.config import LogConfig
from sparklog.record.codecs.table import CODEC_IDS
from sparklog.topic.transactions.ids import TIMEOUT_MS

_log = logging.getLogger("sparklog")

_NAMES_OF_BROKERS: Final = """
    api_version api_version_auto_timeout_ms bootstrap_servers bootstrap_timeout_ms check_crcs client_dns_lookup
    client_id client_rack connections_max_idle_ms default_offset_commit_callback delivery_timeout_ms
    enable_incremental_fetch_sessions exclude_internal_topics fetch_max_wait_ms fetch_min_bytes
    group_instance_id heartbeat_interval_ms kafka_client max_in_flight_requests_per_connection
    max_partition_fetch_bytes max_poll_interval_ms metadata_max_age_ms metric_group_prefix metric_reporters
    metrics_enabled metrics_num_samples metrics_sample_window_ms partition_assignment_strategy proxy_url
    receive_buffer_bytes receive_message_max_bytes reconnect_backoff_max_ms reconnect_backoff_ms request_timeout_ms
    retries retry_backoff_ms sasl_kerberos_domain_name sasl_kerberos_service_name sasl_mechanism
    sasl_oauth_token_provider sasl_plain_password sasl_plain_username security_protocol selector send_buffer_bytes
    session_timeout_ms socket_options socks5_proxy ssl_cafile ssl_certfile ssl_check_hostname ssl_ciphers ssl_context
    ssl_crlfile ssl_keyfile ssl_password
"""
_OF_BROKERS: Final = frozenset(_NAMES_OF_BROKERS.split())
_ACKS: Final = {0: 0, 1: 1, -1: -1, "0": 0, "1": 1, "-1": -1, "all": -1}
ALL: Final = -1

_Settings = TypeVar("_Settings")


def read_settings(kind: type[_Settings], given: Mapping[str, Any]) -> _Settings:
    """Make settings from a caller's arguments; warn about settings without effect here.

    Raises
    ------
    KafkaConfigurationError
        There is no such name, or a value is wrong.
    """
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    for name in given:
        if name not in known | _OF_BROKERS:
            hint = did_you_mean(name, sorted(known | _OF_BROKERS), f"there are {', '.join(sorted(known))}")
            raise KafkaConfigurationError(f"no configuration {name!r}: {hint}")
    ignored = sorted(set(given) - known)
    if ignored:
        _log.warning("no broker is asked, so these configurations mean nothing here: %s", ", ".join(ignored))
    return kind(**{name: value for name, value in given.items() if name in known})


@dataclass(frozen=True)
class ProducerSettings:
    """The configuration of a producer; see `sparklog.Producer`."""

    key_serializer: Any = None
    value_serializer: Any = None
    partitioner: Any = None
    acks: Any = "all"
    enable_idempotence: bool = True
    transactional_id: str | None = None
    transaction_timeout_ms: int = TIMEOUT_MS
    compression_type: str | None = None
    batch_size: int = 16_384
    linger_ms: float = 5
    buffer_memory: int = 33_554_432
    max_block_ms: float = 60_000
    max_request_size: int = 1_048_576
    metadata_max_age_ms: float = 300_000
    allow_auto_create_topics: bool = True
    num_partitions: int = 1
    topic_config: Mapping[str, str] = field(default_factory=dict)
    idle_release_ms: float = 1000

    def __post_init__(self) -> None:
        if self.acks not in _ACKS:
            raise KafkaConfigurationError(f"acks must be 0, 1 or 'all', and is {self.acks!r}")
        if self.compression_type not in (None, *CODEC_IDS):
            names = ", ".join(("None", *CODEC_IDS))
            raise KafkaConfigurationError(f"compression_type must be one of {names}, and is {self.compression_type!r}")
        _refuse_low(self, linger_ms=0, max_block_ms=0, idle_release_ms=0, batch_size=0, max_request_size=1)
        _refuse_low(self, buffer_memory=1, num_partitions=1, transaction_timeout_ms=1, metadata_max_age_ms=0)
        if self.transactional_id is None:
            return
        if not isinstance(self.transactional_id, str) or not self.transactional_id:
            raise KafkaConfigurationError(
                f"transactional_id must be a text that is not empty, and is {self.transactional_id!r}"
            )
        if not self.enable_idempotence or self.waits_for != ALL:
            raise KafkaConfigurationError("transactional_id is given, which needs enable_idempotence and acks='all'")

    @property
    def waits_for(self) -> int:
        """The acknowledgement that a record waits for: 0 for none, 1 for its write, `ALL` for the disk."""
        return _ACKS[self.acks]

    def log_config(self, stored: Mapping[str, str]) -> LogConfig:
        """Return this producer's settings for a topic's batches.

        Parameters
        ----------
        stored : mapping of str to str
            The topic's stored properties: as in a broker, a ``compression.type`` other than ``producer`` overrides the
            producer's own.
        """
        given = {"batch.size": str(self.batch_size), **self.topic_config}
        codec = self.compression_type
        if codec is not None and stored.get("compression.type", "producer") == "producer":
            given["compression.type"] = codec
        try:
            return LogConfig.from_properties(given)
        except InvalidOptionError as error:
            raise KafkaConfigurationError(error.message) from error


@dataclass(frozen=True)
class ConsumerSettings:
    """The configuration of a consumer; see `sparklog.Consumer`."""

    group_id: str | None = None
    key_deserializer: Any = None
    value_deserializer: Any = None
    auto_offset_reset: str = "latest"
    enable_auto_commit: bool = True
    auto_commit_interval_ms: float = 5000
    isolation_level: str = "read_uncommitted"
    max_poll_records: int = 500
    fetch_max_bytes: int = 52_428_800
    consumer_timeout_ms: float = float("inf")
    allow_auto_create_topics: bool = True

    def __post_init__(self) -> None:
        if self.auto_offset_reset not in ("earliest", "latest", "none"):
            raise KafkaConfigurationError(
                f"auto_offset_reset must be earliest, latest or none, and is {self.auto_offset_reset!r}"
            )
        if self.isolation_level not in ("read_uncommitted", "read_committed"):
            raise KafkaConfigurationError(
                f"isolation_level must be read_uncommitted or read_committed, and is {self.isolation_level!r}"
            )
        _refuse_low(
            self, max_poll_records=1, fetch_max_bytes=1, auto_commit_interval_ms=0, consumer_timeout_ms=float("-inf")
        )
        if self.group_id is not None and (not isinstance(self.group_id, str) or not self.group_id):
            raise KafkaConfigurationError(f"group_id must be a text that is not empty, and is {self.group_id!r}")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Make settings from a caller's arguments; for errors see `read_settings`."""
        return read_settings(cls, given)


def _refuse_low(settings: Any, **least: float) -> None:
    for name, bound in least.items():
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < bound:
            raise KafkaConfigurationError(f"{name} must be a number, at least {bound}, and is {value!r}")


def converter(given: Any, method: str, name: str) -> Callable[[str, Any, Any], Any] | None:
    """Return a serializer or deserializer as a function of topic, headers and data; None if there is none.

    Parameters
    ----------
    given : callable or object
        A function of the data, or an object with a method of (topic, headers, data), as in kafka-python 3, or of
        (topic, data), as in kafka-python 2.
    method : str
        The name of the method.
    name : str
        The name of the setting.
    """
    if given is None:
        return None
    found = getattr(given, method, None)
    if callable(found):
        return found if takes_arguments(found, 3) else lambda topic, _headers, data: found(topic, data)
    if callable(given):
        return lambda _topic, _headers, data: given(data)
    raise KafkaConfigurationError(f"{name} must be a function of the data, or have a method {method}")


def takes_arguments(function: Callable[..., Any], arguments: int) -> bool:
    """Return whether a function accepts this many positional arguments; True if its signature is unknown."""
    try:
        inspect.signature(function).bind(*[None] * arguments)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def chooser(given: Any) -> Callable[[bytes | None, list[int], list[int]], Any] | None:
    """Return a partitioner if it is a function, as in kafka-python; otherwise None."""
    if given is None or isinstance(given, str):
        return None
    if hasattr(given, "partition"):
        if takes_arguments(given.partition, 3):
            return None
        raise KafkaConfigurationError(
            f"the method partition of {type(given).__name__} is called with (keys, row_bytes, partitions), and takes "
            f"others, as those of kafka-python 3 do: give a function of (key, all partitions, available partitions)"
        )
    if callable(given):
        return given  # type: ignore[no-any-return]
    raise KafkaConfigurationError(
        "partitioner must be a function of (key, all partitions, available partitions), an object with a method "
        "partition(keys, row_bytes, partitions), or a name: default, roundRobin or package.module:Name"
    )


def to_bytes(data: Any, name: str) -> bytes:
    """Return a key or a value as bytes; raise `SerializationError` for anything else."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise SerializationError(f"the {name} is a {type(data).__name__}, and not bytes: set {name}_serializer")


def checked_headers(headers: Any) -> list[tuple[str, bytes | None]]:
    """Return headers; raise `SerializationError` if they are not valid."""
    if not isinstance(headers, list | tuple):
        raise SerializationError(f"headers are a list of (str, bytes), and not a {type(headers).__name__}")
    for each in headers:
        is_pair = isinstance(each, tuple) and len(each) == 2
        if not is_pair or not isinstance(each[0], str) or not isinstance(each[1], bytes | None):
            raise SerializationError(f"a header is a pair of str and bytes, and not {each!r}")
    return list(headers)


def partition_column(table: Any) -> pa.Array | None:
    """Return the column with the partitions of rows, or None."""
    if isinstance(table, pa.Table | pa.RecordBatch):
        if "partition" not in table.schema.names:
            return None
        column = table.column("partition")
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(table, dict) and "partition" in table:
        return pa.array(table["partition"], pa.int32())
    return None
