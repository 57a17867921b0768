"""Weeks of a few queues, minute by minute, with faults that we put there ourselves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd

START = datetime(2026, 9, 7, tzinfo=UTC)
"""A Monday."""
WEEK = 7 * 1440
TRAINING = 4 * WEEK
BASES = (600, 150, 60, 25, 10, 5)
"""Messages a minute, averaged over the week, one queue each."""
KINDS = ("spike", "drop", "stall", "slow", "errors")
COLUMNS = ("offered", "updated", "acked", "nacked", "expired", "processing_p95_s", "lag_p95_s")


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


def world(seed: int, faults_per_queue: int = 12, training_faults_per_week: int = 3) -> World:
    rng = np.random.default_rng(seed)
    frames, injected = [], []
    for queue_id, base in enumerate(BASES, start=1):
        frame = _life(rng, base)
        for week in range(TRAINING // WEEK):
            for fault in _placed(rng, queue_id, week * WEEK, training_faults_per_week):
                _inject(rng, frame, fault)
        judged = _placed(rng, queue_id, TRAINING, faults_per_queue)
        for fault in judged:
            _inject(rng, frame, fault)
        injected += judged
        frames.append(_as_events(frame, queue_id))
    queues = tuple((i, f"queue-{base}") for i, base in enumerate(BASES, start=1))
    return World(pd.concat(frames, ignore_index=True), tuple(injected), queues)


def _life(rng: np.random.Generator, base: float) -> pd.DataFrame:
    """Busy by day, quiet at night, slower at the weekend, restless within the hour, and growing by 2 % a week."""
    n = TRAINING + WEEK
    minute = np.arange(n)
    of_day = minute % 1440 / 1440
    daily = 0.25 + 1.5 * np.exp(-(((of_day - 0.6) / 0.18) ** 2)) + 0.5 * np.exp(-(((of_day - 0.38) / 0.06) ** 2))
    weekly = np.where(minute // 1440 % 7 >= 5, 0.45, 1.0)
    wave = np.zeros(n)
    for i, shock in enumerate(rng.normal(0, 0.03, n)):
        wave[i] = 0.95 * wave[i - 1] + shock if i else shock
    rate = base * daily * weekly * np.exp(wave) * 1.02 ** (minute / WEEK)
    offered = rng.negative_binomial(40, 40 / (40 + rate)).astype(float)
    acked = rng.poisson(np.convolve(offered, [0.5, 0.3, 0.2])[:n]).astype(float)
    failed = rng.poisson(0.01 * acked + 0.01).astype(float)
    seen = np.maximum(acked, 1)
    processing = 0.2 * np.exp(rng.normal(0, 0.08 + 0.5 / np.sqrt(seen)) + 0.15 * daily)
    lag = 0.05 * np.exp(rng.normal(0, 0.15 + 0.6 / np.sqrt(seen)) + 0.2 * daily)
    return pd.DataFrame({"offered": offered, "acked": acked, "failed": failed, "processing": processing, "lag": lag})


def _placed(rng: np.random.Generator, queue_id: int, first: int, count: int) -> list[Fault]:
    """At any time of day, two hours apart at least."""
    slots = rng.choice(WEEK // 180 - 1, size=count, replace=False)
    placed = []
    for i, slot in enumerate(sorted(slots)):
        begin = first + int(slot) * 180 + int(rng.integers(0, 30))
        length = int(rng.integers(10, 45))
        placed.append(Fault(queue_id, KINDS[i % len(KINDS)], begin, begin + length - 1))
    return placed


def _inject(rng: np.random.Generator, frame: pd.DataFrame, fault: Fault) -> None:
    at = slice(fault.first, fault.last)
    length = fault.last - fault.first + 1
    usual = frame.loc[at, "offered"].to_numpy()
    if fault.kind == "spike":
        more = rng.poisson(usual * rng.uniform(2, 4) + 1)
        frame.loc[at, "offered"] += more
        frame.loc[at, "acked"] += more * 0.5
        frame["acked"] = frame["acked"].round()
    elif fault.kind == "drop":
        frame.loc[at, "offered"] = rng.binomial(usual.astype(int), rng.uniform(0.05, 0.25))
        frame.loc[at, "acked"] = frame.loc[at, "offered"]
    elif fault.kind == "stall":
        frame.loc[at, ["acked", "failed"]] = 0
        frame.loc[at, ["processing", "lag"]] = np.nan
    elif fault.kind == "slow":
        frame.loc[at, "processing"] *= rng.uniform(2.5, 6) * np.exp(rng.normal(0, 0.1, length))
    else:
        frame.loc[at, "failed"] += rng.poisson(usual * rng.uniform(0.15, 0.5) + 1)


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
        }
    )
    happened = rows["offered"] + rows["acked"] + rows["nacked"] > 0
    return rows.loc[happened]
