"""The overview of all queues for the dashboard, from rollups and capped counts, in a fixed number of statements."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from tarry.core.durations import floored
from tarry.core.errors import TarryError
from tarry.core.messages.model import Counted
from tarry.core.ports import AsyncStore
from tarry.core.rollups.health import JUDGED_FOR, Lag, QueueHealth, judge
from tarry.core.rollups.model import (
    ConsumerSlice,
    DepthSlice,
    Measure,
    QueueSlice,
    RollupWindow,
    Standing,
    TimeBucket,
    summed,
)
from tarry.services.shared_result import SharedResult

MINUTE = timedelta(minutes=1)
SPARK_FOR = timedelta(minutes=30)
_FRESH_S = 1.0
_CATCH_UP_S = 0.1
"""Maximum time a page waits for lagging rollups."""
COUNTED = 2_000
"""Maximum count of messages per state, divided among all queues."""
_LEAST_COUNTED = 100
"""Minimum of that limit per queue."""
_log = logging.getLogger("tarry")
OfQueue = TypeVar("OfQueue", QueueSlice, TimeBucket, ConsumerSlice)


class RollUps:
    """Updates the rollups while pages are read, at most once a second for all concurrent pages."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self.fresh = SharedResult(self._roll_up, _FRESH_S)

    async def _roll_up(self) -> None:
        try:
            until = time.monotonic() + _CATCH_UP_S
            while not (await self._store.run(self._store.rollups.roll_up())).complete and time.monotonic() < until:
                pass
        except TarryError as error:
            # A standby or a read-only role: pages show the rollups of the sweeper.
            _log.info("the rollups were not updated: %s", error)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSeries:
    """Sums over several queues per point in time."""

    starts: Sequence[datetime]
    slices: Sequence[QueueSlice]
    lags: Sequence[Lag]
    buckets: Sequence[TimeBucket]
    """The histograms behind `lags`."""
    live: Sequence[int | None]
    """Live messages at the end of each point; None if the total is not known."""
    dead: Sequence[int | None]
    states: Mapping[str, Sequence[int | None]]
    """Sampled live messages by state; None: unknown. Empty if most points have no sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    health: QueueHealth
    spark: Sequence[int]
    """Acks per minute, up to the last full minute."""

    @property
    def name(self) -> str:
        return self.health.info.name


async def queue_rows(
    store: AsyncStore, now: datetime, sees: Callable[[str], bool], *, queue: str | None = None
) -> list[QueueRow]:
    """The visible queues by name, with their state, the last half hour and the problems found."""
    minute = floored(now, MINUTE)
    since, until = minute - SPARK_FOR + MINUTE, minute + MINUTE
    lately = now - JUDGED_FOR
    infos = {info.name: info for info in await store.run(store.queues.infos())}
    count_to = COUNTED if queue else max(_LEAST_COUNTED, COUNTED // max(1, len(infos)))
    standings = await store.run(store.rollups.standings(limit=count_to, queue=queue))
    slices = _by_queue(await store.run(store.rollups.slices(RollupWindow(MINUTE, since, until, queue))))
    judged = RollupWindow(MINUTE, lately, until, queue)
    lags = _by_queue(await store.run(store.rollups.times(Measure.LAG, judged, whole=True)))
    consumers = _by_queue(await store.run(store.rollups.consumers(judged)))
    running = [worker for worker in await store.run(store.workers.list()) if not worker.is_late(now)]
    rows: list[QueueRow] = []
    for standing in standings:
        name = standing.queue
        if name not in infos or queue not in (None, name) or not sees(name):
            continue
        own = slices[name]
        recent = [row for row in own if row.start_at >= lately]
        workers = {worker.consumer for worker in running if name in worker.queues}
        health = judge(infos[name], standing, recent, summed(lags[name]), consumers[name], now, workers)
        acked = {row.start_at: row.acked for row in own}
        starts = [since + at * MINUTE for at in range(round((minute - since) / MINUTE))]
        rows.append(QueueRow(health=health, spark=[acked.get(start, 0) for start in starts]))
    return rows


async def time_series(
    store: AsyncStore,
    starts: Sequence[datetime],
    width: timedelta,
    rows: Sequence[QueueRow],
    names: Sequence[str] | None = None,
    *,
    until: datetime | None = None,
) -> TimeSeries:
    """Sums over the queues of `rows` at each of `starts`, or over `names` if there are more queues than rows. `until`: the
    current time, if the last point lies in the past: depths are computed backwards from the current ones in `rows`."""
    names = [row.name for row in rows] if names is None else names
    end = starts[-1] + width
    window = RollupWindow(width, starts[0], end)
    slices = await store.run(
        store.rollups.slices(window._replace(until=end if until is None else until + width), sum_of=names)
    )
    buckets = await store.run(store.rollups.times(Measure.LAG, window, sum_of=names))
    sums = {row.start_at: row for row in slices}
    ordered = [sums.get(start) or QueueSlice("", start) for start in starts]
    later = [row for row in slices if row.start_at >= end]
    standings = [row.health.standing for row in rows]
    depths = await store.run(store.rollups.depths(window, names))
    is_present = until is None or until < end
    live_totals = [standing.live_total for standing in standings]
    dead_totals = [standing.dead_total for standing in standings]
    live = _backwards(live_totals, [row.live_delta for row in (*ordered, *later)])[: len(ordered)]
    return TimeSeries(
        starts=starts,
        slices=ordered,
        lags=percentiles(buckets, starts),
        buckets=buckets,
        live=live,
        dead=_backwards(dead_totals, [row.dead_delta for row in (*ordered, *later)])[: len(ordered)],
        states=_states(depths, starts, live, standings if is_present else ()),
    )


def _states(
    depths: Sequence[DepthSlice], starts: Sequence[datetime], live: Sequence[int | None], present: Sequence[Standing]
) -> dict[str, list[int | None]]:
    """`present`: the queues, if the last point includes the current time. Points without live messages need no sample."""
    sampled = {row.start_at: row for row in depths}
    known = sum(at in sampled or total == 0 for at, total in zip(starts, live, strict=True))
    if not sampled or 2 * known < len(starts):
        return {}
    states: dict[str, list[int | None]] = {}
    for name in ("delayed", "ready", "leased"):
        values = [
            getattr(sampled[start], name) if start in sampled else 0 if total == 0 else None
            for start, total in zip(starts, live, strict=True)
        ]
        if present:
            counts: list[Counted] = [getattr(standing.counts, name) for standing in present]
            values[-1] = None if any(count.capped for count in counts) else sum(count.n for count in counts)
        states[name] = values
    return states


def percentiles(buckets: Sequence[TimeBucket], starts: Sequence[datetime]) -> list[Lag]:
    """Percentiles at each point in time."""
    by_start: dict[datetime, list[TimeBucket]] = defaultdict(list)
    for bucket in buckets:
        by_start[bucket.start_at].append(bucket)
    return [Lag.of(summed(by_start[start])) for start in starts]


def _backwards(totals: Sequence[int | None], deltas: Sequence[int]) -> list[int | None]:
    """The value at the end of each point, from the current totals; None if no queue's total is known."""
    known = [total for total in totals if total is not None]
    if not known:
        return [None for _ in deltas]
    value, values = sum(known), list[int | None]()
    for delta in reversed(deltas):
        values.append(max(0, value))
        value -= delta
    return values[::-1]


def _by_queue(rows: Sequence[OfQueue]) -> defaultdict[str, list[OfQueue]]:
    grouped: defaultdict[str, list[OfQueue]] = defaultdict(list)
    for row in rows:
        grouped[row.queue].append(row)
    return grouped
