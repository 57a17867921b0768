"""Plan one tick of each of n schedules, for growing n: cost per tick and memory must stay linear.

On an embedded PostgreSQL of its own, with a pinned clock: every schedule is due in every round.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tarry.app import App, prepare
from tarry.core.cron.model import ScheduleSpec
from tarry.core.cron.planner import plan
from tarry.core.cron.schedule_types import Cron
from tarry.services.cron._sync.scheduler import Scheduler
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.embedded import EmbeddedSettings, start
from tarry.testing import MutableClock

SIZES = (1_000, 2_500, 5_000, 10_000)
ROUNDS = 3
START = datetime(2026, 3, 28, tzinfo=UTC)


def specs(n: int) -> list[ScheduleSpec]:
    zones = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")
    return [
        ScheduleSpec(name=f"p{i}", schedule=Cron(f"{i % 60} * * * *", zones[i % 4]), queue=f"q{i % 8}", payload=b"1")
        for i in range(n)
    ]


def measure(app: App, clock: MutableClock, n: int) -> None:
    clock.set(START)
    began = time.perf_counter()
    for some in range(0, n, 1_000):
        app.schedules.apply(specs(n)[some : some + 1_000])
    installed = time.perf_counter() - began
    tracemalloc.start()
    states = app.schedules.list()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    began = time.perf_counter()
    for state in states:
        plan(state, START + timedelta(hours=2))
    pure = time.perf_counter() - began
    spent, planned = 0.0, 0
    for _ in range(ROUNDS):
        clock.advance(timedelta(hours=1))
        scheduler, more = Scheduler(app.store), True
        began = time.perf_counter()
        while more:
            ran = scheduler.run_once()
            planned, more = planned + ran.planned, ran.more
        spent += time.perf_counter() - began
    print(
        f"{n:>7,}  {installed / n * 1e6:>9.0f}  {pure / n * 1e6:>9.0f}  {spent / planned * 1e6:>11.0f}  "
        f"{planned / spent:>11,.0f}  {kept / n:>9,.0f}"
    )
    app.schedules.apply([], remove=[state.name for state in states])
    for info in app.queues.list():
        app.store.run(app.store.messages.purge(info.name))


def main() -> None:
    directory = Path(tempfile.mkdtemp(prefix="tarry-cron-", dir="/tmp"))
    directory.chmod(0o755)
    with start(EmbeddedSettings(data_dir=directory / "home")) as server:
        prepare(server.dsn, migrate=True, allow_unsafe=False)
        clock = MutableClock(START)
        with App(PostgresStore(server.dsn, clock=clock), dsn=server.dsn) as app:
            print("schedules  install us  plan us  planned us/tick  ticks/s  bytes/schedule")
            for n in SIZES:
                measure(app, clock, n)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
