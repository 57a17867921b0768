"""Weeks of a few queues, minute by minute, with faults that we put there ourselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pandas as pd

START = datetime(2026, 9, 7, tzinfo=UTC)
"""A Monday."""
WEEK = 7 * 1440
TRAINING = 4 * WEEK
BASES = (600, 150, 60, 25, 10, 5)
"""Messages a minute, averaged over the week, one queue each."""
KINDS = ("spike", "drop", "stall", "slow", "errors")
COLUMNS = ("offered", "updated", "acked", "nacked", "expired", "processing_p95_s", "lag_p95_s", "depth")

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Assumptions:
    """What the worlds assume. The thresholds were chosen on worlds with the default values."""

    growth: float = 1.02
    """From week to week."""
    waves: float = 1.0
    """Height of the variation within the hour."""
    dispersion: float = 40
    """Of the negative binomial counts: their variance is n + n² / dispersion."""
    fault_size: float = 1.0
    zone: str = "UTC"
    """The rhythm follows the clocks of this zone."""
    holiday: date | None = None
    """A day of the judged week with the rhythm of a Sunday."""
    job_minutes: int = 0
    """Length of a nightly job, which offers five times the average and starts at any time between 01:00 and 03:00."""
    bursts: float = 0.0
    """Bursts an hour that are part of usual life: 2 to 6 minutes long, with one to three times the rate on top."""
    wandering: float = 0.0
    """Spread of the level from day to day."""


AS_ASSUMED = Assumptions()
HOLIDAY = date(2026, 10, 7)
CHANGED = {
    "clocks change, zone not set": Assumptions(zone="Australia/Sydney"),
    "clocks change, zone set": Assumptions(zone="Australia/Sydney"),
    "holiday on a Wednesday, not listed": Assumptions(holiday=HOLIDAY),
    "holiday on a Wednesday, listed": Assumptions(holiday=HOLIDAY),
    "growth of 10 % a week": Assumptions(growth=1.10),
    "nightly job at a varying time": Assumptions(job_minutes=20),
    "waves twice as high": Assumptions(waves=2.0),
    "faults half as large": Assumptions(fault_size=0.5),
    "overdispersed counts": Assumptions(dispersion=8),
    "bursts as usual life": Assumptions(bursts=0.25),
    "another level every day": Assumptions(wandering=0.15),
}
"""One assumption changed at a time. Clocks in Sydney changed on 4 October 2026, the day before the judged week."""


@dataclass(frozen=True)
class Fault:
    queue_id: int
    kind: str
    first: int
    """The minute since the beginning."""
    last: int

    def span(self) -> tuple[datetime, datetime]:
        return START + timedelta(minutes=self.first), START + timedelta(minutes=self.last + 1)


@dataclass(frozen=True)
class World:
    minutes: pd.DataFrame
    """One row per queue and minute in which something happened."""
    faults: tuple[Fault, ...]
    """Those of the week that is judged; the weeks before have some too, as real ones do."""
    queues: tuple[tuple[int, str], ...]
    since: datetime = START + timedelta(minutes=TRAINING)
    """What is judged."""
    until: datetime = START + timedelta(minutes=TRAINING + WEEK)
    lives: tuple[tuple[datetime, datetime], ...] = ()
    """Beginning and end of each queue, if it did not live all the time."""


def world(
    seed: int, of: Assumptions = AS_ASSUMED, faults_per_queue: int = 12, training_faults_per_week: int = 3
) -> World:
    frames, injected = [], []
    for queue_id, frame, faults in lives(seed, of, faults_per_queue, training_faults_per_week):
        injected += faults
        frames.append(_as_events(frame, queue_id))
    queues = tuple((i, f"queue-{base}") for i, base in enumerate(BASES, start=1))
    return World(pd.concat(frames, ignore_index=True), tuple(injected), queues)


def lives(
    seed: int, of: Assumptions, faults_per_queue: int = 12, training_faults_per_week: int = 3
) -> Iterator[tuple[int, pd.DataFrame, list[Fault]]]:
    rng = np.random.default_rng(seed)
    for queue_id, base in enumerate(BASES, start=1):
        frame = _life(rng, base, of)
        for week in range(TRAINING // WEEK):
            for fault in _placed(rng, queue_id, week * WEEK, training_faults_per_week):
                _inject(rng, frame, fault, of.fault_size)
        judged = _placed(rng, queue_id, TRAINING, faults_per_queue)
        for fault in judged:
            _inject(rng, frame, fault, of.fault_size)
        yield queue_id, frame, judged


def _life(rng: np.random.Generator, base: float, of: Assumptions) -> pd.DataFrame:
    """Busy by day, quiet at night, slower at the weekend, restless within the hour, and growing by 2 % a week."""
    n = TRAINING + WEEK
    minute = np.arange(n)
    local = _local(minute, of.zone)
    of_day = local % 1440 / 1440
    daily = 0.25 + 1.5 * np.exp(-(((of_day - 0.6) / 0.18) ** 2)) + 0.5 * np.exp(-(((of_day - 0.38) / 0.06) ** 2))
    day = local // 1440
    is_free = day % 7 >= 5
    if of.holiday is not None:
        is_free |= day == (of.holiday - START.date()).days
    weekly = np.where(is_free, 0.45, 1.0)
    wave = np.zeros(n)
    for i, shock in enumerate(rng.normal(0, 0.03 * of.waves, n)):
        wave[i] = 0.95 * wave[i - 1] + shock if i else shock
    rate = base * daily * weekly * np.exp(wave) * of.growth ** (minute / WEEK) * _level(rng, day, of)
    rate += _extra(rng, base, rate, day, of_day, of)
    offered = rng.negative_binomial(of.dispersion, of.dispersion / (of.dispersion + rate)).astype(float)
    acked = rng.poisson(np.convolve(offered, [0.5, 0.3, 0.2])[:n]).astype(float)
    failed = rng.poisson(0.01 * acked + 0.01).astype(float)
    seen = np.maximum(acked, 1)
    processing = 0.2 * np.exp(rng.normal(0, 0.08 + 0.5 / np.sqrt(seen)) + 0.15 * daily)
    lag = 0.05 * np.exp(rng.normal(0, 0.15 + 0.6 / np.sqrt(seen)) + 0.2 * daily)
    return pd.DataFrame({"offered": offered, "acked": acked, "failed": failed, "processing": processing, "lag": lag})


def _local(minute: npt.NDArray[np.int64], zone: str) -> npt.NDArray[np.int64]:
    """Minutes since the first midnight, by the clocks of a zone."""
    if zone == "UTC":
        return minute
    at = pd.DatetimeIndex(pd.to_datetime(START) + pd.to_timedelta(minute, unit="min"))
    wall = at.tz_convert(ZoneInfo(zone)).tz_localize(None)
    return ((wall - pd.Timestamp(START.date())) // pd.Timedelta(minutes=1)).to_numpy(np.int64)


def _level(rng: np.random.Generator, day: npt.NDArray[np.int64], of: Assumptions) -> Values | float:
    return np.exp(rng.normal(0, of.wandering, int(day.max()) + 1))[day] if of.wandering else 1.0


def _extra(
    rng: np.random.Generator, base: float, rate: Values, day: npt.NDArray[np.int64], of_day: Values, of: Assumptions
) -> Values:
    """The nightly job, and bursts that are no faults."""
    extra = np.zeros(len(rate))
    if of.job_minutes:
        begins = rng.uniform(60, 180, int(day.max()) + 1)[day]
        of_job = of_day * 1440 - begins
        extra += 5 * base * ((of_job >= 0) & (of_job < of.job_minutes))
    if of.bursts:
        for begin in np.flatnonzero(rng.random(len(rate)) < of.bursts / 60):
            span = slice(begin, begin + int(rng.integers(2, 7)))
            extra[span] += rate[span] * rng.uniform(1, 3)
    return extra


def _placed(rng: np.random.Generator, queue_id: int, first: int, count: int) -> list[Fault]:
    """At any time of day, two hours apart at least."""
    slots = rng.choice(WEEK // 180 - 1, size=count, replace=False)
    placed = []
    for i, slot in enumerate(sorted(slots)):
        begin = first + int(slot) * 180 + int(rng.integers(0, 30))
        length = int(rng.integers(10, 45))
        placed.append(Fault(queue_id, KINDS[i % len(KINDS)], begin, begin + length - 1))
    return placed


def _inject(rng: np.random.Generator, frame: pd.DataFrame, fault: Fault, size: float) -> None:
    at = slice(fault.first, fault.last)
    length = fault.last - fault.first + 1
    usual = frame.loc[at, "offered"].to_numpy()
    if fault.kind == "spike":
        more = rng.poisson(usual * rng.uniform(2, 4) * size + 1)
        frame.loc[at, "offered"] += more
        frame.loc[at, "acked"] += more * 0.5
        frame["acked"] = frame["acked"].round()
    elif fault.kind == "drop":
        kept = 1 - (1 - rng.uniform(0.05, 0.25)) * size
        frame.loc[at, "offered"] = rng.binomial(usual.astype(int), kept)
        frame.loc[at, "acked"] = frame.loc[at, "offered"]
    elif fault.kind == "stall" and size == 1:
        frame.loc[at, ["acked", "failed"]] = 0
        frame.loc[at, ["processing", "lag"]] = np.nan
    elif fault.kind == "stall":
        frame.loc[at, "acked"] = rng.binomial(frame.loc[at, "acked"].to_numpy().astype(int), 1 - size)
    elif fault.kind == "slow":
        factor = 1 + (rng.uniform(2.5, 6) - 1) * size
        frame.loc[at, "processing"] *= factor * np.exp(rng.normal(0, 0.1, length))
    else:
        frame.loc[at, "failed"] += rng.poisson(usual * rng.uniform(0.15, 0.5) * size + 1)


def _as_events(frame: pd.DataFrame, queue_id: int) -> pd.DataFrame:
    """As the metrics have it: minutes without anything are missing, and so are durations of nothing."""
    none = frame["acked"] == 0
    rows = pd.DataFrame(
        {
            "queue_id": queue_id,
            "minute": pd.to_datetime(START) + pd.to_timedelta(np.arange(len(frame)), unit="min"),
            "offered": frame["offered"].astype("int64"),
            "updated": 0,
            "acked": frame["acked"].astype("int64"),
            "nacked": frame["failed"].astype("int64"),
            "expired": 0,
            "processing_p95_s": frame["processing"].mask(none),
            "lag_p95_s": frame["lag"].mask(none),
            "depth": np.nan,
        }
    )
    happened = rows["offered"] + rows["acked"] + rows["nacked"] > 0
    return rows.loc[happened]
