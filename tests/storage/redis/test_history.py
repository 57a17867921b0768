"""Consumers and a server that are killed with SIGKILL while traffic flows: the journal has no overlapping leases and no
stale settle, and nothing is lost."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tarry.app import App
from tarry.core.journal.events import Event, EventKind
from tarry.core.messages.outcomes import Outcome
from tarry.storage.redis._sync.store import RedisStore
from tests.kit.redis_servers import RedisServer, until
from tests.storage.redis.test_faults import PATIENT

CONSUMER = """
import sys, random, time
import tarry
from datetime import timedelta
from tarry.core.settings import RetrySettings, StoreSettings
settings = StoreSettings(connection_retry=RetrySettings(retries=100, cap_for=timedelta(milliseconds=200)))
with tarry.connect(sys.argv[1], settings=settings) as app, open(sys.argv[2], "a", buffering=1) as done:
    queue = app.queue("history")
    while True:
        for delivery in queue.try_poll_many(3, lease_for=timedelta(seconds=1)):
            if random.random() < 0.03:
                time.sleep(1.1)  # too late for its lease
            outcome = delivery.release() if random.random() < 0.1 else delivery.ack()
            print(delivery.key, delivery.attempt, outcome.value, file=done)
"""
MESSAGES = 300


class Consumers:
    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._files = 0

    def start(self) -> None:
        self._files += 1
        command = [sys.executable, "-c", CONSUMER, self._url, str(self._folder / f"{self._files}")]
        self._processes.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))

    def kill(self, index: int = 0) -> None:
        process = self._processes.pop(index)
        process.kill()
        process.wait()

    def kill_all(self) -> None:
        while self._processes:
            self.kill()

    def settled(self) -> list[list[str]]:
        return [line.split() for file in self._folder.iterdir() for line in file.read_text().splitlines()]


def _live(app: App) -> int:
    counts = app.queues.counts("history")
    return counts.delayed.n + counts.ready.n + counts.leased.n


def check_history(events: Sequence[Event]) -> None:
    """The events of one key: a lease begins after the last one was settled or has ended, and only its holder settles it."""
    lease: Event | None = None
    for event in events:
        if event.kind is EventKind.LEASED:
            if lease is not None:
                assert lease.lease_until is not None
                assert event.at >= lease.lease_until, f"{event.key}: two leases at once"
            lease = event
        elif event.kind in (EventKind.ACKED, EventKind.RELEASED):
            assert lease is not None, f"{event.key}: settled without a lease"
            assert event.leased_at == lease.leased_at, f"{event.key}: a stale settle"
            lease = None
    assert sum(event.kind is EventKind.ACKED for event in events) == 1


def test_leases_never_overlap_and_no_stale_settle_succeeds_while_clients_and_the_server_are_killed(
    tmp_path: Path,
) -> None:
    server = RedisServer("--appendfsync", "always")
    consumers = Consumers(server.url, tmp_path)
    try:
        with App(RedisStore(server.url, settings=PATIENT)) as app:  # pyright: ignore[reportArgumentType]
            queue: Any = app.queue("history")
            accepted: set[str] = set()

            def offer(n: int) -> None:
                for _ in range(n):
                    key = f"m-{len(accepted)}"
                    assert queue.offer(key, 1, max_attempts=1_000) is Outcome.CREATED
                    accepted.add(key)

            for _ in range(3):
                consumers.start()
            for step in range(6):
                offer(MESSAGES // 6)
                seen = len(consumers.settled())
                until(lambda seen=seen: len(consumers.settled()) > seen)
                if step % 3 == 2:
                    server.kill()
                    server.start()
                else:
                    consumers.kill(random.randrange(3))
                    consumers.start()
            until(lambda: _live(app) == 0)
            consumers.kill_all()
            histories: defaultdict[str, list[Event]] = defaultdict(list)
            for key in accepted:
                histories[key] += app.store.run(app.store.journal.timeline("history", key))
            for events in histories.values():
                check_history(events)
            done = [key for key, _, outcome in consumers.settled() if outcome == "done"]
            assert set(done) <= accepted
    finally:
        consumers.kill_all()
        server.close()
