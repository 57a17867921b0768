"""Before it sweeps, a sweeper looks which queues need it: many quiet ones cost few statements, and no commit."""

from __future__ import annotations

from typing import Any

import psycopg

from tarry import Message
from tarry.app import App
from tarry.core.settings import QueueSettings
from tarry.storage.postgres._sync.runner import drive
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.connections import KEYWORDS, configure
from tarry.storage.postgres.operation import PostgresOperation
from tarry.storage.postgres.queues import statements as queue_statements
from tarry.storage.postgres.statement import Op, Statement
from tests.kit.clocks import WatchedClock
from tests.kit.settings import FOR_TESTS
from tests.kit.steps import MINUTE
from tests.plans.explaining import kept, prepare


def test_quiet_queues_need_no_sweep(database: str) -> None:
    clock = WatchedClock()
    store = PostgresStore(database, clock=clock, settings=FOR_TESTS, poll_timer=lambda: 0.0)
    with App(store, dsn=database) as app:
        maintenance = app.store.maintenance

        def polled(name: str, *, n: int = 1, settings: QueueSettings = QueueSettings(), leased: bool = True) -> None:
            app.queues.create(name, settings)
            app.queue(name).offer_many([Message(payload=i, priority=i % 2 * 9) for i in range(n)])
            if leased:
                assert app.queue(name).try_poll() is not None

        polled("expired", n=2)
        polled("exhausted", settings=QueueSettings(max_attempts=1))
        clock.advance(MINUTE)
        polled("running")
        polled("ready", n=100, leased=False)
        polled("long", n=200, leased=False)
        polled("paused", n=200, leased=False)
        app.queues.pause("paused")
        app.queues.create("empty")
        names = [info.name for info in app.queues.list()]
        needing = ["exhausted", "expired", "long"]
        assert sorted(app.store.run(maintenance.needing_sweep(names))) == needing
        for name in needing:
            app.store.run(maintenance.sweep(name))
        assert app.store.run(maintenance.needing_sweep(names)) == ["long"]


def test_a_thousand_quiet_queues_take_two_statements_that_read_indexes_only_by_their_heads(database: str) -> None:
    names = [f"queue-{i:04}" for i in range(1_000)]
    store = PostgresStore(database, settings=FOR_TESTS)
    operation = store.maintenance.needing_sweep(names)
    assert isinstance(operation, PostgresOperation)
    sent: list[Statement[Any]] = []
    assert recorded(operation.start(True), sent) == []
    assert len(sent) == 2
    with psycopg.connect(database, **KEYWORDS) as conn:
        configure(conn)
        prepare(conn, sent[0])
        for name in names[:500]:
            drive(conn, queue_statements.create(name, QueueSettings(), None).run())
        conn.execute(
            "insert into tarry.message (queue, key, payload, due_at, planned_at, created_at, priority, conflict) "
            "select q.id, i::text, '', now(), now(), now(), 0, 0 from tarry.queue q cross join generate_series(1, 20) i"
        )
        plan = kept(conn, sent[0], run=True)
        assert plan.ways() == {"message_order"}
        assert plan.rows() == 500 * 20
        assert plan.buffers < 500 * 60
    store.close()


def recorded(op: Op[Any], sent: list[Statement[Any]]) -> Any:
    try:
        step = next(op)
        while True:
            assert isinstance(step, Statement)
            sent.append(step)
            step = op.send([])
    except StopIteration as stop:
        return stop.value
