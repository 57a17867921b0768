"""Results of the pipeline as its jobs publish them, without Spark: anomalies with minutes and bands, runs, and a lake."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import psycopg

SENTENCE = "Queue orders: 42.0 s was the delivery lag (p95) in the minute 12:05 UTC, where up to 9.0 s is usual."
_COUNTS = "updated, redriven, released, expired, buried, dropped, discarded, refused, bytes_offered, depth, dead"
PAYLOAD = '{"note": "top secret"}'
"""Of each archived message."""


def publish(dsn: str, lake: Path, *, anomalies: int = 1, runs: int = 1, files: int = 1) -> None:
    """For the queue `orders`, which must exist."""
    with psycopg.connect(dsn) as conn:
        (queue_id,) = conn.execute("select id from tarry.queue where name = 'orders'").fetchone() or (0,)
        _runs(conn, str(lake), runs)
        _minutes(conn, queue_id)
        _anomalies(conn, queue_id, anomalies)
        conn.execute(
            "insert into tarry.forecast select %s, 'orders', 1200, 30, 240, now() + '2 hours', now() + '3 hours', 900, "
            "now() + '2 hours', 'orders falls behind at 14:00 UTC: 1,200 messages come due.', max(id), now() "
            "from tarry.pipeline_run on conflict do nothing",
            (queue_id,),
        )
        _lake(conn, lake, queue_id, files)


def _runs(conn: psycopg.Connection[Any], lake: str, rounds: int) -> None:
    jobs = {
        "archive": {"rows": 120_431, "batches": 1, "lake": lake},
        "metrics": {"lake": lake, "days": 1, "minutes": 1_440, "changed": 61},
        "anomalies": {
            "lake": lake,
            "days": ["2026-11-16", "2026-11-17"],
            "seen_until": "2026-11-17T11:59:30+00:00",
            "anomalies": 3,
        },
        "forecast": {"lake": lake, "queues": 3, "planned": 1_200},
        "verify": {"ok": True, "events": 120_431, "problems": []},
    }
    conn.cursor().executemany(
        "insert into tarry.pipeline_run (job, started_at, ended_at, state, summary) "
        "select %s, at, at + '17 seconds', 'done', %s from (select now() - %s * interval '5 minutes' as at) a",
        [(job, json.dumps(summary), n) for n in range(rounds, 0, -1) for job, summary in jobs.items()],
    )
    conn.execute(
        "insert into tarry.pipeline_run (job, started_at, ended_at, state, error) "
        "values ('compact', now() - interval '9 minutes', now() - interval '8 minutes', 'failed', "
        "'OSError: no space <b>left</b>')"
    )


def _minutes(conn: psycopg.Connection[Any], queue_id: int) -> None:
    conn.execute(
        f"insert into tarry.metric_minute (queue_id, minute, queue, offered, leased, acked, nacked, {_COUNTS}, "
        "lag_p50_s, lag_p95_s, lag_p99_s, exact, run_id, fresh_at) "
        "select %s, minute, 'orders', 60 + n %% 7, 60, 55, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, "
        "2, case when n between 20 and 26 then 42 else 4 + n %% 3 end, 50, true, 1, now() "
        "from (select date_trunc('minute', now()) - n * interval '1 minute' as minute, n from generate_series(1, 180) n) m "
        "on conflict do nothing",
        (queue_id,),
    )
    conn.execute(
        "insert into tarry.metric_band select %s, 'lag', hour, 'orders', 3, 5, 9, 60, 1, now() "
        "from generate_series(0, 167) hour on conflict do nothing",
        (queue_id,),
    )


def _anomalies(conn: psycopg.Connection[Any], queue_id: int, count: int) -> None:
    kinds = (("late_delivery", "warning"), ("unusual_failures", "critical"), ("large_payload", "info"))
    rows = [
        (f"{n}-{queue_id}", *kinds[n % 3], queue_id, "order-17" if n % 3 == 2 else None, n, n, f"{SENTENCE} ({n})")
        for n in range(count)
    ]
    conn.cursor().executemany(
        "insert into tarry.anomaly (fingerprint, detector, detector_version, severity, queue_id, queue, key, window_from, "
        "window_to, sentence, observed, expected_high, score, evidence, run_id, fresh_at) "
        "values (%s, %s, 1, %s, %s, 'orders', %s, now() - interval '27 minutes' - %s * interval '1 second', "
        "now() - interval '1 minute' - %s * interval '1 second', %s, 42, 9, 7.8, 'select 1', 1, now())",
        rows,
    )


def _lake(conn: psycopg.Connection[Any], lake: Path, queue_id: int, files: int) -> None:
    now = datetime.now(UTC)
    parts = [
        "select n as id, now() - n * interval 1 second as at, ['offered', 'leased', 'acked'][n % 3 + 1] as kind, "
        "'order-' || n as key, now() as due_at, null::timestamptz as lease_until, "
        "case when n % 10 = 0 then 'TimeoutError: slow' end as error "
        f"from range({number * 300}, {number * 300 + 300}) r(n)"
        for number in range(files)
    ]
    _batch(conn, lake, now, queue_id, "orders", parts, rows=300)


def archive_story(dsn: str, lake: Path, queue: str, at: datetime) -> None:
    """Around an instant, in the archive only: `done` was acked before it, `held` was leased at it and acked later, `late`
    was delayed, and `next` was offered later."""
    text = f"timestamptz '{at.isoformat()}'"
    events = (
        (1, -60, "offered", "done", -60), (2, -59, "offered", "held", -59), (3, -58, "offered", "late", 600),
        (4, -30, "leased", "done", -60), (5, -20, "acked", "done", -60), (6, -10, "leased", "held", -59),
        (7, 10, "acked", "held", -59), (8, 20, "offered", "next", 20),
    )  # fmt: skip
    parts = " union all ".join(
        f"select {id} as id, {text} + interval '{after} seconds' as at, '{kind}' as kind, '{key}' as key, "
        f"{text} + interval '{due} seconds' as due_at, {text} + interval '60 seconds' as lease_until, null as error"
        for id, after, kind, key, due in events
    )
    with psycopg.connect(dsn) as conn:
        (queue_id,) = conn.execute("select id from tarry.queue where name = %s", (queue,)).fetchone() or (0,)
        _batch(conn, lake, at, queue_id, queue, [parts], rows=len(events))


def _batch(
    conn: psycopg.Connection[Any], lake: Path, at: datetime, queue_id: int, queue: str, parts: list[str], rows: int
) -> None:
    """A file of each part, which selects what differs between its events."""
    day, listed = at.date(), list[dict[str, Any]]()
    for number, part in enumerate(parts):
        path = f"events/batch=00000001/date={day}/queue={queue}/part-{number}.parquet"
        (lake / path).parent.mkdir(parents=True, exist_ok=True)
        events = duckdb.sql(
            f"select *, id as xid, 1 as queue_id, '{queue}' as queue_name, id as version, 1 as attempt, 5 as priority, "
            "null::timestamptz as leased_at, 'shop-1' as consumer, 17 as size, null::blob as payload_hash, "
            f"null::varchar as detail, '{PAYLOAD}'::blob as payload from ({part})"
        )
        assert events is not None
        events.write_parquet(str(lake / path))
        size = (lake / path).stat().st_size
        listed.append({"path": path, "day": f"{day}", "queue_id": queue_id, "queue": queue, "rows": rows, "checksum": 1,
                       "bytes": size})  # fmt: skip
    count = rows * len(parts)
    conn.execute(
        "insert into tarry.archive_batch (batch, lake, kind, position, state, system_id, from_edge, to_edge, rows, files) "
        "select coalesce(max(batch), 0) + 1, %s, 'archive', 1, 'durable', '1', '{}', '{}', %s, %s from tarry.archive_batch",
        (str(lake), count, json.dumps(listed)),
    )
    conn.execute("insert into tarry.archive_day (lake, day, rows) values (%s, %s, %s)", (str(lake), day, count))
