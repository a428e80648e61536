"""The table of views: the internal topic of each, its columns, and the functions that make its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from sparklog.errors import InvalidOptionError, did_you_mean
from sparklog.system import (
    cluster_metadata,
    consumer_offsets,
    remote_log_metadata,
    share_group_state,
    transaction_state,
)
from sparklog.system.framed import FRAMED_HISTORY_SCHEMA
from sparklog.system.records import InternalLog, Undecodable

CurrentRows = Callable[[InternalLog, Undecodable], pa.Table]
HistoryRows = Callable[[InternalLog, Undecodable], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class View:
    """A table made from the logs of an internal topic. Each log is read by itself, since no key is in two of them.

    Attributes
    ----------
    topic : str
        The internal topic.
    schema, history_schema : pyarrow.Schema
        The columns of the current state and of the history.
    current : callable
        Returns the current state in one log.
    history : callable
        Yields every record of one log.
    names_topics : bool
        Whether rows of the current state have names of topics for which the log has ids only.
    """

    name: str
    topic: str
    schema: pa.Schema
    history_schema: pa.Schema
    current: CurrentRows
    history: HistoryRows
    names_topics: bool = False

    def schema_of(self, *, history: bool) -> pa.Schema:
        """Return the columns of the history, or of the current state."""
        return self.history_schema if history else self.schema

    def batches(self, log: InternalLog, unreadable: Undecodable, *, history: bool) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one log."""
        if history:
            yield from self.history(log, unreadable)
        else:
            yield from self.current(log, unreadable).to_batches()


_cluster = cluster_metadata
_OF_CLUSTER: Final[tuple[tuple[str, pa.Schema, CurrentRows, HistoryRows], ...]] = (
    ("cluster_metadata", _cluster.RECORDS_SCHEMA, _cluster.current_records, _cluster.records_history),
    ("cluster_topics", _cluster.TOPICS_SCHEMA, _cluster.current_topics, _cluster.topics_history),
    ("cluster_partitions", _cluster.PARTITIONS_SCHEMA, _cluster.current_partitions, _cluster.partitions_history),
    ("cluster_configs", _cluster.CONFIGS_SCHEMA, _cluster.current_configs, _cluster.configs_history),
    ("cluster_brokers", _cluster.BROKERS_SCHEMA, _cluster.current_brokers, _cluster.brokers_history),
    ("cluster_features", _cluster.FEATURES_SCHEMA, _cluster.current_features, _cluster.features_history),
)

VIEWS: Final = {
    view.name: view
    for view in (
        View(
            "consumer_offsets",
            consumer_offsets.TOPIC,
            consumer_offsets.OFFSETS_SCHEMA,
            consumer_offsets.OFFSETS_HISTORY_SCHEMA,
            consumer_offsets.current_offsets,
            consumer_offsets.offsets_history,
        ),
        View(
            "consumer_groups",
            consumer_offsets.TOPIC,
            consumer_offsets.GROUPS_SCHEMA,
            consumer_offsets.GROUPS_HISTORY_SCHEMA,
            consumer_offsets.current_groups,
            consumer_offsets.groups_history,
            names_topics=True,
        ),
        View(
            "transactions",
            transaction_state.TOPIC,
            transaction_state.SCHEMA,
            transaction_state.HISTORY_SCHEMA,
            transaction_state.current_transactions,
            transaction_state.transactions_history,
        ),
        View(
            "share_group_state",
            share_group_state.TOPIC,
            share_group_state.SCHEMA,
            share_group_state.HISTORY_SCHEMA,
            share_group_state.current_states,
            share_group_state.states_history,
            names_topics=True,
        ),
        View(
            "remote_log_segments",
            remote_log_metadata.TOPIC,
            remote_log_metadata.SCHEMA,
            FRAMED_HISTORY_SCHEMA,
            remote_log_metadata.current_segments,
            remote_log_metadata.segments_history,
        ),
        *(
            View(name, cluster_metadata.TOPIC, schema, FRAMED_HISTORY_SCHEMA, current, history)
            for name, schema, current, history in _OF_CLUSTER
        ),
    )
}
"""The views by their names."""


def view_of(name: str) -> View:
    """Return a view by its name.

    Raises
    ------
    InvalidOptionError
        There is no such view; the message suggests the nearest name.
    """
    if name not in VIEWS:
        raise InvalidOptionError(
            f"no view {name!r}: {did_you_mean(name, list(VIEWS), 'there are ' + ', '.join(VIEWS))}"
        )
    return VIEWS[name]
