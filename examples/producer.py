"""Runs a producer and a consumer in two processes, kills the producer, and loses or duplicates no record.

python examples/producer.py [LOG_DIRECTORY]

The producer is killed while it sends. The records that it had acknowledged are there; another producer sends the rest.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

import sparklog

RECORDS = 3000

PRODUCE = """
import os, sys, sparklog

directory, first, last, dies_at = sys.argv[1], *map(int, sys.argv[2:])
with sparklog.Producer(directory, key_serializer=str.encode, value_serializer=str.encode) as producer:
    for number in range(first, last):
        future = producer.send("orders", f"order {number}", key=f"customer-{number % 50}")
        if number % 100 == 0:
            print(number, future.get().offset, flush=True)  # acknowledged: it and all before it are on the disk
        if number == dies_at:
            os.kill(os.getpid(), 9)
"""

CONSUME = """
import sys, sparklog

seen = []
with sparklog.Consumer(sys.argv[1], "orders", group_id="mailer", auto_offset_reset="earliest") as consumer:
    while len(set(seen)) < int(sys.argv[2]):
        for records in consumer.poll(timeout_ms=1000).values():
            seen += [int(record.value.split()[1]) for record in records]
print(f"the consumer got {len(seen)} records, {len(set(seen))} of them different")
"""


def produce(directory: str, first: int, dies_at: int = -1) -> int:
    """Send orders from number `first` on, in another process; return the number of the last acknowledged order."""
    command = [sys.executable, "-c", PRODUCE, directory, str(first), str(RECORDS), str(dies_at)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(f"the producer ended with {done.returncode}")
    return int(done.stdout.splitlines()[-1].split()[0])


def main(directory: str) -> None:
    sparklog.LogManager(directory).create_topic("orders", 3, {"retention.ms": "604800000"})
    with subprocess.Popen([sys.executable, "-c", CONSUME, directory, str(RECORDS)]) as consumer:
        acknowledged = produce(directory, 0, dies_at=1550)
        # There may be more orders than were acknowledged: the next producer continues after the last one in the logs.
        values = sparklog.open_topic(directory).read(columns="value")["value"].to_pylist()
        sent = max(int(value.split()[1]) for value in values)
        print(f"acknowledged up to order {acknowledged}, and all of {sent + 1} are there: {len(values) == sent + 1}")
        produce(directory, sent + 1)
        consumer.wait()
    for row in sparklog.views.lag(directory, "mailer").to_pylist():
        print(f"{row['topic']}-{row['partition']}: {row['current_offset']} of {row['log_end_offset']} committed")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)
