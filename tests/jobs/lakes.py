"""Tables of Delta Lake and Iceberg for tests: what an export is told of them, and what others read in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog, load_catalog

from sparklog.jobs.targets.delta import DeltaTarget
from sparklog.jobs.targets.iceberg import IcebergTarget


class Lake(Protocol):
    """A table of one of both kinds."""

    folder: Path

    def given(self) -> dict[str, Any]:
        """Return the arguments of `export` for it."""

    def target(self, storage: Any) -> Any: ...

    def rows(self) -> list[dict[str, Any]]: ...

    def append(self, values: list[bytes]) -> None:
        """Do what another writer does."""

    def known(self) -> set[str]:
        """Return the names of the files that are part of the table."""


@dataclass
class Delta:
    folder: Path

    def given(self) -> dict[str, Any]:
        return {"format": "delta"}

    def target(self, storage: Any) -> Any:
        return DeltaTarget(storage, str(self.folder))

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = DeltaTable(str(self.folder)).to_pyarrow_table().to_pylist()
        return found

    def append(self, values: list[bytes]) -> None:
        table = DeltaTable(str(self.folder))
        write_deltalake(table, row_of(values, pa.schema(table.schema().to_arrow())), mode="append")

    def known(self) -> set[str]:
        return {Path(uri).name for uri in DeltaTable(str(self.folder)).file_uris()}


@dataclass
class Iceberg:
    folder: Path

    def catalog(self) -> dict[str, str]:
        return {"type": "sql", "uri": f"sqlite:///{self.folder.parent}/catalog.db"}

    def opened(self) -> Catalog:
        return load_catalog("default", **self.catalog())

    def given(self) -> dict[str, Any]:
        return {"format": "iceberg", "table": "db.rows", "catalog": self.catalog()}

    def target(self, storage: Any) -> Any:
        return IcebergTarget(storage, str(self.folder), "db.rows", tuple(self.catalog().items()))

    def rows(self) -> list[dict[str, Any]]:
        with self.opened() as catalog:
            found: list[dict[str, Any]] = catalog.load_table("db.rows").scan().to_arrow().to_pylist()
            return found

    def append(self, values: list[bytes]) -> None:
        with self.opened() as catalog:
            table = catalog.load_table("db.rows")
            table.append(row_of(values, table.schema().as_arrow()))

    def known(self) -> set[str]:
        with self.opened() as catalog:
            return {Path(task.file.file_path).name for task in catalog.load_table("db.rows").scan().plan_files()}


def row_of(values: list[bytes], schema: pa.Schema) -> pa.Table:
    columns = {
        field.name: pa.array(values if field.name == "value" else [None] * len(values), field.type) for field in schema
    }
    return pa.table(columns, schema=schema)
