"""Random traffic through the real store on a clock that the test moves, and plain SQL that counts it independently."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, LiteralString

import psycopg
import pytest

import tarry
from tarry.api._sync.delivery import Delivery
from tarry.api._sync.queue import Queue
from tarry.app import App
from tarry.testing import MutableClock

EVENING = datetime(2024, 1, 1, 23, 40, tzinfo=UTC)
"""Traffic from here on crosses midnight."""


class Traffic:
    """Two queues, three consumers, everything that can happen to a message, in an order that a seed decides."""

    def __init__(self, dsn: str, seed: int) -> None:
        self.clock = MutableClock(EVENING)
        self.random = Random(seed)
        self.app = tarry.connect(dsn, clock=self.clock, consumer="w0")
        self.app.queues.create("orders", tarry.QueueSettings(max_attempts=3))
        self.app.queues.create("mails", tarry.QueueSettings(lease_for=timedelta(seconds=10)))
        self.consumers = [self.app, *(tarry.connect(dsn, clock=self.clock, consumer=name) for name in ("w1", "w2"))]
        self.held: list[Delivery[Any]] = []

    def close(self) -> None:
        for app in self.consumers:
            app.close()

    def steps(self, n: int) -> None:
        for _ in range(n):
            self.clock.advance(timedelta(microseconds=self.random.randint(0, 6_000_000)))
            self._step(self.random.choice(self.consumers).queue(self.random.choice(("orders", "mails"))))

    def _step(self, queue: Queue[Any]) -> None:
        draw, key = self.random.random(), f"k{self.random.randint(0, 40)}"
        if draw < 0.35:
            delay = timedelta(seconds=self.random.choice((-30, 0, 0, 1.5, 20, 90)))
            at = self.clock.pinned() + delay
            queue.offer(key, "x" * self.random.randint(0, 50), at=at, priority=self.random.randint(0, 9))
        elif draw < 0.6:
            self.held += queue.try_poll_many(self.random.randint(1, 4))
        elif draw < 0.63:
            queue.drop(key)
        elif draw < 0.645:
            queue.dead_letters.redrive(limit=5)
        elif draw < 0.65:
            queue.dead_letters.discard()
        elif self.held:
            self._settle(self.held.pop(self.random.randrange(len(self.held))))

    def _settle(self, delivery: Delivery[Any]) -> None:
        draw = self.random.random()
        if draw < 0.55:
            delivery.ack()
        elif draw < 0.75:
            delivery.nack(f"failed {self.random.randint(0, 9)}")
        elif draw < 0.83:
            delivery.release()
        elif draw < 0.88:
            delivery.bury("no use")
        elif draw < 0.94:
            delivery.touch()
            self.held.append(delivery)


METRICS: LiteralString = """
with creation as (
    select queue, key, version, at from tarry.event where kind in ('offered', 'updated', 'redriven')
), lease as (
    select l.id, l.queue, l.at,
        extract(epoch from l.at - greatest(l.due_at, c.at, lost.lease_until, released.at)) as lag,
        extract(epoch from l.at - c.at) as wait
    from tarry.event l
    join creation c on (c.queue, c.key, c.version) = (l.queue, l.key, l.version)
    left join lateral (
        select h.lease_until from tarry.event h
        where (h.queue, h.key, h.version) = (l.queue, l.key, l.version) and h.kind in ('leased', 'touched') and h.id < l.id
          and exists (select from tarry.event x where x.kind = 'expired' and x.xid = l.xid
              and (x.queue, x.key, x.version) = (l.queue, l.key, l.version))
        order by h.id desc limit 1
    ) lost on true
    left join lateral (
        select max(r.at) as at from tarry.event r
        where r.kind = 'released' and (r.queue, r.key, r.version) = (l.queue, l.key, l.version) and r.id < l.id
    ) released on true
    where l.kind = 'leased'
), worked as (
    select id, extract(epoch from at - leased_at) as took from tarry.event
    where kind in ('acked', 'nacked') or (kind = 'buried' and detail ->> 'reason' = 'buried')
), minute as (
    select e.queue, date_trunc('minute', e.at) as minute,
        count(*) filter (where kind = 'offered') as offered, count(*) filter (where kind = 'updated') as updated,
        count(*) filter (where kind = 'redriven') as redriven, count(*) filter (where kind = 'leased') as leased,
        count(*) filter (where kind = 'acked') as acked, count(*) filter (where kind = 'nacked') as nacked,
        count(*) filter (where kind = 'released') as released, count(*) filter (where kind = 'expired') as expired,
        count(*) filter (where kind = 'buried') as buried, count(*) filter (where kind = 'dropped') as dropped,
        count(*) filter (where kind = 'discarded') as discarded, count(*) filter (where kind = 'refused') as refused,
        coalesce(sum(size) filter (where kind in ('offered', 'updated')), 0) as bytes,
        percentile_cont(array[0.5, 0.95, 0.99]) within group (order by l.lag) as lag,
        percentile_cont(array[0.5, 0.95, 0.99]) within group (order by l.wait) as wait,
        percentile_cont(array[0.5, 0.95, 0.99]) within group (order by w.took) as processing
    from tarry.event e left join lease l on l.id = e.id left join worked w on w.id = e.id
    where e.key is not null
    group by 1, 2
)
select m.*,
    (select count(*) filter (where kind in ('offered', 'redriven'))
         - count(*) filter (where kind in ('acked', 'dropped', 'buried'))
     from tarry.event e where e.queue = m.queue and e.at < m.minute + interval '1 minute') as depth,
    (select count(*) filter (where kind = 'buried') - count(*) filter (where kind in ('redriven', 'discarded'))
     from tarry.event e where e.queue = m.queue and e.at < m.minute + interval '1 minute') as dead
