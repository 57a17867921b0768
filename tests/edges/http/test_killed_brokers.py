"""Two brokers on one database, one of them killed with -9 again and again during offers, polls and acks.

The messages are due at once, and consumers finish them as quickly as they can: also those whose producer had no response, and
repeats the request.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tarry import Message, Outcome, Settled
from tarry.core.settings import RetrySettings, StoreSettings
from tarry.http import Client
from tests.kit.ports import free_port
from tests.kit.sleepers import until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]  # a busy machine takes long to start a broker, six times

MESSAGES = 300
KILLS = 6
BATCH = 10
PATIENT = StoreSettings(connection_retry=RetrySettings(retries=2_000, total_for=timedelta(minutes=5)))


class Broker:
    def __init__(self, dsn: str, port: int) -> None:
        self._command = [sys.executable, "-m", "tarry", "--dsn", dsn, "serve", "--port", str(port), "--no-access-log"]
        self.url = f"http://127.0.0.1:{port}"
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stderr=subprocess.PIPE)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if re.search(rb"listening on", line):
                return
        raise AssertionError("the broker did not start")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture
def brokers(database: str) -> Iterator[tuple[Broker, Broker]]:
    both = Broker(database, free_port()), Broker(database, free_port())
    yield both
    for broker in both:
        broker.kill()


def test_nothing_is_lost_and_nothing_is_finished_twice(brokers: tuple[Broker, Broker]) -> None:
    mortal, steady = brokers
    finished: Counter[str] = Counter()
    seen: set[str] = set()
    acked_keys: list[str] = []
    lock, offered, over = threading.Lock(), threading.Event(), threading.Event()
    keys = [f"k{i}" for i in range(MESSAGES)]

    def produce() -> None:
        with Client(mortal.url, settings=PATIENT) as client:
            queue = client.queue("q")
            for start in range(0, MESSAGES, 2 * BATCH):
                for key in keys[start : start + BATCH]:
                    assert queue.offer(key, key) is Outcome.CREATED
                    acked_keys.append(key)
                rest = keys[start + BATCH : start + 2 * BATCH]
                assert set(queue.offer_many([Message(key=key, payload=key) for key in rest])) == {Outcome.CREATED}
                acked_keys.extend(rest)
        offered.set()

    def consume(url: str) -> None:
        with Client(url, settings=PATIENT) as client:
            queue = client.queue("q")
            while not over.is_set():
                delivery = queue.poll(timedelta(milliseconds=200), lease_for=timedelta(seconds=3))
                if delivery is None:
                    counts = client.queues.counts("q")
                    if offered.is_set() and not (counts.leased.n or counts.ready.n or counts.delayed.n):
                        return
                    continue
                settled = delivery.ack()
                with lock:
                    seen.add(delivery.key)
                    finished[delivery.key] += settled is Settled.DONE

    with Client(steady.url) as client:
        client.queues.create("q", exist_ok=True)
        client.queues.edit("q", max_attempts=None)
    working = [threading.Thread(target=produce)] + [
        threading.Thread(target=consume, args=(url,)) for url in (mortal.url, mortal.url, steady.url)
    ]
    for thread in working:
        thread.start()
    for kill in range(1, KILLS + 1):
        enough = kill * MESSAGES // (KILLS + 2)
        until(lambda: len(acked_keys) >= enough, timeout_s=300)  # noqa: B023 - read before it changes
        mortal.kill()
        mortal.start()
    for thread in working:
        thread.join(360)
    over.set()
    assert acked_keys == keys
    assert seen == set(keys)
    assert max(finished.values()) == 1
    with Client(steady.url) as client:
        counts = client.queues.counts("q")
        for key in keys:
            kinds = Counter(event.kind.value for event in client.store.run(client.store.journal.timeline("q", key)))
            assert (kinds["offered"], kinds["updated"], kinds["acked"]) == (1, 0, 1), f"{key}: {kinds}"
    assert (counts.delayed.n, counts.ready.n, counts.leased.n, counts.dead.n) == (0, 0, 0, 0)
