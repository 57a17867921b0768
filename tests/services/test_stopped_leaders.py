"""Real processes that lead: stopped past their lease and continued, or killed in the middle of a job."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import tarry
from tarry.app import App
from tarry.core.maintenance.leadership import Leadership
from tests.kit.steps import TIMEOUT_S

# Leads, then reads its input: one line is one sweep under the leadership it had then.
_OBEDIENT = """
import sys
from datetime import timedelta
import tarry
with tarry.connect(sys.argv[1]) as app:
    held = app.store.run(app.store.maintenance.acquire("sweeper", "stopped", timedelta(seconds=1)))
    print(held.fence, flush=True)
    for line in sys.stdin:
        swept = app.store.run(app.store.maintenance.sweep("orders", leadership=held))
        print(swept.expired, app.store.run(app.store.maintenance.renew(held, timedelta(minutes=1))), flush=True)
"""
# A sweeper as in production; prints when it begins to lead, and when it no longer does.
_SWEEPER = """
import asyncio, sys
from datetime import timedelta
import tarry
from tarry.core.settings import SweeperSettings
led = None
def print_report(report):
    global led
    if report.leading is not led:
        led = report.leading
        print("leads" if led else "follows", flush=True)
async def main():
    settings = SweeperSettings(every=timedelta(milliseconds=5), lead_for=timedelta(seconds=1))
    async with tarry.connect_async(sys.argv[1]) as app:
        async with app.sweeper(settings, on_report=print_report):
            await asyncio.Event().wait()
asyncio.run(main())
"""
_CARRIER = """
import sys
import tarry
with tarry.connect(sys.argv[1]) as app:
    redrive = app.redrives.get(int(sys.argv[2]))
    print("ready", flush=True)
    while not redrive.advance().ended:
        pass
"""


@contextmanager
def process(program: str, *args: str) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-c", program, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def line(of: subprocess.Popen[str]) -> str:
    assert of.stdout is not None
    return of.stdout.readline().strip()


def successor(app: App) -> Leadership:
    """Acquires until the leadership is free, by the database's clock."""
    deadline = time.monotonic() + TIMEOUT_S
    while (held := app.store.run(app.store.maintenance.acquire("sweeper", "successor", timedelta(minutes=1)))) is None:
        assert time.monotonic() < deadline, "the lease never ran out"
    return held


def lose_leases(app: App, n: int) -> None:
    """Messages whose consumer is gone and whose leases are over."""
    orders = app.queue("orders")
    orders.offer_many([tarry.Message(key=f"k{i}", payload=0) for i in range(n)])
    with_dead_consumer = orders.try_poll_many(n, lease_for=timedelta(seconds=1))
    last = max(delivery.lease_until for delivery in with_dead_consumer)
    deadline = time.monotonic() + TIMEOUT_S
    while app.store.run(app.store.queues.now()) <= last:
        assert time.monotonic() < deadline


def expiries(app: App, n: int) -> list[int]:
    timelines = [app.store.run(app.store.journal.timeline("orders", f"k{i}")) for i in range(n)]
    return [[event.kind.value for event in events].count("expired") for events in timelines]


def test_a_leader_that_was_stopped_past_its_lease_changes_nothing_when_it_wakes(database: str) -> None:
    with tarry.connect(database) as app, process(_OBEDIENT, database) as stopped:
        assert line(stopped) == "1"
        stopped.send_signal(signal.SIGSTOP)
        lose_leases(app, 3)
        held = successor(app)
        assert held.fence == 2
        stopped.send_signal(signal.SIGCONT)
        assert stopped.stdin is not None
        stopped.stdin.write("sweep\n")
        stopped.stdin.flush()
        assert line(stopped) == "0 None"
        assert expiries(app, 3) == [0, 0, 0]
        assert app.store.run(app.store.maintenance.sweep("orders", leadership=held)).expired == 3
        assert app.store.run(app.store.maintenance.leader("sweeper")) == held


def test_a_sweeper_that_was_stopped_yields_to_the_new_leader(database: str) -> None:
    with tarry.connect(database) as app, process(_SWEEPER, database) as stopped:
        assert line(stopped) == "leads"
        stopped.send_signal(signal.SIGSTOP)
        held = successor(app)
        lose_leases(app, 20)
        stopped.send_signal(signal.SIGCONT)
        assert line(stopped) == "follows"
        assert expiries(app, 20) == [0] * 20, "only the leader records expiries"
        assert app.store.run(app.store.maintenance.sweep("orders", leadership=held)).expired == 20
        assert app.store.run(app.store.maintenance.resign(held))
        assert line(stopped) == "leads"
        assert expiries(app, 20) == [1] * 20
        stopped.send_signal(signal.SIGKILL)
        assert successor(app).fence > held.fence


def test_a_job_whose_carriers_are_killed_neither_loses_nor_doubles(database: str) -> None:
    n = 3_000
    with tarry.connect(database) as app:
        orders = app.queue("orders")
        names = [f"k{i:05}" for i in range(n)]
        orders.offer_many([tarry.Message(key=key, payload=0) for key in names])
        orders.leases.bury([delivery.lease_id for delivery in orders.try_poll_many(n)], "x")
        redrive = orders.dead_letters.start_redrive(rate=100_000)
        for goal in (500, 1_500):
            with process(_CARRIER, database, str(redrive.id)) as carrier:
                assert line(carrier) == "ready"
                while redrive.refresh().redriven < goal and not redrive.job.ended:
                    assert carrier.poll() is None
                carrier.kill()
        while not redrive.advance().ended:
            pass
        assert (redrive.job.redriven, redrive.job.skipped) == (n, 0)
        assert app.queues.counts("orders").dead.n == 0
        delivered = orders.try_poll_many(2 * n)
        assert sorted(delivery.key for delivery in delivered) == names