from minute m
order by 1, 2
"""

SERVED_METRICS: LiteralString = """
select queue_id, minute, offered, updated, redriven, leased, acked, nacked, released, expired, buried, dropped, discarded,
    refused, bytes_offered, array[lag_p50_s, lag_p95_s, lag_p99_s], array[wait_p50_s, wait_p95_s, wait_p99_s],
    array[processing_p50_s, processing_p95_s, processing_p99_s], depth, dead
from tarry.metric_minute order by 1, 2
"""

CONSUMERS: LiteralString = """
with act as (
    select e.queue, date_trunc('hour', e.at) as hour, e.kind::text as kind, e.detail ->> 'reason' as reason,
        case when e.kind in ('expired', 'released') then (
            select h.consumer from tarry.event h
            where h.kind = 'leased' and (h.queue, h.key, h.version) = (e.queue, e.key, e.version) and h.id < e.id
            order by h.id desc limit 1) else e.consumer end as consumer,
        extract(epoch from e.at - e.leased_at) as took
    from tarry.event e
    where e.key is not null
), hour as (
    select queue, hour, consumer, count(*) filter (where kind = 'leased') as leased,
        count(*) filter (where kind = 'acked') as acked,
        count(*) filter (where kind = 'nacked' or reason in ('buried', 'undecodable')) as failed,
        count(*) filter (where kind = 'expired') as expired, count(*) filter (where kind = 'released') as released,
        percentile_cont(array[0.5, 0.95, 0.99]) within group (order by took)
            filter (where kind in ('acked', 'nacked') or reason = 'buried') as processing
    from act
    where kind in ('leased', 'acked', 'nacked', 'expired', 'released') or reason in ('buried', 'undecodable')
    group by 1, 2, 3
)
select queue, hour, consumer, leased, acked, failed, expired, released,
    acked::float8 / nullif(acked + failed + expired, 0),
    leased::float8 / nullif(sum(leased) over (partition by queue, hour), 0)::float8, processing
from hour order by 1, 2, 3
"""

SERVED_CONSUMERS: LiteralString = """
select queue_id, hour, consumer, leased, acked, failed, expired, released, success_rate, share,
    array[processing_p50_s, processing_p95_s, processing_p99_s]
