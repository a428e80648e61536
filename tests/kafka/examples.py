"""The log directory of ``examples/data``: half an hour of a web shop and who reads it, as a real broker wrote it."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tests.kafka.broker import Broker
from tests.kafka.capture import copy_log_dir
from tests.kafka.tool import Record

EVENTS, ORDERS = "shop-events", "shop-orders"
OPENING_MS = 1_772_442_000_000
"""2026-03-02T09:00:00Z."""

DURATION_MS = 30 * 60_000
CODECS = ("lz4", "zstd", "gzip", "snappy", "none")
PRODUCTS = {
    "espresso-machine": 349.0,
    "burr-grinder": 129.5,
    "milk-frother": 39.9,
    "tamper": 24.0,
    "scale": 54.9,
    "kettle": 79.0,
    "filter-papers": 6.5,
    "beans-brazil-1kg": 21.9,
    "beans-ethiopia-1kg": 26.9,
    "descaler": 9.9,
}


@dataclass
class Shop:
    """Visits of users, each a walk from page views to, perhaps, a payment and a refund."""

    rng: random.Random
    events: list[Record] = field(default_factory=list)
    orders: list[tuple[int, str, dict[str, object]]] = field(default_factory=list)

    def visit(self, start_ms: int) -> None:
        """Append the events of one visit, and its order when it ends in one."""
        rng = self.rng
        user = f"user-{rng.randrange(1, 241):03d}"
        trace = rng.randbytes(8).hex() if rng.random() < 0.4 else None
        now = start_ms
        basket: list[str] = []
        for _ in range(rng.randint(1, 6)):
            product = rng.choices(list(PRODUCTS), weights=range(len(PRODUCTS), 0, -1))[0]
            self._event("page_view", user, product, PRODUCTS[product], now, trace)
            now += rng.randint(2_000, 40_000)
            if rng.random() < 0.3:
                basket.append(product)
                self._event("add_to_cart", user, product, PRODUCTS[product], now, trace)
                now += rng.randint(1_000, 15_000)
        if not basket or rng.random() < 0.35:
            return
        total = round(sum(PRODUCTS[product] for product in basket), 2)
        self._event("checkout", user, basket[-1], total, now, trace)
        now += rng.randint(3_000, 30_000)
        if rng.random() < 0.9:
            self._event("payment", user, basket[-1], total, now, trace)
            order = {"order": f"o-{len(self.orders) + 1001}", "user": user, "items": basket, "total": total}
            self.orders.append((now, user, order))
            if rng.random() < 0.08:
                self._event(
                    "refund", user, basket[-1], -PRODUCTS[basket[-1]], now + rng.randint(60_000, 300_000), trace
                )

    def _event(self, event: str, user: str, product: str, price: float, now: int, trace: str | None) -> None:
        value = json.dumps({"event": event, "user": user, "product": product, "price": price}).encode()
        headers = [("trace-id", trace.encode())] if trace else []
        self.events.append(Record(EVENTS, user.encode(), value, None, now, headers))


def generate_examples(target: Path) -> None:
    """Write the log directory; what was there is replaced."""
    shop = Shop(random.Random("a web shop"))
    while len(shop.events) < 2000:
        shop.visit(OPENING_MS + shop.rng.randrange(DURATION_MS - 240_000))
    closing_ms = OPENING_MS + DURATION_MS
    events = sorted((e for e in shop.events if (e.timestamp or 0) < closing_ms), key=lambda e: e.timestamp or 0)
    with tempfile.TemporaryDirectory(prefix="sparklog-examples-") as scratch:
        with Broker.start(Path(scratch) / "broker") as broker:
            _write_events(broker, events)
            _write_orders(broker, sorted(shop.orders, key=lambda order: order[0]))
            _read_by_groups(broker)
            broker.stop()
        shutil.rmtree(target, ignore_errors=True)
        copy_log_dir(broker.log_dir, target, keep=("__consumer_offsets",))


def _write_events(broker: Broker, events: list[Record]) -> None:
    small = {"internal.segment.bytes": 16_384, "index.interval.bytes": 2048, "retention.ms": -1}
    broker.create_topic(EVENTS, partitions=3, config=small)
    # As if five services ran side by side: each sends what came since its last turn, in a codec of its own.
    producers = [broker.producer(compression_type=codec) for codec in CODECS]
    size = 72
    for turn, i in enumerate(range(0, len(events), size)):
        producers[turn % len(producers)].send(events[i : i + size])


def _write_orders(broker: Broker, orders: list[tuple[int, str, dict[str, object]]]) -> None:
    broker.create_topic(ORDERS, partitions=2, config={"retention.ms": -1})
    producer = broker.producer(transactional_id="order-service", compression_type="lz4")
    size = 8
    for turn, i in enumerate(range(0, len(orders), size)):
        batch = [
            Record(ORDERS, user.encode(), json.dumps(order).encode(), None, now)
            for now, user, order in orders[i : i + size]
        ]
        # The fourth batch fails half way, is aborted, and is sent again.
        if turn == 3:
            producer.begin()
            producer.send(batch[: size // 2])
            producer.abort()
        producer.begin()
        producer.send(batch)
        producer.commit()


def _read_by_groups(broker: Broker) -> None:
    """Let three groups of consumers read: one all orders, one some events, and one is at it when the broker stops."""
    broker.group_consume("order-mailer", ORDERS, **{"group.protocol": "classic"})
    broker.commit_group_offsets("dashboard", [(EVENTS, 0, 612, ""), (EVENTS, 1, 590, ""), (EVENTS, 2, 25, "restarted")])
    config = {"group.protocol": "classic", "client.id": "fraud-check-1"}
    broker.ask("join", name="fraud-check", group="fraud-check", topics=[ORDERS], config=config)
    offsets = [{"topic": ORDERS, "partition": 0, "offset": 60, "metadata": ""}]
    broker.ask("commit_as_member", name="fraud-check", offsets=offsets)
