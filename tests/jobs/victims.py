"""Jobs that are killed, each with a folder of its own whose source grows: see `tests.jobs.kills`."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sparklog.jobs.check.ledger import verify_ledger
from sparklog.jobs.ledger import Loaded, Moved, commits
from sparklog.log.files import JOBS_LEDGER
from sparklog.storage.local import LocalStorage
from tests.jobs.lakes import Delta, Iceberg, Lake
from tests.jobs.loads import strings, values, write_parquet
from tests.jobs.tables import append, read, rows
from tests.topic.staged import findings

PARTITIONS: Final = 6


class Victim(ABC):
    """A kind of job, and a folder of it whose source grows.

    Attributes
    ----------
    is_atomic : bool
        Whether all that a run moves becomes visible at once.
    """

    name: str
    is_atomic = False

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self._rng = folder, rng
        folder.mkdir()

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def grow(self) -> None:
        """Let the source have more rows."""
        for partition in self._rng.sample(range(PARTITIONS), 3):
            for _ in range(self._rng.randrange(1, 4)):
                append(self.logs / f"a-{partition}", *self._new_rows(150))

    def _new_rows(self, most: int) -> list[str]:
        return [f"{self._rng.getrandbits(96):x}" * 10 for _ in range(self._rng.randrange(1, most))]

    @abstractmethod
    def order(self) -> tuple[str, list[Any], dict[str, Any]]:
        """Return the job, its arguments, and its options."""

    @abstractmethod
    def visible(self) -> list[Any]:
        """Return the rows that a reader of the target sees."""

    def wanted(self) -> list[Any]:
        """Return the rows that there are to be in the end."""
        return [row["value"] for row in read(self.logs)]

    @abstractmethod
    def differs(self) -> list[str]:
        """Say where the ledger and the files do not agree, and what is left staged; the job was run to its end."""

    def check_visible(self, before: int) -> tuple[bool, bool]:
        """Refuse what no reader may see after a kill: rows that are there twice, and a part of what comes at once.

        Parameters
        ----------
        before : int
            How many rows were visible before the job that was killed.

        Returns
        -------
        tuple of (bool, bool)
            Whether nothing that the job does is visible, and whether all of it is.
        """
        there = Counter(self.visible())
        twice = sum(count > 1 for count in there.values())
        assert not twice, f"{self.name}: {twice} rows are there twice after a kill"
        sees_none, sees_all = there.total() == before, there.total() == len(self.wanted())
        assert sees_none or sees_all or not self.is_atomic, f"{self.name}: a part of a run is visible"
        return sees_none, sees_all

    def recover(self) -> None:  # noqa: B027
        """Let somebody else put the folder in order, between a run that was killed and the next."""


class Export(Victim):
    name = "export to Parquet"

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, rng)
        self._by = rng.choice([["topic", "partition"], ["date"], []])

    def order(self) -> tuple[str, list[Any], dict[str, Any]]:
        options = {"partition_by": self._by, "commit_interval_ms": 0, "task_bytes": 1 << 13}
        return "export", [str(self.logs), str(self.out)], options

    def visible(self) -> list[Any]:
        return [row["value"] for row in rows(self.out)] if self.out.is_dir() else []

    def differs(self) -> list[str]:
        found = [str(finding) for finding in verify_ledger(self.out)]
        left = {path.name for path in (self.out / "_seglog").iterdir()} - {"ledger.jsonl", "lock"}
        return found + [f"{name} is left" for name in sorted(left)]


class LakeExport(Export):
    lake: Lake

    def order(self) -> tuple[str, list[Any], dict[str, Any]]:
        job, arguments, options = super().order()
        return job, arguments, options | self.lake.given()

    def visible(self) -> list[Any]:
        return [row["value"] for row in self.lake.rows()] if self._is_there() else []

    def _is_there(self) -> bool:
        return (self.out / "_delta_log").is_dir()

    def differs(self) -> list[str]:
        of_table = {name: value for name, value in self.lake.given().items() if name != "format"}
        left = {path.name for path in (self.out / "_seglog").iterdir()} - {"lock"}
        return [str(finding) for finding in verify_ledger(self.out, **of_table)] + [f"{name} is left" for name in left]


class DeltaExport(LakeExport):
    name = "export to Delta Lake"

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, rng)
        self.lake = Delta(self.out)


class IcebergExport(LakeExport):
    name = "export to Iceberg"

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, rng)
        self.lake = self._iceberg = Iceberg(self.out)

    def _is_there(self) -> bool:
        if not (self.folder / "catalog.db").exists():
            return False
        with self._iceberg.opened() as catalog:
            return bool(catalog.namespace_exists("db") and catalog.table_exists("db.rows"))


class IntoLogs(Victim):
    """A job that writes logs, all of it at once."""

    is_atomic = True

    def differs(self) -> list[str]:
        found = findings(self.out)
        found += [f"{path.name} is left" for path in self.out.iterdir() if path.name.endswith((".staged", ".tmp"))]
        told, there = self._told(), len(self.visible())
        return found if told == there else [*found, f"the ledger says {told} rows, and there are {there}"]

    def _told(self) -> int:
        """Return how many rows the ledger says to be there."""
        entries = [each for commit in self._commits() for each in commit.entries]
        return sum(each.rows for each in entries if isinstance(each, Moved | Loaded))

    def _commits(self) -> Iterator[Any]:
        return commits(LocalStorage(), str(self.out / JOBS_LEDGER))

    def visible(self) -> list[Any]:
        # Of a new partition that is being made there may be an empty folder.
        found = sorted(self.out.glob("a-*"))
        return [value for folder in found if any(folder.iterdir()) for value in values(folder)]


class Load(IntoLogs):
    name = "load"

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, rng)
        self._wanted: list[bytes] = []
        (folder / "in").mkdir()

    def grow(self) -> None:
        for _ in range(self._rng.randrange(2, 5)):
            new = self._new_rows(400)
            name = f"{len(list((self.folder / 'in').iterdir())):06}"
            write_parquet(self.folder / "in" / f"{name}.parquet", strings(new))
            self._wanted += [each.encode() for each in new]

    def order(self) -> tuple[str, list[Any], dict[str, Any]]:
        return "load", [str(self.folder / "in"), str(self.out)], {"topic": "a", "num_partitions": 3}

    def wanted(self) -> list[Any]:
        return self._wanted


class Copy(IntoLogs):
    name = "copy"

    def order(self) -> tuple[str, list[Any], dict[str, Any]]:
        return "copy", [str(self.logs), str(self.out)], {"task_bytes": 1 << 13}

    def wanted(self) -> list[Any]:
        # Offsets too: each log is copied as it is.
        return [value for folder in sorted(self.logs.glob("a-*")) for value in values(folder)]

    def differs(self) -> list[str]:
        is_same = self.visible() == self.wanted()
        return super().differs() + ([] if is_same else ["records are in another order than in their source"])


MOVING: Final[tuple[type[Victim], ...]] = (Export, DeltaExport, IcebergExport, Load, Copy)
