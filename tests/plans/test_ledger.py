"""A ledger of many ticks: forgetting goes by its index, and looks at no more than it forgets."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tarry.core.cron.model import Reason, ScheduleChange, ScheduleSpec, ScheduleState, TickChange, Verdict
from tarry.core.cron.schedule_types import Periodic
from tarry.storage.postgres.arrays import register_array_dumpers
from tarry.storage.postgres.cron import role as cron
from tarry.storage.postgres.statement import bind
from tests.kit.servers import Servers
from tests.plans.explaining import fresh, undone

TICKS = 100_000
SINCE = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
_FILL = """
    insert into tarry.tick (ledger, hash, tick, verdict, reason, decided_at)
    select 'p' || i %% 100, 'h', %(since)s::timestamptz + i * interval '1 minute', 'planned', 'on_time',
        %(since)s::timestamptz + (i - 1) * interval '1 minute'
    from generate_series(0, %(ticks)s - 1) i
"""


@pytest.fixture(scope="module")
def ledger(servers: Servers) -> Iterator[psycopg.Connection[Any]]:
    server = servers.get("18")
    dsn = server.new_database()
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(_FILL, {"since": SINCE, "ticks": TICKS})
        conn.execute("analyze tarry.tick")
        register_array_dumpers(conn.adapters)
        yield conn
    server.drop_database(dsn)


def test_where_nothing_is_old_nothing_is_looked_at(ledger: psycopg.Connection[Any]) -> None:
    plan = fresh(ledger, bind("cron/forget", before=SINCE, limit=10_000), run=True)
    assert "tick_over" in plan.ways("tick")
    assert plan.rows("tick") == 0
    assert plan.buffers < 20


def test_only_what_is_forgotten_is_looked_at(ledger: psycopg.Connection[Any]) -> None:
    with undone(ledger):
        plan = fresh(ledger, bind("cron/forget", before=SINCE + TICKS // 2 * MINUTE, limit=200), run=True)
    assert plan.ways("tick") == {"tick_over", "Tid Scan"}
    assert plan.rows("tick") <= 2 * 200  # found, and removed


@pytest.mark.parametrize("analysed", [True, False])
def test_taking_back_what_was_forgotten_goes_by_the_tick(ledger: psycopg.Connection[Any], analysed: bool) -> None:
    if not analysed:
        ledger.execute("delete from pg_statistic where starelid = 'tarry.tick'::regclass")
    ticks = {(f"p{n % 100}", "h", SINCE + n * MINUTE): True for n in range(50)}
    with undone(ledger):
        ledger.execute(
            "insert into tarry.tick_forgotten select 'p' || i, 'h', 'infinity' from generate_series(0, 99) i"
        )
        plan = fresh(ledger, cron.remove_forgotten(ticks), run=True)
    assert plan.ways("tick") == {"tick_once"}
    assert plan.rows("tick") == 50


@pytest.mark.parametrize("analysed", [True, False])
def test_the_check_reads_other_configurations_by_the_tick(ledger: psycopg.Connection[Any], analysed: bool) -> None:
    if not analysed:
        ledger.execute("delete from pg_statistic where starelid = 'tarry.tick'::regclass")
    decided = [(_change(f"p{n % 100}"), _tick(SINCE + n * MINUTE)) for n in range(50)]
    with undone(ledger):
        plan = fresh(ledger, cron.enter_ticks(decided, {f"p{n}": f"p{n}" for n in range(100)}), run=True)
    assert plan.ways("tick") == {"tick_once"}
    assert plan.rows("tick") <= 50


def _change(name: str) -> ScheduleChange:
    spec = ScheduleSpec(name=name, schedule=Periodic(MINUTE), queue="q", payload=b"")
    after = ScheduleState(spec=spec, cursor_at=SINCE, wake_at=None, decided_at=SINCE, installed_at=SINCE)
    return ScheduleChange(name=name, expected=None, after=after, decided_at=SINCE)


def _tick(at: datetime) -> TickChange:
    return TickChange(hash="other", tick=at, verdict=Verdict.PLANNED, reason=Reason.ON_TIME)
