"""Consumers, schedulers and servers that are killed with SIGKILL, and slots that move, while traffic flows: the journal has
no overlapping leases and no stale settle, each tick has one message, and nothing is lost."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tarry.app import App
from tarry.core.journal.events import Event, EventKind
from tarry.core.messages.outcomes import Outcome
from tarry.storage.redis._sync.store import RedisStore
from tests.kit.redis_servers import RedisCluster, RedisServer, until
from tests.kit.steps import SECOND
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


class History:
    """Messages that are offered and consumed while something happens, and the check of their journals afterwards."""

    def __init__(self, store: Any, url: str, folder: Path) -> None:
        self._app = App(store)
        self._queue: Any = self._app.queue("history")
        self.consumers = Consumers(url, folder)
        self._accepted: set[str] = set()
        self._queue.offer("first", 0)
        assert self._queue.contains("first")  # so that the store knows where the queue is
        self._accepted.add("first")
        self.key = f"tarry:{{{store.queues._context.ids['history'].id}}}"

    def flow(self, n: int) -> None:
        """Offer so many, and wait until consumers have settled some more."""
        for _ in range(n):
            key = f"m-{len(self._accepted)}"
            assert self._queue.offer(key, 1, max_attempts=1_000) is Outcome.CREATED
            self._accepted.add(key)
        seen = len(self.consumers.settled())
        until(lambda: len(self.consumers.settled()) > seen)

    def replace_a_consumer(self) -> None:
        self.consumers.kill(random.randrange(3))
        self.consumers.start()

    def run(self, disturb: Callable[[int], None]) -> None:
        """`disturb` is called after each part of the messages."""
        with self._app:
            try:
                for _ in range(3):
                    self.consumers.start()
                for step in range(6):
                    self.flow(MESSAGES // 6)
                    disturb(step)
                until(lambda: self._live() == 0)
            finally:
                self.consumers.kill_all()
            for key in self._accepted:
                check_history(self._app.store.run(self._app.store.journal.timeline("history", key)))
            done = {key for key, _, outcome in self.consumers.settled() if outcome == "done"}
            assert done <= self._accepted

    def _live(self) -> int:
        counts = self._app.queues.counts("history")
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
    try:
        history = History(RedisStore(server.url, settings=PATIENT), server.url, tmp_path)

        def disturb(step: int) -> None:
            if step % 3 == 2:
                server.kill()
                server.start()
            else:
                history.replace_a_consumer()

        history.run(disturb)
    finally:
        server.close()


@pytest.mark.chaos
@pytest.mark.parametrize("what", ["a replica takes over", "the queue moves to another node"])
def test_the_history_of_a_queue_on_a_cluster_is_right_while(what: str, tmp_path: Path) -> None:
    cluster = RedisCluster("--appendfsync", "always")
    try:
        history = History(RedisStore(cluster.url, settings=PATIENT, replicas=1), cluster.url, tmp_path)

        def disturb(step: int) -> None:
            before = cluster.primary_of(history.key)
            if step % 2 == 0:
                history.replace_a_consumer()
            elif what == "a replica takes over":
                before.kill()
                until(lambda: cluster.primary_of(history.key) is not before)
                before.start()
            else:
                cluster.move_slot_of(history.key)
                assert cluster.primary_of(history.key) is not before

        history.run(disturb)
    finally:
        cluster.close()


@pytest.mark.chaos
def test_each_tick_has_one_message_while_schedulers_and_the_server_are_killed() -> None:
    server = RedisServer("--appendfsync", "always")
    schedulers: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        command, environment = [sys.executable, "-m", "tarry", "scheduler"], {**os.environ, "TARRY_DSN": server.url}
        schedulers.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))

    def kill(index: int) -> None:
        process = schedulers.pop(index)
        process.kill()
        process.wait()

    try:
        with App(RedisStore(server.url, settings=PATIENT)) as app:  # pyright: ignore[reportArgumentType]
            for name in "abc":
                app.cron().install_periodic(name, SECOND, queue="ticks", payload=name, misfire="all")
            for _ in range(3):
                start()

            def planned() -> list[Event]:
                events = app.store.run(app.store.journal.tail(begin, limit=10_000)).events
                return [event for _, event in events if event.kind is EventKind.CRON_PLANNED]

            begin = app.store.run(app.store.journal.tail(None)).position
            for step in range(8):
                seen = len(planned())
                until(lambda seen=seen: len(planned()) > seen + 2)
                if step % 4 == 3:
                    server.kill()
                    server.start()
                kill(0)
                start()
            while schedulers:
                kill(0)
            made = Counter(event.key for event in planned())
            assert set(made.values()) == {1}
            records = {name: app.store.run(app.store.cron.ticks(name, limit=1_000)) for name in "abc"}
            for name in "abc":
                ticks = sorted(record.tick for record in records[name])
                assert ticks == [ticks[0] + n * SECOND for n in range(len(ticks))], (
                    "none is missing, none is there twice"
                )
            keys = {record.key for each in records.values() for record in each}
            assert keys >= set(made)
            counts = app.queues.counts("ticks")
            assert counts.delayed.n + counts.ready.n == len(keys), "none was lost, none is there twice"
    finally:
        while schedulers:
            kill(0)
        server.close()
