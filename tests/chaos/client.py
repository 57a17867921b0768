"""One client process of a run. It works until its standard input is closed, and records everything.

    python -m tests.chaos.client '{"role": …, "dsn": …, "history": …, "name": …, "seed": …}'

| role | what it is |
|---|---|
| library | tasks on the library; one task blocks, several await |
| patient | the same with retries switched on, on keys that are used once |
| remote | tasks on a broker, through the library's HTTP client; several tasks retry |
| worker | a `tarry.Worker` on the queue `work` |
| configurer | changes the schedules, all the time |
| follower | reads the journal as it grows, from where its predecessor ended; with a URL, the broker's event stream |
"""

from __future__ import annotations

import asyncio
import logging
import random
import select
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from tests.chaos import wrong_clock


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a client is started with."""

    role: str
    dsn: str
    history: str
    name: str
    seed: int
    tasks: int = 1
    url: str | None = None
    bug: str | None = None
    hot: float = 0.25
    offers_only: bool = False
    clock_off_s: float = 0.0
    """By how much the wall clock of this process is wrong."""
    weights: dict[str, int] = msgspec.field(default_factory=dict[str, int])

    @property
    def file(self) -> Path:
        return Path(self.history) / f"{self.name}.history"


LIBRARY_WEIGHTS = {
    "main": 55, "register": 14, "mortal": 8, "main.purged": 3, "moving": 5, "main-paused": 3, "work": 6, "cron": 5,
    "bulk": 1,
}  # fmt: skip
PATIENT_WEIGHTS = {"main": 80, "work": 10, "bulk": 1}
REMOTE_WEIGHTS = {"remote": 80, "mortal": 5, "work": 10, "main.purged": 2, "main-paused": 3}
REMOTE_PAUSE_S = 0.03
"""Between the calls of a task: a call of the broker costs several times as much as one of the library."""


def stdin_closed() -> Callable[[], bool]:
    """Looks at most every 20 ms: it is called before every operation."""
    looked, closed = 0.0, False

    def look() -> bool:
        nonlocal looked, closed
        if not closed and time.monotonic() - looked > 0.02:
            looked = time.monotonic()
            closed = bool(select.select([sys.stdin], [], [], 0)[0])
        return closed

    return look


async def work(order: Order, stopping: Callable[[], bool]) -> None:
    """The roles library, patient and remote."""
    import psycopg

    import tarry
    import tarry.http
    from tarry.core.settings import RetrySettings, StoreSettings
    from tarry.storage.postgres._sync.store import PostgresStore
    from tarry.storage.postgres.store import AsyncPostgresStore
    from tests.chaos.recording import Recorder
    from tests.chaos.transactions import Transactions
    from tests.chaos.workload import Task

    quick = timedelta(seconds=1)
    # An offer to the broker carries an idempotency key: sent again after a lost reply, it must still be stored once.
    is_patient = order.role == "patient" or (order.role == "remote" and order.tasks > 1)
    connection_retry = (
        RetrySettings(retries=8, cap_for=quick, total_for=timedelta(seconds=15)) if is_patient else RetrySettings.none()
    )
    # Short waits: a connection that cannot be had is a result like any other, and the next call comes soon.
    settings = StoreSettings(pool_size=4, connection_retry=connection_retry, connect_for=quick, create_queues=False)
    recorder = Recorder(order.file)
    is_blocking = order.tasks == 1
    if order.role == "remote":
        assert order.url is not None
        made = tarry.http.Client if is_blocking else tarry.http.AsyncClient
        app: Any = made(order.url, settings=settings)
        weights = order.weights or REMOTE_WEIGHTS
    elif is_blocking:
        app = tarry.App(PostgresStore(order.dsn, settings=settings), dsn=order.dsn)
        weights = order.weights or (PATIENT_WEIGHTS if order.role == "patient" else LIBRARY_WEIGHTS)
    else:
        store = AsyncPostgresStore(order.dsn, settings=settings)
        await store.open()
        app = tarry.AsyncApp(store, dsn=order.dsn)
        weights = order.weights or (PATIENT_WEIGHTS if order.role == "patient" else LIBRARY_WEIGHTS)

    def connect() -> Any:
        kind = psycopg.Connection if is_blocking else psycopg.AsyncConnection
        return kind.connect(order.dsn, application_name="tarry", connect_timeout=2)

    async def live(number: int) -> None:
        chance = random.Random(f"{order.seed}/{order.name}/{number}")
        task = Task(
            app, f"{order.name}.{number}", recorder, chance, weights, retried=order.role == "patient",
            remote=order.role == "remote", hot=order.hot, offers_only=order.offers_only,
        )  # fmt: skip
        transactions = Transactions(task, connect)
        own = 0.02 if order.role == "library" and not order.weights and not order.offers_only else 0.0
        while not stopping():
            if chance.random() < own:
                await transactions.run()
            else:
                await task.step()
            await asyncio.sleep(REMOTE_PAUSE_S if order.role == "remote" else 0)

    async with asyncio.TaskGroup() as group:
        for number in range(order.tasks):
            group.create_task(live(number))
    closing = app.close()
    if not is_blocking:
        await closing


def main() -> None:
    order = msgspec.json.decode(sys.argv[1], type=Order)
    logging.disable()  # the pool's complaints about a server that was killed
    if order.clock_off_s:
        wrong_clock.set_off(order.clock_off_s, datetimes=order.role != "remote")
    from tests.chaos import roles

    if order.bug is not None:
        from tests.chaos.planted import plant

        plant(order.bug)
    run = {"worker": roles.worker, "configurer": roles.configurer, "follower": roles.follower}.get(order.role, work)
    asyncio.run(run(order, stdin_closed()))


if __name__ == "__main__":
    main()
