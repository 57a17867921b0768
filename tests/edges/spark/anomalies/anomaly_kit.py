"""Small journals, written by hand, and what detectors make of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
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
    return (TODAY, 1, consumer, measure, n, float(p01), float(p99), float(p999))


def seen(
    spark: SparkSession,
    journal: Journal,
    habits: Sequence[tuple[Any, ...]] = (),
    *,
    max_attempts: int | None = 5,
    since: datetime = SINCE,
    until: datetime = UNTIL,
    series: DataFrame | None = None,
    bands: DataFrame | None = None,
) -> DetectorContext:
    events = local_frame(spark, journal.rows, EVENTS)
    sequence = tracing.sequenced(events)
    return DetectorContext(
        events=tracing.with_history(events, sequence),
        idle=facts.idle(facts.still_open(facts.fold(sequence))),
        metrics=events.limit(0),
        series=local_frame(spark, [], SERIES) if series is None else series,
        queues=local_frame(spark, [(1, "orders", max_attempts, SINCE, None, "events")], QUEUES),
        profiles=local_frame(spark, list(habits), PROFILES),
        bands=local_frame(spark, [], BANDS) if bands is None else bands,
        since=since,
        until=until,
        minutes_since=since,
    )


def detected_by(what: DetectorContext, name: str, registry: Registry = BUILT_IN) -> list[Any]:
    """The anomalies of one detector, in the order of time."""
    return sorted(registry[name].find(what).collect(), key=lambda row: (row.window_from, row.key or ""))


def keys(what: DetectorContext, name: str, registry: Registry = BUILT_IN) -> list[str]:
    return [row.key for row in detected_by(what, name, registry)]


def day(n: int) -> date:
    return TODAY + timedelta(days=n)
