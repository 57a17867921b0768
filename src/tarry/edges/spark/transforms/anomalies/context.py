# pyright: basic
"""The input of a detector. Frames only: no session, no clock, no database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame

from tarry.edges.spark.schemas import struct
from tarry.edges.spark.transforms.query import query, sql

ENOUGH = 200
"""Minimum number of messages before the profile of a queue counts."""

QUEUES = struct(
    "queue_id int, queue string, max_attempts int, created_at timestamp, deleted_at timestamp, journaled string"
)
"""Queues in their current state. `journaled` is the journal level: off, events or payloads."""

PROFILES = struct(
    "date date, queue_id int, consumer string, measure string, n long, p01 double, p99 double, p999 double"
)
"""Usual values of a queue on a date, from the four weeks before it; `consumer` is null for all consumers together."""

BANDS = struct(
    "date date, queue_id int, metric string, scale int, hour int, n long, median double, before double, after double, "
    "sigma double, peak double, trough double"
)
"""Usual values in an hour of a date, from the same hours of the weeks before, on the scale of `series`: the median and those
of the neighbouring hours, the spread, and the distance of the usual peak and trough from the median.
"""

CONTINUABLE = struct(
    "detector string, queue_id int, queue string, key string, consumer string, window_from timestamp, "
    "window_to timestamp, observed double, expected_low double, expected_high double"
)
"""Published anomalies that began before the judged range and reached the start of the frames."""

RAISED = struct("detector string, queue_id int, hour long, n long")
"""`hour`: hours since 1970."""

_SUBJECT = ("queue_id", "key", "consumer", "side")
"""Subject columns, if a detector has them: an anomaly continues only with the same subject."""


@dataclass(frozen=True)
class DetectorContext:
    """The frames to judge. `since` and `until` bound the judged range; the frames begin earlier, as anomalies may."""

    events: DataFrame
    """The events since the last run and of the minute before: `schemas.EVENTS` without payloads, each with the history of its
    message, see `tracing.with_history`.
    """
    idle: DataFrame
    """Leases without later events, see `facts.idle`."""
    metrics: DataFrame
    """Metrics per queue and minute, see `transforms.metrics`, from some hours before `minutes_since`; minutes without events
    have no row.
    """
    series: DataFrame
    """The same per metric, with a row for every minute; see `baselines.series`."""
    queues: DataFrame
    profiles: DataFrame
    bands: DataFrame
    since: datetime
    """Events from here on are judged."""
    until: datetime
    minutes_since: datetime
    """Minutes from here on are judged: those that may have changed."""
    complete_until: datetime | None = None
    """The events are complete up to here: only silence before it counts. None: `until`."""
    kinds: frozenset[str] | None = None
    """Kinds of the events, if known: detectors of other kinds are not run."""
    published: Mapping[str, DataFrame] = field(default_factory=dict)
    """Published anomalies that began before `since`, by detector: `CONTINUABLE`."""
    continuable: DataFrame | None = None
    """The entry of `published` for the current detector."""
    raised: DataFrame | None = None
    """`RAISED`: number of anomalies that earlier runs have raised per hour."""

    def by(self, detector: str) -> DetectorContext:
        """The same input with the published anomalies of one detector."""
        return replace(self, continuable=self.published.get(detector))

    @property
    def known_until(self) -> datetime:
        return self.until if self.complete_until is None else min(self.until, self.complete_until)

    def has_any(self, kinds: frozenset[str]) -> bool:
        """Whether events of one of these kinds may have occurred."""
        return not kinds or self.kinds is None or not self.kinds.isdisjoint(kinds)

    def events_of(self, *kinds: str) -> DataFrame:
        return self.events.where(" or ".join(f"kind = '{kind}'" for kind in kinds))

    def args(self, **more: Any) -> dict[str, Any]:
        """Query arguments: the judged range and `more`."""
        return {"since": self.since, "until": self.until, **more}


def continued(findings: DataFrame, published: DataFrame | None) -> DataFrame:
    """The findings, each with the start of the published anomaly that it continues."""
    if published is None:
        return findings
    subject = [name for name in _SUBJECT if name in findings.columns and name in published.columns]
    same = " and ".join(f"new.{name} <=> old.{name}" for name in subject)
    text = sql("anomalies/continued", same=same, subject=f"struct({', '.join(subject)})")
    return query(text, findings=findings, published=published)
