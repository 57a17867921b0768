"""The forecast of a queue as a sentence."""

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastVerdict:
    """The forecast of one queue for the next days."""

    queue: str
    ready: int
    planned: int
    capacity: float | None
    paused: bool
    saturated_at: datetime | None
    recovered_at: datetime | None
    peak_backlog: float
    peak_at: datetime | None


def sentence(verdict: ForecastVerdict, *, ahead_for: timedelta, capacity_for: timedelta) -> str:
    """`capacity_for`: the time range from which the capacity was measured."""
    name, ahead = verdict.queue, _span(ahead_for)
    come_due = "message comes due" if verdict.planned == 1 else "messages come due"
    load = f"{verdict.planned:,} {come_due} in the next {ahead}"
    if verdict.ready:
        load += f" and {verdict.ready:,} {'is' if verdict.ready == 1 else 'are'} ready now"
    if not verdict.planned and not verdict.ready:
        return f"{name}: nothing is ready, and nothing comes due in the next {ahead}."
    if verdict.paused:
        return f"{name} is paused: {load}, and wait until it is resumed."
    if verdict.capacity is None:
        return f"{name}: {load}; nothing was acked in the last {_span(capacity_for)}, so its capacity is not known."
    rate = f"{_rate(verdict.capacity)} are worked off"
    worst = f"{max(verdict.peak_backlog, verdict.ready):,.0f} wait at the worst"
    if verdict.ready and verdict.ready >= verdict.peak_backlog:
        worst += ", now"
    elif verdict.peak_at is not None and verdict.peak_backlog > 0:
        worst += f", at {_instant(verdict.peak_at)}"
    if verdict.saturated_at is None:
        return f"{name} keeps up: {load}, {rate}, {worst}."
    end = (
        f"it has not caught up {ahead} from now"
        if verdict.recovered_at is None
        else f"it has caught up by {_instant(verdict.recovered_at)}"
    )
    return f"{name} falls behind at {_instant(verdict.saturated_at)}: {load}, {rate}, {worst}; {end}."


def _rate(per_minute: float) -> str:
    """The rate in a unit in which it does not round to zero: 0.2 a minute is not a capacity of 0."""
    for minutes, unit in ((1, "a minute"), (60, "an hour")):
        if per_minute * minutes >= 1:
            return f"{per_minute * minutes:,.0f} {unit}"
    return f"{per_minute * 1440:,.1f} a day"


def _instant(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _span(span: timedelta) -> str:
    for unit, name in ((timedelta(days=1), "day"), (timedelta(hours=1), "hour"), (timedelta(minutes=1), "minute")):
        n = span / unit
        if n >= 1:
            return f"{n:.3g} {name}s" if n != 1 else name
    return f"{span.total_seconds():.3g} seconds"
