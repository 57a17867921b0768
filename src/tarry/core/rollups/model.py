"""Rollups of the journal: counts and durations per queue and time slice."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from tarry.core.journal.events import Event, EventKind
from tarry.core.messages.model import Counted, Counts

WIDTHS: Mapping[timedelta, timedelta] = {
    timedelta(seconds=10): timedelta(hours=3),
    timedelta(minutes=1): timedelta(days=2),
    timedelta(minutes=10): timedelta(days=8),
    timedelta(hours=1): timedelta(days=90),
}
"""Slice widths, and how long slices of each width are kept."""
CONSUMER_WIDTHS = (timedelta(minutes=1), timedelta(hours=1))
_PER_OCTAVE = 4
LAST_BUCKET = 200
MOST_ROWS = 200_000
DUE_COUNTED = 10_000
"""Maximum number of messages that `due_ahead` counts per priority, divided among all queues."""
SAMPLED = 2_500
"""The same for state samples, before and after now: with a million live messages, 10,000 took 67 ms."""
LEAST_DUE_COUNTED = 100
"""Minimum of these limits per queue."""


class Measure(StrEnum):
    LAG = "lag"
    """Delay of first deliveries: from the due time to the lease."""
    WORK = "work"
    """Duration of attempts: from the lease to the ack or nack."""


class RollupWindow(NamedTuple):
    """Slices of one width that begin between two instants, for one queue or all."""

    width: timedelta
    since: datetime
    until: datetime
    queue: str | None = None


class QueueSlice(NamedTuple):
    """The events of one queue in one slice of time. Slices without events do not exist."""

    queue: str
    start_at: datetime
    offered: int = 0
    leased: int = 0
    acked: int = 0
    nacked: int = 0
    expired: int = 0
    buried: int = 0
    redriven: int = 0
    removed: int = 0
    live_delta: int = 0
    """Change in the number of live messages."""
    dead_delta: int = 0


class DepthSlice(NamedTuple):
    """Messages of each state at the end of one slice of time; None: too many to count."""

    start_at: datetime
    delayed: int | None
    ready: int | None
    leased: int


class TimeBucket(NamedTuple):
    """`n` durations of at most `upper_s(bucket)` seconds, and longer than those of the bucket before."""

    queue: str
    start_at: datetime
    bucket: int
    n: int


class ConsumerSlice(NamedTuple):
    queue: str
    consumer: str
    start_at: datetime
    leased: int
    acked: int
    nacked: int
    expired: int
    work_s: float
    """Sum over acks and nacks."""
    last_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The current state of a queue."""

    queue: str
    counts: Counts
    waiting: int
    """Processes waiting for a message."""
    live_total: int | None = None
    """Exact at the last roll-up; None if the journal is off or nothing was rolled up yet."""
    dead_total: int | None = None

    @property
    def dead(self) -> Counted:
        """Exact if the total is known. The total may be slightly outdated, so the count is a lower bound."""
        counted = self.counts.dead
        return counted if self.dead_total is None else Counted(max(self.dead_total, counted.n))


class DeathSlice(NamedTuple):
    """Dead letters of one fingerprint that died in one time slice."""

    fingerprint: str
    start_at: datetime | None
    """None: outside of the window."""
    deaths: int
    consumers: tuple[str, ...]


class RolledUp(NamedTuple):
    events: int
    complete: bool
    """False: more events remain. Events that another process is adding count as added."""


def upper_s(bucket: int) -> float:
    """The longest duration in a bucket."""
    return 2 ** (bucket / _PER_OCTAVE) / 1000


def bucket_of(took_s: float) -> int:
    return 0 if took_s <= 0.001 else min(math.ceil(_PER_OCTAVE * math.log2(took_s * 1000)), LAST_BUCKET)


def quantiles(buckets: Mapping[int, int], shares: Sequence[float]) -> list[float | None]:
    """The durations at these quantiles (`shares`, ascending), to within the 19 % of a bucket; None if there are none."""
    total, seen = sum(buckets.values()), 0
    reached: list[float | None] = []
    for bucket in sorted(buckets) if total else ():
        seen += buckets[bucket]
        while len(reached) < len(shares) and seen >= shares[len(reached)] * total and buckets[bucket]:
            reached.append(upper_s(bucket))
    return reached + [None] * (len(shares) - len(reached))


def quantile(buckets: Mapping[int, int], share: float) -> float | None:
    return quantiles(buckets, [share])[0]


def measured(event: Event) -> tuple[Measure, float] | None:
    """The measure and seconds that an event adds to the histograms, as in rollups/sql/add.sql."""
    if event.kind is EventKind.LEASED and event.attempt == 1 and event.due_at is not None:
        return Measure.LAG, max(0.0, (event.at - event.due_at).total_seconds())
    if event.kind in (EventKind.ACKED, EventKind.NACKED) and event.leased_at is not None:
        return Measure.WORK, max(0.0, (event.at - event.leased_at).total_seconds())
    return None


def summed(buckets: Iterable[TimeBucket]) -> dict[int, int]:
    """One histogram of many."""
    total: dict[int, int] = {}
    for row in buckets:
        total[row.bucket] = total.get(row.bucket, 0) + row.n
    return total


def due_share(queues: int, limit: int = DUE_COUNTED) -> int:
    """How many messages of each queue and priority `due_ahead` counts."""
    return max(LEAST_DUE_COUNTED, limit // max(1, queues))
