"""Schedulers that are killed with -9 while they plan, by the database's own clock."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta

import pytest

import tarry
from tarry.core.cron import MADE
from tests.kit.servers import Server

SCHEDULES = 30
RUN_S = 20.0
SECOND = timedelta(seconds=1)


def start(dsn: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tarry", "scheduler"],
        env={**os.environ, "TARRY_DSN": dsn},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_no_tick_is_lost_or_doubled_while_schedulers_are_killed(server: Server) -> None:
    dsn, choice = server.new_database(), random.Random(1)
    with tarry.connect(dsn) as app:
        cron, queue = app.cron(), app.queue("ticks")
        for n in range(SCHEDULES):
            cron.install_periodic(f"p{n}", SECOND, queue="ticks", payload=n)
        began_at = app.store.now()
        schedulers = [start(dsn) for _ in range(3)]
        killed, begun = 0, Counter[str]()
        deadline, next_kill = time.monotonic() + RUN_S, time.monotonic() + 3
        while time.monotonic() < deadline:
            for delivery in queue.poll_many(500, timedelta(milliseconds=200)):
                begun[delivery.key] += delivery.attempt == 1
                delivery.ack()
            if time.monotonic() > next_kill:
                victim = choice.randrange(3)
                schedulers[victim].kill()
                schedulers[victim].wait()
                schedulers[victim] = start(dsn)
                killed, next_kill = killed + 1, time.monotonic() + choice.uniform(0.5, 1.5)
        ended_at = app.store.now()
        for one in schedulers:
            one.kill()
            one.wait()
        records = {n: app.schedules.history(f"p{n}", limit=10_000) for n in range(SCHEDULES)}
        due = []
        for ticks in records.values():
            made = {record.tick for record in ticks if record.verdict in MADE}
            schedule = app.schedules.get(ticks[0].prefix).spec.timetable
            due += [tick for tick in schedule.after(began_at, ended_at - 5 * SECOND) if tick not in made]
        assert due == []
        assert set(begun.values()) == {1}
        print(f"{killed} kills, {sum(begun.values()):,} ticks of {SCHEDULES} schedules, none lost, none doubled")
    server.drop_database(dsn)
