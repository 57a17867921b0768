"""Schedulers that are killed with -9 and stopped for a while as they plan, by the database's own clock; those of their
machines are hours off."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta

import pytest

import tarry
from tarry.core.cron.model import MADE
from tarry.services.cron._sync.scheduler import Scheduler
from tests.kit.servers import Server

SCHEDULES = 30
RUN_S = 30.0
SECOND = timedelta(seconds=1)
SKEWED = """
import datetime, sys, time

real, skew, true = datetime.datetime, datetime.timedelta(seconds=float(sys.argv[1])), time.time

class Kind(type):
    def __instancecheck__(cls, value):
        return isinstance(value, real)

class Skewed(real, metaclass=Kind):
    @classmethod
    def now(cls, tz=None):
        return real.now(tz) + skew

datetime.datetime, time.time = Skewed, lambda: true() + skew.total_seconds()

from tarry.edges.cli.main import main
sys.exit(main(["scheduler"]))
"""
"""`tarry scheduler` on a machine whose clock is wrong."""


def start(dsn: str, skew_s: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", SKEWED, str(skew_s)],
        env={**os.environ, "TARRY_DSN": dsn},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_no_tick_is_lost_or_doubled_while_schedulers_with_wrong_clocks_are_killed_and_stopped(server: Server) -> None:
    dsn, choice = server.new_database(), random.Random(1)
    with tarry.connect(dsn) as app:
        cron, queue = app.cron(), app.queue("ticks")
        for n in range(SCHEDULES):
            # A busy machine may keep all of them waiting for a while: that is no misfire here.
            cron.install_periodic(f"p{n}", SECOND, queue="ticks", payload=n, grace_for=60 * SECOND)
        began_at = app.store.run(app.store.queues.now())
        schedulers = [start(dsn, choice.uniform(-7_200, 7_200)) for _ in range(3)]
        killed = stopped = 0
        begun, asleep = Counter[str](), set[int]()
        deadline, next_blow = time.monotonic() + RUN_S, time.monotonic() + 3
        while time.monotonic() < deadline:
            for delivery in queue.poll_many(500, timedelta(milliseconds=200)):
                begun[delivery.key] += delivery.attempt == 1
                delivery.ack()
            if time.monotonic() < next_blow:
                continue
            next_blow = time.monotonic() + choice.uniform(0.5, 1.5)
            victim = choice.randrange(3)
            if victim in asleep:
                schedulers[victim].send_signal(signal.SIGCONT)
                asleep.remove(victim)
            elif choice.random() < 0.5 and len(asleep) < 2:
                schedulers[victim].send_signal(signal.SIGSTOP)
                asleep.add(victim)
                stopped += 1
            else:
                schedulers[victim].kill()
                schedulers[victim].wait()
                schedulers[victim] = start(dsn, choice.uniform(-7_200, 7_200))
                killed += 1
        for scheduler in schedulers:
            scheduler.kill()
            scheduler.wait()
        ended_at = app.store.run(app.store.queues.now())
        while Scheduler(app.store).run_once().more:
            pass
        records = {n: app.schedules.history(f"p{n}", limit=10_000) for n in range(SCHEDULES)}
        due = []
        for ticks in records.values():
            made = {record.tick for record in ticks if record.verdict in MADE}
            schedule = app.schedules.get(ticks[0].name).spec.timetable
            due += [tick for tick in schedule.after(began_at, ended_at) if tick not in made]
        assert due == []
        assert set(begun.values()) == {1}
        print(f"{killed} kills, {stopped} stops, {sum(begun.values()):,} ticks, none lost, none doubled")
    server.drop_database(dsn)
