"""The reader of a view: an internal topic as a table, instead of records.

A task reads one log of the topic, since no key is in two logs; the views of a cluster's metadata have one log. If
sparklog's consumers have committed in ``seglog.offsets``, one task reads all logs, and the later commit counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sparklog.errors import InvalidOptionError, did_you_mean
from sparklog.spark.options.parsing import declared_names
from sparklog.spark.options.read import SeglogOptions
from sparklog.spark.options.schema import refuse_empty
from sparklog.spark.worker.boundary import plain_errors
from sparklog.spark.worker.process import LoadedByWorkers

if TYPE_CHECKING:
    import pyarrow as pa

    from sparklog.spark.read.damage_view import DamageView
    from sparklog.topic.internal.views import FoundView

DAMAGE_VIEW: Final = "damage"
"""The view of what cannot be read; its rows are of the selected partitions, and of no internal topic."""
_OF_VIEWS: Final = frozenset({"path", "paths", "view", "viewHistory"})
_OF_DAMAGE: Final = frozenset(
    {"path", "paths", "view", "subscribe", "subscribePattern", "excludePattern", "assign", "isolationLevel"}
    | {"replicas", "replicas.min"}
)


class ViewReader(LoadedByWorkers, DataSourceReader):
    """Reads a view into its schema, or into some of its columns.

    Parameters
    ----------
    schema : StructType
        The columns to read, checked by `check_view_schema`.
    """

    def __init__(self, options: SeglogOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @plain_errors()
    def partitions(self) -> list[InputPartition]:
        """Find the logs of the view, and plan a task for each part that can be read alone."""
        return [InputPartition(part) for part in _found(self._options).parts()]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read one part of the view."""
        # As for records, Spark makes up a partition if there is none.
        if partition is None or partition.value is None:
            return
        from sparklog.spark.read.view_batches import arranged

        with plain_errors():
            yield from arranged(partition.value.batches(), self._schema)


def _found(options: SeglogOptions) -> FoundView | DamageView:
    if options.view == DAMAGE_VIEW:
        from sparklog.spark.read.damage_view import DamageView

        return DamageView(options)
    from sparklog.topic.internal.views import find_view

    return find_view(options.all_paths, options.view, history=options.view_history)


def view_schema(options: SeglogOptions) -> StructType:
    """Return the columns of the view that the options name.

    Raises
    ------
    InvalidOptionError
        The view does not exist.
    PathNotFoundError
        The path or the internal topic does not exist, and no consumer of sparklog has committed there.
    """
    from sparklog.spark.read.view_batches import spark_schema
    from sparklog.topic.internal.views import schema

    if options.view == DAMAGE_VIEW:
        from sparklog.log.reads.damage_table import DAMAGE_SCHEMA

        # A path that does not exist is an error at `load`.
        _found(options).parts()
        return spark_schema(DAMAGE_SCHEMA)
    found = spark_schema(schema(options.view, history=options.view_history))
    _found(options)
    return found


def check_view_schema(options: SeglogOptions, given: StructType) -> StructType:
    """Return a user's schema if it has only columns of the view, in any order, with their types."""
    refuse_empty(given)
    known = {field.name: field.dataType for field in view_schema(options).fields}
    for field in given.fields:
        if field.name not in known:
            hint = did_you_mean(field.name, list(known), f"there are {', '.join(known)}")
            raise InvalidOptionError(f"the view {options.view} has no column {field.name!r}: {hint}")
        if field.dataType != known[field.name]:
            raise InvalidOptionError(
                f"column {field.name!r} of the view {options.view} is {known[field.name].simpleString()}, "
                f"not {field.dataType.simpleString()}"
            )
    return given


def check_view_options(given: Mapping[str, str], options: SeglogOptions) -> None:
    """Refuse options that choose records, since a view has none; ``given`` has names in any case.

    Raises
    ------
    InvalidOptionError
        An option chooses records; the error names it.
    """
    lower = {name.lower() for name in given}
    for name in declared_names(SeglogOptions):
        if (
            options.view
            and name not in (_OF_DAMAGE if options.view == DAMAGE_VIEW else _OF_VIEWS)
            and name.lower() in lower
        ):
            raise InvalidOptionError(
                f"the option {name} is for records, and the view {options.view} is a table: choose rows and columns "
                f"in the query"
            )
    if not options.view and "viewhistory" in lower:
        raise InvalidOptionError("viewHistory is of a view: set view to its name")
