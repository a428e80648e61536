"""The questions that are asked of a log through the public API, and what came of them."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

import sparklog
from sparklog.errors import SeglogError
from sparklog.log.reads.columns import LOG_SCHEMA
from sparklog.log.segment_listing import warn_once
from tests.fuzz.logs import FIRST_TIME_MS, SoundLog

ALL_COLUMNS: Final = tuple(LOG_SCHEMA.names)
WHOLE_RECORDS: Final = ("offset", "key", "value", "timestamp", "timestampType", "headers")
COLUMN_SETS: Final[tuple[tuple[str, ...], ...]] = (
    WHOLE_RECORDS,
    ("offset",),
    (),
    ALL_COLUMNS,
    ("value",),
    ("offset", "timestamp"),
    ("file", "position", "leader_epoch"),
    ("producer_id", "sequence", "base_offset"),
)


@dataclass(frozen=True)
class Query:
    """One question.

    Attributes
    ----------
    kind : str
        ``read`` and ``batches``, of a range; ``stable``, ``time`` and ``end``, which are answered with an offset.
    start, end : int or None
        Of a range; None is all that there is.
    time : int
        For ``time``, ms.
    """

    kind: str
    committed: bool = False
    columns: tuple[str, ...] = ALL_COLUMNS
    start: int | None = None
    end: int | None = None
    time: int = 0

    @property
    def is_read(self) -> bool:
        return self.kind in ("read", "batches")


@dataclass
class Answer:
    """What came of a query: rows, or an offset, and the error that ended it."""

    table: pa.Table | None = None
    offset: int | None = None
    error: BaseException | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def is_refused(self) -> bool:
        return isinstance(self.error, SeglogError)


class Heard(logging.Handler):
    """Keeps what the package warns of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


HEARD: Final = Heard()


def listen() -> None:
    """Have warnings of the package be heard here, and printed nowhere."""
    logger = logging.getLogger("sparklog")
    if HEARD not in logger.handlers:
        logger.addHandler(HEARD)
        logger.propagate = False


def some_queries(rng: random.Random, log: SoundLog) -> list[Query]:
    """Draw three questions: everything, what is committed, and one of any kind."""
    return [
        Query("batches", columns=WHOLE_RECORDS),
        Query(rng.choice(("batches", "read")), committed=True, columns=rng.choice(COLUMN_SETS)),
        _any(rng, log),
    ]


def _any(rng: random.Random, log: SoundLog) -> Query:
    match rng.randrange(8):
        case 0:
            return Query("stable")
        case 1:
            return Query("time", time=FIRST_TIME_MS + rng.choice((0, 95, 205, 399)) if "made" in log.name else 0)
        case 2:
            return Query("end")
        case 3 | 4:
            return Query("read", columns=rng.choice(COLUMN_SETS))
    # A few ranges a log, since what the sound log answers is kept.
    middle = log.start_offset + (log.end_offset - log.start_offset) * rng.choice((1, 2, 3)) // 4
    start, end = rng.choice(((middle, None), (middle, middle + 5), (None, middle)))
    end = None if end is None else max(min(end, log.end_offset), start or 0)
    return Query("batches", rng.random() < 0.5, rng.choice(COLUMN_SETS[:3]), start, end)


def ask(folder: str, queries: Sequence[Query]) -> list[Answer]:
    """Open a log once and ask; an error of opening is the answer to every question."""
    HEARD.messages.clear()
    # A layout warns once of the same: here many logs lie at the same place, one after the other.
    warn_once.cache_clear()
    try:
        log = sparklog.open_log(folder)
    except Exception as error:  # what it is, the rules say
        return [Answer(error=error, warnings=list(HEARD.messages)) for _ in queries]
    with log:
        return [_answer(log, query) for query in queries]


def _answer(log: Any, query: Query) -> Answer:
    answer = Answer()
    batches: list[pa.RecordBatch] = []
    try:
        match query.kind:
            case "stable":
                answer.offset = log.last_stable_offset
            case "time":
                answer.offset = log.offset_for_time(query.time)
            case "end":
                answer.offset = log.end_offset
            case "read":
                answer.table = log.read(query.start, query.end, list(query.columns), _level(query))
            case _:
                # What comes before an error is kept.
                batches.extend(log.batches(query.start, query.end, list(query.columns), _level(query)))
    except Exception as error:  # what it is, the rules say
        answer.error = error
    if query.kind == "batches":
        answer.table = pa.Table.from_batches(batches, schema=_schema(query.columns))
        if not query.columns:
            # A table of no columns has no rows; that many there were all the same.
            answer.table = pa.table({"rows": pa.nulls(sum(batch.num_rows for batch in batches))})
    elif query.kind == "read" and not query.columns and answer.table is not None:
        answer.table = pa.table({"rows": pa.nulls(answer.table.num_rows)})
    answer.warnings = list(HEARD.messages)
    return answer


def _schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([LOG_SCHEMA.field(name) for name in columns])


def _level(query: Query) -> Any:
    return "read_committed" if query.committed else "read_uncommitted"
