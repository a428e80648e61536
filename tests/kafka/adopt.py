"""Has a real broker adopt partition directories that it did not write.

broker.create_topic("orders")
broker.stop()
with adoption(broker) as adopt:
    adopt("orders", 0, directory)
broker.restart()
broker.consume("orders")
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.kafka.broker import Broker
from tests.kafka.jars import HarnessError

CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
KEPT = "partition.metadata"


class Adoption:
    """Replaces the contents of partitions of a stopped broker; made by `adoption`."""

    def __init__(self, broker: Broker) -> None:
        self._log_dir = broker.log_dir

    def __call__(self, topic: str, partition: int, source: Path, *, log_start_offset: int | None = None) -> None:
        """Replace a partition's files by those of `source`; the broker's ``partition.metadata`` stays.

        Parameters
        ----------
        topic : str
            A topic of the broker; its configs are its own, not the source's.
        partition : int
            One of its partitions.
        source : Path
            A partition directory: segments, indexes, snapshots, ``leader-epoch-checkpoint``.
        log_start_offset : int, optional
            Goes into ``log-start-offset-checkpoint``; without it the first segment's base offset counts.
        """
        target = self._log_dir / f"{topic}-{partition}"
        if not target.is_dir():
            raise HarnessError(f"the broker has no {target.name}: create the topic first")
        for path in target.iterdir():
            if path.name != KEPT:
                path.unlink()
        for path in source.iterdir():
            if path.name != KEPT:
                shutil.copy(path, target / path.name)
        for name in CHECKPOINTS:
            offset = log_start_offset if name.startswith("log-start") else None
            _set_line(self._log_dir / name, topic, partition, offset)


@contextlib.contextmanager
def adoption(broker: Broker, *, trust_indexes: bool = False) -> Iterator[Adoption]:
    """Hold a stopped broker's log directory, and give the function that replaces partitions in it.

    Parameters
    ----------
    broker : Broker
        Stopped, or killed.
    trust_indexes : bool
        Keep the marker of a clean shutdown: the broker then takes indexes and snapshots as they are. Without it
        the broker goes through every batch, and makes them again.

    Raises
    ------
    HarnessError
        The broker still runs.
    """
    with (broker.log_dir / ".lock").open("a") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as err:
            raise HarnessError("the broker still holds its log directory: stop it first") from err
        yield Adoption(broker)
        marker = broker.log_dir / ".kafka_cleanshutdown"
        if trust_indexes and not marker.exists():
            raise HarnessError("the broker was not stopped cleanly: it will trust no index")
        if not trust_indexes:
            marker.unlink(missing_ok=True)


def _set_line(checkpoint: Path, topic: str, partition: int, offset: int | None) -> None:
    lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
    kept = [line for line in lines if line.split()[:2] != [topic, str(partition)]]
    if offset is not None:
        kept.append(f"{topic} {partition} {offset}")
    checkpoint.write_text("".join(f"{line}\n" for line in ("0", len(kept), *kept)))
