"""Warns about options of a read that have no effect, because of other options or without a broker."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from sparklog.spark.options.read import ALIASES, BROKER_ONLY_OPTIONS, KAFKA_PREFIX, PRECEDENCE
from sparklog.spark.options.schema import HEADERS, TEXT_COLUMNS

_log = logging.getLogger("sparklog")

STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger")


def warn_batch(given: Mapping[str, str], columns: Collection[str]) -> None:
    """Warn about each option, by its name, that has no effect on a batch read of these columns."""
    lower = {name.lower(): text for name, text in given.items()}
    for name, reason in _without_effect(lower, columns):
        _log.warning("the option %s does nothing here: %s", name, reason)
    for name in STREAM_ONLY:
        if name.lower() in lower:
            _log.warning("%s option ignored in batch queries", name)
    broker = [name for name in BROKER_ONLY_OPTIONS if name.lower() in lower]
    broker += sorted(name for name in lower if name.startswith(KAFKA_PREFIX) and name not in ALIASES)
    if broker:
        _log.warning("no broker is asked, so these options mean nothing here: %s", ", ".join(broker))


def _without_effect(given: Mapping[str, str], columns: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield given options that have no effect because of others, and the reason; ``given`` has names in lower case."""
    for precedence in PRECEDENCE:
        there = [name for name in precedence if name.lower() in given]
        for name in there[1:]:
            yield name, f"{there[0]} goes before it"
    if (
        "startingoffsetsbytimestampstrategy" in given
        and not {name.lower() for name in PRECEDENCE[0][:2]} & given.keys()
    ):
        yield "startingOffsetsByTimestampStrategy", "no starting time is given"
    if "unknown" in given and given.get("isolationlevel", "").strip().lower() != "read_committed":
        yield "unknown", "only read_committed leaves out records of transactions"
    if "consumeroffsetspath" in given and not {"startingoffsetsbygroup", "endingoffsetsbygroup"} & given.keys():
        yield "consumerOffsetsPath", "no group is given to begin or to end at"
    if given.get("includeheaders", "").strip().lower() == "true" and HEADERS not in columns:
        yield "includeHeaders", "the columns are chosen, and headers is not among them"
    if given.get("headersasmap", "").strip().lower() == "true" and HEADERS not in columns:
        yield "headersAsMap", "the columns are chosen, and headers is not among them"
    for name in TEXT_COLUMNS:
        if f"{name}format" in given and name not in columns:
            yield f"{name}Format", f"the columns are chosen, and {name} is not among them"
    if "ondecodeerror" in given and not {f"{name}format" for name in TEXT_COLUMNS} & given.keys():
        yield "onDecodeError", "neither keyFormat nor valueFormat is given"