from tarry.consumer_hour order by 1, 2, 3
"""

FACTS: LiteralString = """
with creation as (
    select distinct on (queue, version) queue, version, key, at, due_at, size, (detail ->> 'from_version')::bigint as origin
    from tarry.event where kind in ('offered', 'updated', 'redriven')
), ended as (
    select queue, version, at, case kind when 'acked' then 'done' when 'dropped' then 'dropped' else 'dead' end as outcome
    from tarry.event where kind in ('acked', 'dropped', 'buried')
), fact as (
    select c.*, n.at as replaced_at, x.at as ended_at,
        case when exists (select from creation heir where heir.queue = c.queue and heir.origin = c.version) then 'redriven'
            when x.outcome is not null then x.outcome when n.at is not null then 'superseded' else 'live' end as outcome
    from creation c
    left join ended x on (x.queue, x.version) = (c.queue, c.version)
    left join lateral (
        select u.at from tarry.event u where u.kind = 'updated' and (u.queue, u.key) = (c.queue, c.key)
            and u.version > c.version order by u.id limit 1) n on x.outcome is null
)
select f.queue, f.version, f.key, f.origin, f.outcome, f.at, f.due_at, f.size, coalesce(f.ended_at, f.replaced_at),
    (select min(at) from tarry.event e where e.kind = 'leased' and (e.queue, e.version) = (f.queue, f.version)),
    (select count(*) filter (where kind = 'leased') - count(*) filter (where kind = 'released')
     from tarry.event e where (e.queue, e.version) = (f.queue, f.version)),
    (select coalesce(sum(extract(epoch from at - leased_at)), 0)::float8 from tarry.event e
     where (e.queue, e.version) = (f.queue, f.version)
       and (kind in ('acked', 'nacked') or (kind = 'buried' and detail ->> 'reason' = 'buried'))),
    (select error from tarry.event e where (e.queue, e.version) = (f.queue, f.version) and error is not null
     order by id desc limit 1),
    (select consumer from tarry.event e where (e.queue, e.version) = (f.queue, f.version) and kind = 'leased'
     order by id desc limit 1),
    (select count(*) from tarry.event e where (e.queue, e.version) = (f.queue, f.version) and kind = 'expired'
       and exists (select from tarry.event l where l.xid = e.xid and l.kind = 'leased' and l.version = e.version))
from fact f order by 1, 2
"""

FACT_COLUMNS = (
    "queue_id", "version", "key", "origin", "outcome", "offered_at", "due_at", "size", "settled_at", "first_leased_at",
    "attempts", "processing_s", "last_error", "consumer", "redeliveries",
)  # fmt: skip


def queried(dsn: str, query: LiteralString) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, options="-c timezone=UTC") as conn:
        return [tuple(map(plain, row)) for row in conn.execute(query)]


def plain(value: Any) -> Any:
    """Numbers as floats; percentiles of nothing as None."""
    if isinstance(value, list | tuple):
        values = [plain(item) for item in value]
        return None if all(item is None for item in values) else values
    return float(value) if isinstance(value, Decimal) else value


def compared(actual: Sequence[Sequence[Any]], expected: Sequence[Sequence[Any]]) -> None:
    """Row by row, so that a difference is readable. Seconds to the microsecond: the two sides round differently."""
    assert len(actual) == len(expected), f"{len(actual)} rows instead of {len(expected)}"
    for row, other in zip(actual, expected, strict=True):
        assert [near(value) for value in other] == list(row), f"\nfound    {row}\nexpected {other}"


def near(value: Any) -> Any:
    if isinstance(value, list):
        return [near(item) for item in value]
    return pytest.approx(value, abs=2e-6) if isinstance(value, float) else value


def depth_now(app: App) -> dict[str, tuple[int, int]]:
    counts = {name: app.queues.counts(name) for name in ("orders", "mails")}
    return {name: (of.delayed.n + of.ready.n + of.leased.n, of.dead.n) for name, of in counts.items()}
