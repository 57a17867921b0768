"""Two days of a journal: one to learn habits from, and one with trouble that we put there ourselves."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from benchmarks.anomalies.scores import Score
from tarry.edges.spark.schemas import EVENTS
from tarry.edges.spark.transforms import consumers, facts, metrics
from tarry.edges.spark.transforms import history as tracing
from tarry.edges.spark.transforms.anomalies import profiles
from tarry.edges.spark.transforms.anomalies.builtin import RULES
from tarry.edges.spark.transforms.anomalies.context import BANDS, QUEUES, DetectorContext
from tarry.edges.spark.transforms.anomalies.registry import detected

LEARNED = datetime(2026, 9, 7, tzinfo=UTC)
JUDGED = LEARNED + timedelta(days=1)
QUEUES_AND_LIMITS = ((1, "orders", 5), (2, "mails", 5))
MESSAGES = 3_000
"""A day and queue."""
EACH = 8
"""Of every kind of trouble, for each queue; the queue is cleared once."""
NEAR = timedelta(seconds=2)


@dataclass
class Story:
    rng: np.random.Generator
    rows: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    truth: list[tuple[str, int, datetime]] = field(default_factory=list[tuple[str, int, datetime]])
    queue_id: int = 1
    queue: str = "orders"
    xid: int = 0
    version: int = 0

    def write(self, kind: str, at: datetime, key: str | None, *, together: bool = False, **more: Any) -> None:
        self.xid += not together
        event = {"id": len(self.rows) + 1, "xid": self.xid, "at": at, "kind": kind, "queue_id": self.queue_id,
                "queue": self.queue, "key": key, "priority": 5, "attempt": 1, **more}  # fmt: skip
        self.rows.append(tuple(event.get(name) for name in EVENTS.names))

    def offer(self, key: str, at: datetime, *, size: int | None = None, together: bool = False) -> datetime:
        self.version += 1
        usual = int(800 * np.exp(self.rng.normal(0, 0.3)))
        self.write(
            "offered", at, key, together=together, due_at=at, size=size or usual, version=self.version, attempt=0
        )
        return at

    def lease(self, key: str, due_at: datetime, *, lag_s: float | None = None, **more: Any) -> datetime:
        lag = 0.05 * np.exp(self.rng.normal(0, 0.4)) if lag_s is None else lag_s
        at = due_at + timedelta(seconds=float(lag))
        held = {"due_at": due_at, "leased_at": at, "lease_until": at + timedelta(seconds=30)}
        name = f"worker-{self.rng.integers(4)}"
        self.write("leased", at, key, version=self.version, **{"consumer": name, **held, **more})
        return at

    def settle(self, kind: str, key: str, leased_at: datetime, *, took_s: float | None = None, **more: Any) -> datetime:
        took = 0.2 * np.exp(self.rng.normal(0, 0.4)) if took_s is None else took_s
        at = leased_at + timedelta(seconds=float(took))
        self.write(kind, at, key, leased_at=leased_at, version=self.version, **more)
        return at

    def usual_life(self, key: str, at: datetime, **offer: Any) -> datetime:
        leased = self.lease(key, self.offer(key, at, **offer))
        if self.rng.random() < 0.01:
            due = self.settle("nacked", key, leased, error="once") + timedelta(seconds=1)
            leased = self.lease(key, due, attempt=2)
        return self.settle("acked", key, leased)

    def trouble(self, detector: str, at: datetime) -> None:
        self.truth.append((detector, self.queue_id, at))


def story(seed: int) -> Story:
    history = Story(np.random.default_rng(seed))
    for queue_id, queue, _ in QUEUES_AND_LIMITS:
        history.queue_id, history.queue = queue_id, queue
        for day in (LEARNED, JUDGED):
            for i, second in enumerate(np.sort(history.rng.uniform(0, 86_000, MESSAGES))):
                history.usual_life(f"{day:%d}-{i}", day + timedelta(seconds=float(second)))
        for n in range(EACH):
            _trouble(history, n, JUDGED + timedelta(hours=2 * n + 1.5))
        _cleared(history, JUDGED + timedelta(hours=23))
    return history


def _trouble(history: Story, n: int, at: datetime) -> None:
    def later(minutes: float) -> datetime:
        return at + timedelta(minutes=minutes)

    history.trouble("flash_message", history.lease(f"flash-{n}", history.offer(f"flash-{n}", at), lag_s=0.0005))
    history.settle("acked", f"flash-{n}", at)
    history.trouble(
        "large_payload", history.offer(f"large-{n}", later(1), size=int(history.rng.integers(5_500, 50_000)))
    )
    leased = history.lease(f"long-{n}", history.offer(f"long-{n}", later(2)))
    long = history.settle("acked", f"long-{n}", leased, took_s=float(history.rng.uniform(11, 25)))
    history.trouble("long_processing", long)
    leased = history.lease(f"stolen-{n}", history.offer(f"stolen-{n}", later(4)))
    history.write("refused", leased + timedelta(seconds=1), f"stolen-{n}", detail=json.dumps({"verb": "ack"}))
    history.trouble("lock_stolen", leased + timedelta(seconds=1))
    history.settle("acked", f"stolen-{n}", leased, took_s=2)
    due = failed = history.offer(f"dead-{n}", later(5))
    for attempt in range(1, 6):
        failed = history.settle(
            "nacked", f"dead-{n}", history.lease(f"dead-{n}", due, attempt=attempt), attempt=attempt
        )
        due = failed + timedelta(seconds=5)
        if attempt == 4:
            history.trouble("near_dlq", failed)
    history.write("buried", failed, f"dead-{n}", together=True, attempt=5, detail=json.dumps({"reason": "exhausted"}))
    history.trouble("dlq_movement", failed)
    leased = history.lease(f"zombie-{n}", history.offer(f"zombie-{n}", later(7)))
    back = leased + timedelta(seconds=30 * 3.2)
    history.write("expired", back, f"zombie-{n}")
    history.settle("acked", f"zombie-{n}", history.lease(f"zombie-{n}", back, lag_s=0, attempt=2))
    history.trouble("zombie_message", leased + timedelta(seconds=60))
    for i in range(80):
        history.offer(f"burst-{n}-{i}", later(10) + timedelta(seconds=i / 10))
    for i in range(80):
        due = later(10.5) + timedelta(seconds=i * 0.04)
        history.settle("acked", f"burst-{n}-{i}", history.lease(f"burst-{n}-{i}", due, consumer="worker-0", lag_s=0.1))
    history.trouble("burst_dequeue", later(10.5) + timedelta(seconds=3))
    for name, kind, minutes in (
        ("bulk_enqueue", "offered", 12),
        ("bulk_move", "redriven", 13),
        ("bulk_delete", "dropped", 14),
    ):
        for i in range(int(history.rng.integers(10, 40))):
            history.write(kind, later(minutes), f"bulk-{n}-{i}", together=i > 0, due_at=later(minutes), size=500)
        history.trouble(name, later(minutes))


def _cleared(history: Story, at: datetime) -> None:
    history.write("queue_purged", at, None, detail=json.dumps({"count": 3}))
    history.trouble("queue_cleared", at)
    history.write("queue_purged", at + timedelta(minutes=5), None, detail=json.dumps({"count": 0}))


def scores(spark: SparkSession, seed: int) -> list[Score]:
    history = story(seed)
    events = spark.createDataFrame(history.rows, EVENTS).localCheckpoint()
    sequence = tracing.sequenced(events).persist()
    traced = tracing.traced(sequence).persist()
    tallies = profiles.tallied(metrics.measured(traced), consumers.consumer_hours(traced))
    queues = [(i, name, most, LEARNED, None, "events") for i, name, most in QUEUES_AND_LIMITS]
    context = DetectorContext(
        events=tracing.with_history(events, sequence),
        idle=facts.idle(facts.still_open(facts.fold(sequence))),
        metrics=events.limit(0),
        series=events.limit(0),
        queues=spark.createDataFrame(queues, QUEUES),
        profiles=profiles.profiles(tallies, [JUDGED.date()]).localCheckpoint(),
        bands=spark.createDataFrame([], BANDS),
        since=JUDGED,
        until=JUDGED + timedelta(days=1),
        minutes_since=JUDGED,
    )  # fmt: skip
    rows = detected(context, RULES).select("detector", "queue_id", "window_from", "window_to").collect()
    return [_score(name, [row for row in rows if row.detector == name], history) for name in RULES.names]


def _score(name: str, rows: list[Any], history: Story) -> Score:
    truth = [(queue_id, at) for detector, queue_id, at in history.truth if detector == name]

    def meets(row: Any, queue_id: int, at: datetime) -> bool:
        frm, to = row.window_from.astimezone(UTC) - NEAR, row.window_to.astimezone(UTC) + NEAR
        return row.queue_id == queue_id and frm <= at <= to

    hit = sum(any(meets(row, *span) for row in rows) for span in truth)
    false = sum(not any(meets(row, *span) for span in truth) for row in rows)
    return Score(name, len(truth), hit, len(rows), false, {})
