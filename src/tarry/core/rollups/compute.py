"""Rollups computed from events, for stores with a bounded journal and without stored slices."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from tarry.core.journal.events import Event
from tarry.core.journal.events import EventKind as K
from tarry.core.journal.replay import BEGINS, ENDS
from tarry.core.rollups.model import ConsumerSlice, DeathSlice, Measure, QueueSlice, TimeBucket, bucket_of, measured

_COUNTED = {
    K.OFFERED: "offered", K.LEASED: "leased", K.ACKED: "acked", K.NACKED: "nacked", K.EXPIRED: "expired",
    K.BURIED: "buried", K.REDRIVEN: "redriven", K.DROPPED: "removed", K.CRON_REPLACED: "removed",
}  # fmt: skip
_OF_CONSUMERS = frozenset({K.LEASED, K.TOUCHED, K.ACKED, K.NACKED, K.EXPIRED, K.RELEASED, K.BURIED})

Timed = Iterable[tuple[datetime, Event]]
"""Events with the start times of their slices."""


def slices_of(events: Timed, sum_of: Sequence[str] | None = None) -> list[QueueSlice]:
    totals: dict[tuple[datetime, str], Counter[str]] = {}
    for start, event in events:
        if sum_of is not None and event.queue not in sum_of:
            continue
        total = totals.setdefault((start, event.queue if sum_of is None else ""), Counter())
        if event.kind in _COUNTED:
            total[_COUNTED[event.kind]] += 1
        total["live_delta"] += (event.kind in BEGINS) - (event.kind in ENDS)
        total["dead_delta"] += (event.kind is K.BURIED) - (event.kind in (K.REDRIVEN, K.DISCARDED))
    return [QueueSlice(name, start, **total) for (start, name), total in sorted(totals.items())]


def times_of(
    events: Timed, measure: Measure, sum_of: Sequence[str] | None = None, whole_at: datetime | None = None
) -> list[TimeBucket]:
    """`whole_at`: start of the window, if it counts as one slice."""
    totals: Counter[tuple[datetime, str, int]] = Counter()
    for start, event in events:
        took = measured(event)
        if took is not None and took[0] is measure and (sum_of is None or event.queue in sum_of):
            name = event.queue if sum_of is None else ""
            totals[whole_at or start, name, bucket_of(took[1])] += 1
    return [TimeBucket(name, start, bucket, n) for (start, name, bucket), n in sorted(totals.items())]


def consumers_of(events: Timed) -> list[ConsumerSlice]:
    totals: dict[tuple[datetime, str, str], tuple[Counter[K], float, datetime]] = {}
    for start, event in events:
        if event.consumer is None or event.kind not in _OF_CONSUMERS:
            continue
        took, group = measured(event), (start, event.queue, event.consumer)
        kinds, work_s, last_at = totals.get(group, (Counter[K](), 0.0, event.at))
        kinds[event.kind] += 1
        work_s += took[1] if took is not None and took[0] is Measure.WORK else 0.0
        totals[group] = (kinds, work_s, max(last_at, event.at))
    return [
        ConsumerSlice(name, consumer, start, **_counts(kinds), work_s=work_s, last_at=last_at)
        for (start, name, consumer), (kinds, work_s, last_at) in sorted(totals.items())
    ]


def _counts(kinds: Counter[K]) -> dict[str, int]:
    return {kind.value: kinds[kind] for kind in (K.LEASED, K.ACKED, K.NACKED, K.EXPIRED)}


def deaths_of(
    letters: Sequence[tuple[str, datetime, str | None]], width: timedelta, since: datetime, until: datetime
) -> list[DeathSlice]:
    """`letters`: fingerprints, times of death and consumers."""
    slices: dict[tuple[str, datetime | None], list[str | None]] = {}
    for fingerprint, died_at, consumer in letters:
        start = since + (died_at - since) // width * width if since <= died_at < until else None
        slices.setdefault((fingerprint, start), []).append(consumer)
    return [
        DeathSlice(fingerprint, start, len(consumers), tuple(sorted({name for name in consumers if name})))
        for (fingerprint, start), consumers in slices.items()
    ]
