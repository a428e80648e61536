"""The Python side of ``KafkaTool.java``: Kafka's own clients, asked in lines of JSON."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kafka.jars import NEWEST, HarnessError
from tests.kafka.jvm import Jvm

ANSWER_TIMEOUT_S = 180

Json = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """A record to produce. `timestamp` is in ms, None for the client's clock; `partition` None lets it choose."""

    topic: str
    key: bytes | None = None
    value: bytes | None = None
    partition: int | None = 0
    timestamp: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()

    def to_json(self) -> Json:
        """Return the form that ``KafkaTool`` reads."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "timestamp": self.timestamp,
            "key": _base64(self.key),
            "value": _base64(self.value),
            "headers": [[name, _base64(value)] for name, value in self.headers],
        }


class KafkaTool:
    """A running ``KafkaTool`` process, started at the first request.

    Parameters
    ----------
    bootstrap : str
        The broker's address.
    log : Path
        Takes the clients' own log.
    """

    def __init__(self, bootstrap: str, log: Path) -> None:
        self._bootstrap = bootstrap
        self._log = log
        self._jvm: Jvm | None = None

    def ask(self, op: str, **arguments: Any) -> Any:
        """Send one request and return its result."""
        return self.ask_rows(op, **arguments)[1]

    def ask_rows(self, op: str, **arguments: Any) -> tuple[list[Json], Any]:
        """Send one request and return its rows and its result.

        Raises
        ------
        HarnessError
            The client raised, or did not answer in time.
        """
        jvm = self._jvm
        if jvm is None or not jvm.alive():
            options = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
            jvm = Jvm(NEWEST, ["KafkaTool", self._bootstrap], self._log, self._log.parent, talks=True, options=options)
            self._jvm = jvm
        # A read from the pipe cannot time out; a killed process ends it.
        watchdog = threading.Timer(ANSWER_TIMEOUT_S, jvm.process.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            jvm.stdin.write(json.dumps({"op": op, **arguments}).encode() + b"\n")
            jvm.stdin.flush()
            return _read_answer(jvm, op)
        except OSError as err:
            raise HarnessError(f"{op}: the tool is gone:\n{jvm.log_tail()}") from err
        finally:
            watchdog.cancel()

    def kill(self) -> None:
        """End the process with SIGKILL: open producers are left as they are, their transactions too."""
        if self._jvm is not None:
            self._jvm.kill()
            self._jvm = None


class Producer:
    """A producer that stays open on the tool's side; closes at the end of ``with``."""

    def __init__(self, ask: Callable[..., Any], name: str, config: Mapping[str, object]) -> None:
        self._ask = ask
        self.name = name
        ask("producer", name=name, config={key: _text(value) for key, value in config.items()})

    def send(self, *groups: Iterable[Record]) -> list[int]:
        """Send each group and flush after it; return the offsets. A group that fits a batch becomes one batch."""
        offsets: list[int] = self._ask(
            "send", name=self.name, groups=[[record.to_json() for record in group] for group in groups]
        )
        return offsets

    def begin(self) -> None:
        """Begin a transaction."""
        self._ask("begin", name=self.name)

    def commit(self) -> None:
        """Commit the transaction."""
        self._ask("commit", name=self.name)

    def abort(self) -> None:
        """Abort the transaction."""
        self._ask("abort", name=self.name)

    def close(self) -> None:
        """Close it; Kafka's client then aborts a transaction that is still open."""
        self._ask("close", name=self.name)

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        if kind is None:
            self.close()


def _read_answer(jvm: Jvm, op: str) -> tuple[list[Json], Any]:
    rows: list[Json] = []
    for line in jvm.stdout:
        answer = json.loads(line)
        if "row" in answer:
            rows.append(answer["row"])
        elif "error" in answer:
            raise HarnessError(f"{op}: {answer['error']}\n{answer['trace']}")
        else:
            return rows, answer["ok"]
    raise HarnessError(f"{op}: the tool ended, status {jvm.process.wait(10)}:\n{jvm.log_tail()}")


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
