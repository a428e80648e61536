"""A proxy between a client and a server of objects, which counts requests, delays them, and gets them wrong."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """An answer of the server, which a fault may change.

    Attributes
    ----------
    cut_after : int or None
        After how many bytes of the body the connection breaks.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    cut_after: int | None = None


@dataclass(frozen=True)
class Asked:
    """A request: its number, its kind (list, get, head, put, delete), and the path with the query."""

    number: int
    kind: str
    path: str


@dataclass
class Proxy:
    """What the proxy has seen, and what it does.

    Attributes
    ----------
    port : int
        Its port on loopback.
    seen : Counter
        How many requests of each kind came.
    refuse : callable
        Returns an answer instead of the server's; None to ask that.
    spoil : callable
        Changes an answer, after the server has acted.
    delay_seconds : float
        How long each request waits.
    bytes_per_second : float
        How fast bodies are sent, all connections together.
    """

    port: int
    seen: Counter[str] = field(default_factory=Counter)
    paths: list[str] = field(default_factory=list)
    refuse: Callable[[Asked], Answer | None] = lambda _: None
    spoil: Callable[[Asked, Answer], None] = lambda *_: None
    delay_seconds: float = 0.0
    bytes_per_second: float = float("inf")
    lock: Any = field(default_factory=threading.Lock)
    free_at: float = 0.0

    def reset(self) -> None:
        """Forget what was seen, and do nothing wrong any more."""
        self.seen.clear()
        self.paths.clear()
        self.refuse, self.spoil, self.delay_seconds = (lambda _: None), (lambda *_: None), 0.0
        self.bytes_per_second = float("inf")

    def count(self) -> int:
        return sum(self.seen.values())


def _kind(method: str, path: str) -> str:
    is_list = "list-type=2" in path or "prefix=" in path or "comp=list" in path
    return "list" if method == "GET" and is_list else method.lower()


@contextmanager
def proxied(port: int) -> Iterator[Proxy]:
    """Run a proxy of a server on loopback until the end of a ``with`` block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with proxy.lock:
                kind = _kind(self.command, self.path)
                proxy.seen[kind] += 1
                proxy.paths.append(f"{self.command} {self.path}")
                asked = Asked(proxy.count(), kind, self.path)
            time.sleep(proxy.delay_seconds)
            answer = proxy.refuse(asked) or self._of_server(body)
            proxy.spoil(asked, answer)
            self._send(answer)

        def _of_server(self, body: bytes) -> Answer:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            # As they are: the name of the host is part of what is signed.
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, text in self.headers.items():
                connection.putheader(name, text)
            connection.endheaders(body)
            found = connection.getresponse()
            answer = Answer(found.status, dict(found.getheaders()), found.read())
            connection.close()
            return answer

        def _send(self, answer: Answer) -> None:
            self.send_response_only(answer.status)
            length = str(len(answer.body))
            for name, text in answer.headers.items():
                if name.lower() in ("content-length", "transfer-encoding", "connection"):
                    length = text if self.command == "HEAD" and name.lower() == "content-length" else length
                    continue
                self.send_header(name, text)
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command == "HEAD":
                return
            with proxy.lock:
                proxy.free_at = max(proxy.free_at, time.monotonic()) + len(answer.body) / proxy.bytes_per_second
                until = proxy.free_at
            time.sleep(max(until - time.monotonic(), 0))
            self.wfile.write(answer.body if answer.cut_after is None else answer.body[: answer.cut_after])
            if answer.cut_after is not None:
                self.close_connection = True
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _forward  # noqa: N815 - names of the library

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy = Proxy(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
