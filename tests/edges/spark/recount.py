"""An independent count of a journal: DuckDB computes metrics, consumer statistics and facts from its raw rows, and reads what
the pipeline has stored in the lake, without Spark and without our code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable

MINUTES = """
with creation as (
    select queue, key, version, moment from event where kind in ('offered', 'updated', 'edited', 'redriven')
), lost as (
    -- The end of the lease that expired in the transaction of this one.
    select l.id, arg_max(h.lease_until, h.id) as lease_until
    from event l
    join event x on x.kind = 'expired' and x.xid = l.xid and x.queue = l.queue and x.version = l.version
    join event h on h.kind in ('leased', 'touched') and h.queue = l.queue and h.version = l.version and h.id < l.id
    where l.kind = 'leased'
    group by l.id
), released as (
    select l.id, max(r.moment) as moment
    from event l join event r on r.kind = 'released' and r.queue = l.queue and r.version = l.version and r.id < l.id
    where l.kind = 'leased'
    group by l.id
), lease as (
    select l.id, epoch_us(l.moment) - epoch_us(greatest(l.due_at, c.moment, lost.lease_until, released.moment)) as lag,
        epoch_us(l.moment) - epoch_us(c.moment) as wait
    from event l
    join creation c on c.queue = l.queue and c.version = l.version
    left join lost on lost.id = l.id
    left join released on released.id = l.id
    where l.kind = 'leased'
), worked as (
    select id, epoch_us(moment) - epoch_us(leased_at) as took from event
    where kind in ('acked', 'nacked') or (kind = 'buried' and detail ->> '$.reason' = 'buried')
), minute as (
    select e.queue, date_trunc('minute', e.moment) as minute, count(*) filter (kind = 'offered') as offered,
        count(*) filter (kind = 'updated') as updated, count(*) filter (kind = 'redriven') as redriven,
        count(*) filter (kind = 'leased') as leased, count(*) filter (kind = 'acked') as acked,
        count(*) filter (kind = 'nacked') as nacked, count(*) filter (kind = 'released') as released,
        count(*) filter (kind = 'expired') as expired, count(*) filter (kind = 'buried') as buried,
        count(*) filter (kind = 'dropped') as dropped, count(*) filter (kind = 'discarded') as discarded,
        count(*) filter (kind = 'refused') as refused,
        coalesce(sum(size) filter (kind in ('offered', 'updated')), 0)::bigint as bytes,
        quantile_cont(l.lag, [0.5, 0.95, 0.99]) as lag, quantile_cont(l.wait, [0.5, 0.95, 0.99]) as wait,
        quantile_cont(w.took, [0.5, 0.95, 0.99]) as processing
    from event e left join lease l on l.id = e.id left join worked w on w.id = e.id
    where e.key is not null and e.kind <> 'cron_planned'
    group by all
), level as (
    select m.queue, m.minute,
        count(*) filter (kind in ('offered', 'redriven'))
            - count(*) filter (kind in ('acked', 'dropped', 'buried', 'cron_replaced')) as depth,
        count(*) filter (kind = 'buried') - count(*) filter (kind in ('redriven', 'discarded')) as dead
    from minute m join event e on e.queue = m.queue and e.moment < m.minute + interval 1 minute
    group by all
)
select m.*, depth, dead from minute m join level using (queue, minute) order by 1, 2
"""
_POINTS = "[round(1e6 * {0}_p50_s), round(1e6 * {0}_p95_s), round(1e6 * {0}_p99_s)]"
STORED_MINUTES = f"""
select queue_id, minute, offered, updated, redriven, leased, acked, nacked, released, expired, buried, dropped, discarded,
    refused, bytes_offered, {_POINTS.format("lag")}, {_POINTS.format("wait")}, {_POINTS.format("processing")}, depth, dead
