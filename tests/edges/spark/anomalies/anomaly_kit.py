"""Small journals, written by hand, and what detectors make of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from tarry.edges.spark.schemas import EVENTS
from tarry.edges.spark.sizing import local_frame
from tarry.edges.spark.transforms import facts
from tarry.edges.spark.transforms import history as tracing
from tarry.edges.spark.transforms.anomalies.builtin import BUILT_IN
from tarry.edges.spark.transforms.anomalies.context import BANDS, PROFILES, QUEUES, DetectorContext
from tarry.edges.spark.transforms.anomalies.registry import Registry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
"""A Monday."""
TODAY = NOON.date()
SINCE = datetime(2026, 11, 16, tzinfo=UTC)
UNTIL = datetime(2026, 11, 17, tzinfo=UTC)
SERIES = (
    "queue_id int, queue string, metric string, scale int, minute timestamp, date date, hour int, phase double, "
    "value double, x double"
)


@dataclass
class Journal:
    """Events in the order in which they are written down, each a transaction of its own unless one is named."""

    rows: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])

    def add(self, kind: str, after_s: float = 0, *, key: str | None = "k", **more: Any) -> Journal:
        number = len(self.rows) + 1
        fields: dict[str, Any] = {
            "id": number, "xid": 1000 + number, "at": NOON + timedelta(seconds=after_s), "kind": kind, "queue_id": 1,
            "queue": "orders", "key": key, "version": 1, "attempt": 1, "priority": 5, "due_at": NOON, **more,
        }  # fmt: skip
        for name in ("leased_at", "lease_until", "due_at"):
            if isinstance(fields.get(name), (int, float)):
                fields[name] = NOON + timedelta(seconds=fields[name])
        if isinstance(fields.get("detail"), dict):
            fields["detail"] = json.dumps(fields["detail"])
        assert fields.keys() <= set(EVENTS.names)
        self.rows.append(tuple(fields.get(name) for name in EVENTS.names))
        return self


def habit(measure: str, *, p01: float = 0, p99: float = 0, p999: float = 0, n: int = 1000, consumer: str | None = None):
    return (consumer, measure, n, float(p01), float(p99), float(p999))


def levels(metric: str, values: Mapping[int, float], *, median: float, sigma: float) -> Scene:
    """Roots of the counts by minute after noon, and what is usual in every hour of the day."""
    return Scene(
        series=[
            (metric, 5, NOON + timedelta(minutes=m), TODAY, 12 + m // 60, 0.0, x * x, x) for m, x in values.items()
        ],
        bands=[(metric, 5, hour, 240, median, median, median, sigma, sigma, sigma) for hour in range(24)],
    )


@dataclass(frozen=True, eq=False)
class Scene:
    """What happened in one queue, and what is usual there. Rows lack their first columns: queue, or date and queue."""

    journal: Journal = field(default_factory=Journal)
    habits: Sequence[tuple[Any, ...]] = ()
    max_attempts: int | None = 5
    series: Sequence[tuple[Any, ...]] = ()
    bands: Sequence[tuple[Any, ...]] = ()


def seen(spark: SparkSession, *scenes: Scene) -> DetectorContext:
    """Each scene in a queue of its own; all queues have the same name. As in the job, the history is computed once."""
    numbered = list(enumerate(scenes, 1))
    events = local_frame(spark, _together(scenes), EVENTS)
    sequence = tracing.sequenced(events)
    series = [(n, "orders", *row) for n, scene in numbered for row in scene.series]
    habits = [(TODAY, n, *row) for n, scene in numbered for row in scene.habits]
    bands = [(TODAY, n, *row) for n, scene in numbered for row in scene.bands]
    return DetectorContext(
        events=tracing.with_history(events, sequence).localCheckpoint(),
        idle=facts.idle(facts.still_open(facts.fold(sequence))).localCheckpoint(),
        metrics=events.limit(0),
        series=local_frame(spark, series, SERIES),
        queues=local_frame(
            spark, [(n, "orders", scene.max_attempts, SINCE, None, "events") for n, scene in numbered], QUEUES
        ),
        profiles=local_frame(spark, habits, PROFILES),
        bands=local_frame(spark, bands, BANDS),
        since=SINCE,
        until=UNTIL,
        minutes_since=SINCE,
    )


def _together(scenes: Sequence[Scene]) -> list[tuple[Any, ...]]:
    """The events of all scenes, with ids of their own."""
    rows = [
        dict(zip(EVENTS.names, row, strict=True)) | {"queue_id": n}
        for n, scene in enumerate(scenes, 1)
        for row in scene.journal.rows
    ]
    return [tuple((row | {"id": number}).values()) for number, row in enumerate(rows, 1)]


class Detections:
    """The anomalies of many scenes. Each detector runs once for all of them: to plan its query takes a second, and a few rows
    more or less take nothing.
    """

    def __init__(self, spark: SparkSession, scenes: Sequence[Scene]) -> None:
        self._numbers = {scene: number for number, scene in enumerate(scenes, 1)}
        self._context = seen(spark, *scenes)
        self._frames: dict[Any, DataFrame] = {}
        self._collected = cache(in_order)

    def frame(self, name: str, registry: Registry = BUILT_IN, **context: Any) -> DataFrame:
        """What a detector finds in all scenes. `context` are changes of what it is given."""
        key = (registry[name], *sorted(context.items()))
        if key not in self._frames:
            self._frames[key] = registry[name].find(replace(self._context, **context))
        return self._frames[key]

    def rows(self, scene: Scene, name: str, registry: Registry = BUILT_IN, **context: Any) -> list[Any]:
        """In one scene, in the order of time."""
        rows = self._collected(self.frame(name, registry, **context))
        return [row for row in rows if row.queue_id == self._numbers[scene]]

    def keys(self, scene: Scene, name: str, registry: Registry = BUILT_IN, **context: Any) -> list[str]:
        return [row.key for row in self.rows(scene, name, registry, **context)]


def detected_by(what: DetectorContext, name: str, registry: Registry = BUILT_IN) -> list[Any]:
    """The anomalies of one detector, in the order of time."""
    return in_order(registry[name].find(what))


def in_order(findings: DataFrame) -> list[Any]:
    return sorted(findings.collect(), key=lambda row: (row.window_from, row.key or ""))


def day(n: int) -> date:
    return TODAY + timedelta(days=n)
