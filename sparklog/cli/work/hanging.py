"""``transactions --hanging``: shows transactions that are open in logs, and aborts them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparklog.cli.output import render, system_tables, tables
from sparklog.errors import InvalidOptionError
from sparklog.log.clock import wall_clock_ms
from sparklog.log.files import parse_partition_folder
from sparklog.topic.transactions.hanging import AbortRequest, OpenTransaction, abort_transactions, open_transactions


@dataclass(frozen=True)
class WantedAbort:
    """The options of an abort, by their names."""

    partition: str | None = None
    producer_id: int | None = None
    is_all: bool = False
    dry_run: bool = False

    def request(self) -> AbortRequest:
        found = None if self.partition is None else parse_partition_folder(self.partition)
        if self.partition is not None and found is None:
            raise InvalidOptionError(f"--partition {self.partition!r} is not topic-partition, such as orders-0")
        return AbortRequest(found, self.producer_id, self.is_all)


def show_open(path: str, *, as_json: bool) -> None:
    """Print the transactions that are open."""
    now_ms = wall_clock_ms()
    rows = [_row(each, "open", now_ms) for each in open_transactions([path])]
    _show(rows, as_json)
    if not as_json:
        hanging = sum(row["is_hanging"] for row in rows)
        render.say(f"{len(rows)} transaction{'s' * (len(rows) != 1)} open, {hanging} hanging")


def show_aborted(path: str, wanted: WantedAbort, *, as_json: bool) -> None:
    """Abort transactions, or in a dry run only say which; print each."""
    now_ms = wall_clock_ms()
    done = abort_transactions([path], wanted.request(), now_ms, executes=not wanted.dry_run)
    _show([_row(each, "would be aborted" if wanted.dry_run else "aborted", now_ms) for each in done], as_json)
    if not as_json:
        count = f"{len(done)} transaction{'s' * (len(done) != 1)}"
        render.say(f"{count} to abort; nothing was changed" if wanted.dry_run else f"{count} aborted")


def _row(found: OpenTransaction, status: str, now_ms: int) -> dict[str, Any]:
    return {
        "status": status,
        "topic": found.topic_partition.topic,
        "partition": found.topic_partition.partition,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "coordinator_epoch": found.coordinator_epoch,
        "first_offset": found.first_offset,
        "last_stable_offset": found.last_stable_offset,
        "end_offset": found.end_offset,
        "start_timestamp": found.start_timestamp,
        "last_timestamp": found.last_timestamp,
        "age_ms": found.age_ms(now_ms),
        "timeout_ms": found.timeout_ms,
        "transactional_id": found.transactional_id,
        "is_coordinated": found.is_coordinated,
        "is_hanging": found.is_hanging(now_ms),
    }


def _show(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        render.json_lines(rows)
    elif rows:
        tables.table(system_tables.OPEN_TRANSACTIONS, rows)