from stored order by 1, 2
"""

HOURS = """
with held as (
    select e.id, arg_max(h.consumer, h.id) as consumer
    from event e join event h on h.kind = 'leased' and h.queue = e.queue and h.version = e.version and h.id < e.id
    where e.kind in ('expired', 'released')
    group by e.id
), act as (
    select e.queue, date_trunc('hour', e.moment) as hour, e.kind, e.detail ->> '$.reason' as reason,
        case when e.kind in ('expired', 'released') then held.consumer else e.consumer end as consumer,
        epoch_us(e.moment) - epoch_us(e.leased_at) as took
    from event e left join held on held.id = e.id
    where e.key is not null
), hour as (
    select queue, hour, coalesce(consumer, 'unknown') as consumer, count(*) filter (kind = 'leased') as leased,
        count(*) filter (kind = 'acked') as acked,
        count(*) filter (kind = 'nacked' or kind = 'buried') as failed, count(*) filter (kind = 'expired') as expired,
        count(*) filter (kind = 'released') as released,
        quantile_cont(took, [0.5, 0.95, 0.99]) filter (kind in ('acked', 'nacked') or reason = 'buried') as processing
    from act
    where kind in ('leased', 'acked', 'nacked', 'expired', 'released')
        or (kind = 'buried' and reason in ('buried', 'undecodable'))
    group by all
)
select queue, hour, consumer, leased, acked, failed, expired, released, acked / nullif(acked + failed + expired, 0),
    leased / nullif(sum(leased) over (partition by queue, hour), 0), processing
from hour order by 1, 2, 3
"""
STORED_HOURS = f"""
select queue_id, hour, consumer, leased, acked, failed, expired, released, success_rate, share, {_POINTS.format("processing")}
from stored order by 1, 2, 3
"""

FACTS = """
with creation as (
    select queue, version, key, moment, due_at, size, (detail ->> '$.from_version')::bigint as origin
    from event where kind in ('offered', 'updated', 'edited', 'redriven')
), ended as (
    select queue, version, moment, case kind when 'acked' then 'done' when 'buried' then 'dead' else 'dropped' end as outcome
    from event where kind in ('acked', 'dropped', 'buried', 'cron_replaced')
), replaced as (
    select c.queue, c.version, min(u.moment) as moment
    from creation c
    join event u on u.kind in ('updated', 'edited') and u.queue = c.queue and u.key = c.key and u.version > c.version
    anti join ended x on x.queue = c.queue and x.version = c.version
    group by all
), life as (
    select queue, version, min(moment) filter (kind = 'leased') as first_leased_at,
        count(*) filter (kind = 'leased') - count(*) filter (kind = 'released') as attempts,
        coalesce(sum(epoch_us(moment) - epoch_us(leased_at)) filter (
            kind in ('acked', 'nacked') or (kind = 'buried' and detail ->> '$.reason' = 'buried')), 0) / 1e6 as processing_s,
        arg_max(error, id) filter (error is not null) as last_error,
        arg_max(consumer, id) filter (kind = 'leased') as consumer
    from event where kind <> 'refused' group by all
), again as (
    -- An expiry that was not the end: the message was leased again in the same transaction.
    select e.queue, e.version, count(*) as redeliveries
    from event e
    semi join (select xid, version from event where kind = 'leased') l on l.xid = e.xid and l.version = e.version
    where e.kind = 'expired'
    group by all
), heirs as (
    select distinct queue, origin from creation where origin is not null
)
select c.queue, c.version, c.key, c.origin,
    case when heirs.origin is not null then 'redriven' when x.outcome is not null then x.outcome
        when r.moment is not null then 'superseded' else 'live' end as outcome,
    epoch_us(c.moment), epoch_us(c.due_at), c.size, epoch_us(coalesce(x.moment, r.moment)), epoch_us(first_leased_at),
    attempts, processing_s, last_error, consumer, coalesce(redeliveries, 0)
