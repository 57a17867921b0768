"""The end of a run: everything is drained, and what is left in the database is read, with SQL of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString

import psycopg

import tarry
from tarry.core.settings import QueueSettings, RetrySettings, StoreSettings
from tarry.services.cron._sync.scheduler import Scheduler
from tarry.storage.postgres._sync.store import PostgresStore
from tests.chaos import layout
from tests.chaos.checker.journal import Event
from tests.chaos.recording import OK, Left, Recorder
from tests.chaos.transactions import EFFECTS
from tests.chaos.workload import row_of, us

PATIENT = StoreSettings(
    connection_retry=RetrySettings(retries=200, cap_for=timedelta(milliseconds=200), total_for=timedelta(minutes=2)),
    connect_for=timedelta(seconds=2),
    create_queues=False,
)
DRAINED_IN_S = 120.0
_EVENTS = """
    select q.name, e.key, e.id, (extract(epoch from e.at) * 1000000)::bigint, e.kind::text, e.version,
        (e.detail ->> 'from_version')::bigint
    from tarry.event e join tarry.queue q on q.id = e.queue
    order by q.name, e.key, e.id
"""


def prepare(dsn: str) -> None:
    """The queues of a run, and the table for effects."""
    with tarry.App(PostgresStore(dsn, settings=PATIENT), dsn=dsn) as app:
        for kind in layout.KINDS.values():
            name = layout.MOVING_NAMES[0] if kind is layout.MOVING else kind.name
            lease_for = timedelta(seconds=layout.LEASE_S)
            app.queues.create(name, QueueSettings(lease_for=lease_for, max_attempts=kind.max_attempts), exist_ok=True)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(EFFECTS)


def drain(dsn: str, folder: Path, stop_others: Callable[[], None] = lambda: None) -> Left:
    """Plan what is due, ack everything as its leases run out, and read what is left then.

    `stop_others` ends the processes that need a drained queue to end well. A sweeper among them may revive dead letters until
    then, so the queues are drained once more.
    """
    recorder = Recorder(folder / "drain.history")
    with tarry.App(PostgresStore(dsn, settings=PATIENT), dsn=dsn) as app, psycopg.connect(dsn, autocommit=True) as conn:
        number = recorder.begin("resume", layout.PAUSED.name)
        app.queues.resume(layout.PAUSED.name)
        recorder.end(number, OK)
        planned_until = us(app.store.run(app.store.queues.now()))
        while Scheduler(app.store).run_once().more:
            pass
        _empty(app, conn, recorder)
        stop_others()
        _empty(app, conn, recorder)
        return _left(conn, planned_until)


def _empty(app: tarry.App, conn: psycopg.Connection[Any], recorder: Recorder) -> None:
    names = [info.name for info in app.queues.list()]
    deadline = time.monotonic() + DRAINED_IN_S
    while _first(conn, "select 1 from tarry.message limit 1") and time.monotonic() < deadline:
        if not sum(_ack_all(app, name, recorder) for name in names):
            time.sleep(0.1)


def _ack_all(app: tarry.App, name: str, recorder: Recorder) -> int:
    queue, called = app.queue(name), layout.stored_name(name)
    number = recorder.begin("poll", called, 500)
    deliveries = queue.try_poll_many(500)
    recorder.end(number, OK, [row_of(delivery) for delivery in deliveries])
    if deliveries:
        lease_ids = [delivery.lease_id for delivery in deliveries]
        number = recorder.begin("ack", called, [[lease_id.key, str(lease_id.token)] for lease_id in lease_ids], 0, True)
        recorder.end(number, OK, [outcome.value for outcome in queue.leases.ack(lease_ids)])
    return len(deliveries)


def _left(conn: psycopg.Connection[Any], planned_until: int) -> Left:
    live = """
        select q.name, m.key, m.payload, m.version from tarry.message m join tarry.queue q on q.id = m.queue
    """
    dead = """
        select q.name, d.key, d.payload, d.version, d.attempt
        from tarry.dead_letter d join tarry.queue q on q.id = d.queue
    """
    effects = conn.execute("select payload from public.chaos_effect").fetchall()
    return Left(
        [(layout.stored_name(name), key, _text(data), version) for name, key, data, version in conn.execute(live)],
        [(layout.stored_name(name), key, _text(data), *rest) for name, key, data, *rest in conn.execute(dead)],
        [payload for (payload,) in effects],
        planned_until,
    )


def _text(payload: bytes) -> str:
    return payload.decode(errors="replace")


def _first(conn: psycopg.Connection[Any], query: LiteralString) -> Any:
    return conn.execute(query).fetchone()


def journal(dsn: str) -> Iterator[Event]:
    """Every event, sorted by queue, key and id."""
    with psycopg.connect(dsn) as conn, conn.cursor("journal") as rows:
        rows.itersize = 20_000
        rows.execute(_EVENTS)
        for name, *rest in rows:
            yield Event(layout.stored_name(name), *rest)
