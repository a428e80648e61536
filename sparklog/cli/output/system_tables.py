"""The columns of the tables that show internal topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sparklog.cli.output.render import Row
from sparklog.cli.output.tables import Column
from sparklog.cli.output.text import data_text, printable, time_text


def _plain(name: str, title: str | None = None, rank: int = 0) -> Column:
    return Column(title or name.upper(), lambda row: _text(row[name]), "right", rank=rank)


def _name(name: str, title: str | None = None, *, rank: int = 0, width: int = 24) -> Column:
    return Column(title or name.upper(), lambda row: _text(row[name]), folded_width=width, rank=rank)


def _time(name: str, title: str, rank: int = 0) -> Column:
    """Make a column of times; its title must fit the narrowest width."""
    return Column(title, lambda row: time_text(row[name])[:19], widths=(16, 10), cut_mark="", rank=rank)


def _text(value: Any) -> str:
    return "-" if value is None else printable(str(value))


def _numbers(name: str, title: str, rank: int = 0) -> Column:
    return Column(title, lambda row: ",".join(map(str, row[name])) or "-", rank=rank)


def _partition(row: Row) -> str:
    return "-" if row["topic"] is None else printable(f"{row['topic']}-{row['partition']}")


def _partitions(listed: Sequence[Row] | None) -> str:
    """Write partitions of topics: ``orders-0,1,2 events-0``."""
    return " ".join(
        printable(
            f"{each.get('topic') or each.get('topic_id') or each.get('subtopology_id')}"
            f"-{','.join(map(str, each['partitions']))}"
        )
        for each in listed or ()
    )


def _producer(row: Row) -> str:
    return "-" if row["producer_id"] is None else f"{row['producer_id']}:{row['producer_epoch']}"


def _seconds(time_ms: int | None) -> str:
    return "-" if time_ms is None else f"{time_ms / 1000:.0f} s"


def _transactional_id(row: Row) -> str:
    return _raw(row) if row["transactional_id"] is None else printable(row["transactional_id"])


def _broker_state(row: Row) -> str:
    state = "fenced" if row["fenced"] else "active"
    return f"{state}, shutting down" if row["in_controlled_shutdown"] else state


def _endpoints(row: Row) -> str:
    return " ".join(printable(f"{each['name']}://{each['host']}:{each['port']}") for each in row["endpoints"])


def _resource(row: Row) -> str:
    return printable(f"{row['resource_type']} {row['resource_name'] or '(all)'}")


def _configs(row: Row) -> str:
    return " ".join(printable(f"{name}={value}") for name, value in row["configs"].items()) or "-"


def _raw(row: Row) -> str:
    """Write a record that cannot be decoded: its bytes."""
    return f"{data_text(row['raw_key'])} {data_text(row['raw_value'])}"


def _of_record(row: Row) -> str:
    if row["record"] is None:
        return _raw(row)
    return "tombstone" if row["fields"] is None else printable(row["fields"])


_PARTITION: Final = Column("PARTITION", _partition, folded_width=30)
_PRODUCER: Final = Column("PRODUCER", _producer, "right")

GROUPS: Final = (
    _name("group", width=30),
    _plain("type"),
    _plain("state"),
    _plain("epoch"),
    Column("MEMBERS", lambda row: _text(None if row["members"] is None else len(row["members"])), "right"),
    _name("protocol", rank=2),
    _time("state_timestamp", "SINCE UTC", rank=1),
)
OFFSETS: Final = (
    _PARTITION,
    _plain("offset"),
    _plain("leader_epoch", "EPOCH", rank=1),
    _time("commit_timestamp", "WHEN (UTC)"),
    _name("metadata", rank=2),
    _name("committed_in", "IN", rank=3),
)
LAG: Final = (
    _PARTITION,
    _plain("current_offset", "CURRENT OFFSET"),
    _plain("log_end_offset", "LOG END"),
    _plain("lag"),
    _name("consumer_id", "CONSUMER ID", rank=3),
    _name("host", rank=2),
    _name("client_id", "CLIENT ID", rank=1),
    _name("committed_in", "IN", rank=4),
)
NEW_OFFSETS: Final = (
    _PARTITION,
    _plain("current_offset", "CURRENT OFFSET"),
    _plain("new_offset", "NEW OFFSET"),
)
MEMBERS: Final = (
    _name("member_id", "MEMBER"),
    _name("client_id", "CLIENT", rank=1, width=16),
    _name("client_host", "HOST", rank=2, width=16),
    Column("PARTITIONS", lambda row: _partitions(row["assigned_partitions"]) or "-", folded_width=24),
)
TRANSACTIONS: Final = (
    _name("transactional_id", "TRANSACTIONAL ID"),
    _plain("state"),
    _PRODUCER,
    _time("start_timestamp", "FROM (UTC)", rank=2),
    _time("last_update_timestamp", "LAST (UTC)"),
    Column("PARTITIONS", lambda row: _partitions(row["partitions"]) or "-", folded_width=24, rank=1),
)
OPEN_TRANSACTIONS: Final = (
    _PARTITION,
    _PRODUCER,
    _plain("first_offset", "FROM OFFSET"),
    _plain("last_stable_offset", "LSO", rank=2),
    _plain("end_offset", "END", rank=1),
    Column("AGE", lambda row: _seconds(row["age_ms"]), "right"),
    Column("TIMEOUT", lambda row: _seconds(row["timeout_ms"]), "right"),
    Column("HANGING", lambda row: "yes" if row["is_hanging"] else "no"),
    _name("transactional_id", "TRANSACTIONAL ID", rank=1),
)
TOPICS: Final = (
    _name("topic", width=30),
    _name("topic_id", "ID", rank=1),
    _plain("partitions", "PARTS"),
    _plain("replication_factor", "REPLICAS"),
    Column("CONFIGS", _configs, folded_width=30),
)
MANAGED_TOPICS: Final = (_name("topic", width=30), _plain("partitions", "PARTS"), TOPICS[-1])
PARTITIONS: Final = (
    _PARTITION,
    _plain("leader"),
    _plain("leader_epoch", "EPOCH"),
    _numbers("replicas", "REPLICAS"),
    _numbers("isr", "ISR"),
    _numbers("eligible_leader_replicas", "ELR", rank=1),
    _numbers("adding_replicas", "ADDING", rank=2),
    _numbers("removing_replicas", "REMOVING", rank=2),
)
CONFIGS: Final = (
    Column("OF", _resource, folded_width=24),
    _name("name", width=30),
    _name("value"),
)
BROKERS: Final = (
    _plain("broker_id", "BROKER"),
    _plain("broker_epoch", "EPOCH"),
    _name("rack", rank=1),
    Column("STATE", _broker_state),
    Column("ENDPOINTS", _endpoints, folded_width=30),
)
FEATURES: Final = (_name("feature", width=40), _plain("level"))

_WRITTEN: Final = (_plain("log_offset", "OFFSET"), _time("timestamp", "TIME (UTC)"))
_DECIDED: Final = Column("TRANSACTION", lambda row: row["transaction"] or "", rank=1)
OFFSETS_HISTORY: Final = (
    _plain("log_partition", "LOG", rank=2),
    *_WRITTEN,
    _DECIDED,
    Column("GROUP", lambda row: _raw(row) if row["group"] is None else printable(row["group"])),
    Column("PARTITION", _partition),
    Column("COMMITTED", lambda row: "tombstone" if row["is_tombstone"] else _text(row["offset"]), "right"),
)
TRANSACTIONS_HISTORY: Final = (
    _plain("log_partition", "LOG", rank=2),
    *_WRITTEN,
    Column(
        "TRANSACTIONAL ID", lambda row: _raw(row) if row["transactional_id"] is None else _text(row["transactional_id"])
    ),
    Column("STATE", lambda row: "tombstone" if row["is_tombstone"] else _text(row["state"])),
    _PRODUCER,
)
RECORDS_HISTORY: Final = (
    *_WRITTEN,
    _DECIDED,
    Column("RECORD", lambda row: _text(row["record"])),
    Column("FIELDS", _of_record),
)
GROUPS_HISTORY: Final = (
    *_WRITTEN,
    Column("GROUP", lambda row: _text(row["group"])),
    Column("RECORD", lambda row: _text(row["record"])),
    Column("FIELDS", _of_record),
)
RECORDS: Final = (
    Column("OFFSET", lambda row: "snapshot" if row["log_offset"] is None else str(row["log_offset"]), "right"),
    _time("timestamp", "TIME (UTC)"),
    Column("RECORD", lambda row: row["record"]),
    Column("FIELDS", lambda row: printable(row["fields"])),
)