from creation c
join life using (queue, version)
left join ended x using (queue, version)
left join replaced r using (queue, version)
left join again using (queue, version)
left join heirs on heirs.queue = c.queue and heirs.origin = c.version
order by 1, 2
"""
_FACT_COLUMNS = """queue_id, version, key, origin, {outcome}, epoch_us(offered_at), epoch_us(due_at), size, {settled_at},
    epoch_us(first_leased_at), {attempts}, {processing_s}, {last_error}, {consumer}, {redeliveries}"""
STORED_FACTS = "select {} from stored order by 1, 2".format(
    _FACT_COLUMNS.format(
        outcome="outcome", settled_at="epoch_us(settled_at)", attempts="attempts", processing_s="processing_s",
        last_error="last_error", consumer="consumer", redeliveries="redeliveries",
    )
)  # fmt: skip
_LATEST = "select * from stored qualify row_number() over (partition by queue_id, version order by round desc) = 1"
STORED_OPEN = "select {} from ({}) where is_open order by 1, 2".format(
    _FACT_COLUMNS.format(
        outcome="if(settled is null, 'live', settled.outcome)", settled_at="epoch_us(settled['at'])",
        attempts="leases - releases", processing_s="processing_us / 1e6", last_error="failed.error", consumer="held.consumer",
        redeliveries="expiries - if(settled is not null and settled.attempt = expired_attempt, 1, 0)",
    ),
    _LATEST,
)  # fmt: skip

_EVENTS = """
select id, xid::text::bigint as xid, at as moment, kind::text as kind, queue, key, version, attempt, due_at, leased_at,
    lease_until, consumer, size, error, detail::text as detail
from tarry.event
"""


def events_of(conn: psycopg.Connection[Any], key: str | None = None) -> list[dict[str, Any]]:
    """Of one key, or all."""
    cursor = conn.execute(_EVENTS + " where key = %(key)s or %(key)s::text is null", {"key": key})
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor]


class Recount:
    """A journal in DuckDB, as `event`."""

    def __init__(self, dsn: str) -> None:
        with psycopg.connect(dsn) as conn:
            self._rows = events_of(conn)
        self._db = duckdb.connect()
        self._db.execute("set timezone = 'UTC'")
        self.kinds = {row["kind"] for row in self._rows}
        self._load(self._rows)

    def _load(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._db.register("journal", pa.Table.from_pylist(list(rows)))
        self._db.execute("create or replace table event as select * replace (detail::json as detail) from journal")

    def __enter__(self) -> Recount:
        return self

    def __exit__(self, *reason: object) -> None:
        self._db.close()

    def expected(self, query: str) -> list[tuple[Any, ...]]:
        return self._db.execute(query).fetchall()

    def stored(self, lake: str, table: str, query: str) -> list[tuple[Any, ...]]:
        """Of the files that the log of a table lists."""
        files = DeltaTable(f"{lake}/{table}").file_uris()
        self._db.execute(
            f"create or replace view stored as select * from read_parquet({files!r}, union_by_name = true)"
        )
        return self._db.execute(query).fetchall()

    def check(self, lake: str, erased: Sequence[Mapping[str, Any]] = ()) -> None:
        """Minutes, hours and facts of the lake are exactly those of the journal, percentiles of busy minutes within 1 %.
        Events of forgotten keys are still counted in minutes and hours.
        """
        self._load([*self._rows, *erased])
        compared(self.stored(lake, "metrics", STORED_MINUTES), self.expected(MINUTES))
        compared(self.stored(lake, "consumers", STORED_HOURS), self.expected(HOURS))
        self._load(self._rows)
        facts = self.stored(lake, "facts", STORED_FACTS) + self.stored(lake, "open", STORED_OPEN)
        compared(sorted(facts, key=lambda row: row[:2]), self.expected(FACTS))


def compared(actual: Sequence[Sequence[Any]], expected: Sequence[Sequence[Any]]) -> None:
    """Row by row, so that a difference is readable."""
    assert len(actual) == len(expected), f"{len(actual)} rows instead of {len(expected)}"
    for row, other in zip(actual, expected, strict=True):
        assert [near(value) for value in other] == [plain(value) for value in row], (
            f"\nfound    {row}\nexpected {other}"
        )


def plain(value: Any) -> Any:
    """Percentiles of nothing as None, instants in UTC."""
    if isinstance(value, list):
        return None if all(item is None for item in value) else value
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def near(value: Any) -> Any:
    """Percentiles in microseconds, within their error; other numbers as they are, but for the last digits of a quotient."""
    if isinstance(value, list):
        return pytest.approx(value, rel=0.01, abs=1) if plain(value) is not None else None
    return pytest.approx(value, rel=1e-12) if isinstance(value, float) else plain(value)
