"""Logs to export, and what is in the tables that come of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import sparklog
from sparklog.jobs.export.arguments import ExportSummary, export
from tests.conftest import HERE

EXAMPLES = HERE.parent / "examples" / "data"


def moved_to(path: Path, **given: Any) -> ExportSummary:
    return export(given.pop("source", EXAMPLES), path, **{"processes": 1, **given})


def files(path: Path) -> list[str]:
    """Return the files of a table by their names within it, those left out that are ours."""
    found = (each.relative_to(path) for each in path.rglob("*") if each.is_file())
    return sorted(str(each) for each in found if not each.parts[0].startswith("_"))


def rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a folder of Parquet files, file by file."""
    return [row for name in files(path) for row in pq.ParquetFile(path / name).read().to_pylist()]


def read(source: Path, columns: list[str] | None = None) -> list[dict[str, Any]]:
    with sparklog.open_topic(source) as topic:
        found: list[dict[str, Any]] = topic.read(columns=columns, isolation_level="read_committed").to_pylist()
        return found


def append(folder: Path, *values: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with sparklog.PartitionLog.open(folder) as log:
        log.append(pa.table({"value": list(values)}))
