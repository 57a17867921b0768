"""Fill a database by SQL, as if it had been in use for a day: messages, dead letters, events, and what the pipeline stores.

Rows are written in bulk, so that millions take minutes. Events of one transaction have one `xid`, as a batch of offers has.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import LiteralString, cast

import psycopg
from psycopg.conninfo import make_conninfo

from tarry.app import connect, connect_async
from tarry.core.cron.model import ScheduleSpec
from tarry.core.cron.schedule_types import Cron
from tarry.core.dead_letters.fingerprints import fingerprint

BATCH = 1_000
"""Events of one transaction."""
PART = 500_000
"""Events that are rolled up at once."""
ERRORS = (
    "TimeoutError: no response after 30.0 s",
    "HTTPError: 503 Service Unavailable",
    "ValueError: currency 'XXX' is unknown",
    "KeyError: 'address'",
    "ConnectionResetError: [Errno 104] Connection reset by peer",
)
_BULK = ("queues", "messages", "dead_letters", "pipeline_runs", "anomalies", "audits", "redrives", "bulk_jobs")
_ZONES = ("UTC", "Europe/Berlin", "America/New_York")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    messages: int = 0
    """Live ones."""
    events: int = 0
    dead: int = 0
    queues: int = 10
    consumers: int = 20
    schedules: int = 0
    anomalies: int = 0
    runs: int = 0
    """Of the pipeline."""
    audits: int = 0
    redrives: int = 0
    bulk_jobs: int = 0


def name(queue: int) -> str:
    return f"queue-{queue:05}"


def fill(dsn: str, sizes: Sizes) -> None:
    """Fill a migrated database that has no queues. `derive` does the rest."""
    with connect(dsn) as app:
        app.queues.create(name(0))
    parameters = asdict(sizes) | {
        "error": ERRORS[0],
        "errors": list(ERRORS),
        "fingerprints": [fingerprint("exhausted", error) for error in ERRORS],
    }
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("set synchronous_commit = off")
        conn.execute("select tarry.journal_partition(current_date + day) from generate_series(-1, 3) day")
        for rows in _BULK:
            conn.execute(_sql(rows), parameters)
        conn.execute("vacuum (analyze) tarry.message, tarry.dead_letter")


async def derive(dsn: str, sizes: Sizes) -> None:
    """Events, rolled up by the library in parts as a sweeper does, since one window of all would not fit into memory; and
    schedules."""
    dsn = make_conninfo(dsn, options="-c work_mem=256MB")
    async with connect_async(dsn) as app, await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        await conn.execute("set synchronous_commit = off")
        await conn.execute(_sql("events"))
        for first in range(1, sizes.events + 1, PART):
            part = (first, min(first + PART - 1, sizes.events), sizes.events, BATCH, sizes.queues, sizes.consumers)
            await conn.execute("call pg_temp.load_events(%s, %s, %s, %s, %s, %s)", part)
            while not (await app.store.run(app.store.rollups.roll_up())).complete:
                pass
        while await app.store.run(app.store.rollups.forget(limit=1_000_000)):
            pass
        await conn.execute("vacuum (analyze) tarry.event, tarry.rollup, tarry.rollup_time, tarry.rollup_consumer")
        for first in range(0, sizes.schedules, 1_000):
            await app.schedules.apply([_spec(n) for n in range(first, min(first + 1_000, sizes.schedules))])


def _spec(n: int) -> ScheduleSpec:
    schedule = Cron(f"{n % 60} {n % 24} * * *", _ZONES[n % len(_ZONES)])
    return ScheduleSpec(name=f"report-{n:05}", schedule=schedule, queue=name(0), payload=b"1")


def _sql(file: str) -> LiteralString:
    return cast("LiteralString", (Path(__file__).parent / "sql" / f"{file}.sql").read_text())
