# pyright: basic
"""The input of a detector. Frames only: no session, no clock, no database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

QUEUES = StructType(
    [
        StructField("queue_id", IntegerType()),
        StructField("queue", StringType()),
        StructField("max_attempts", IntegerType()),
        StructField("created_at", TimestampType()),
        StructField("deleted_at", TimestampType()),
        StructField("journaled", StringType()),
    ]
)
"""Queues in their current state. `journaled` is the journal level: off, events or payloads."""

PROFILES = StructType(
    [
        StructField("date", DateType()),
        StructField("queue_id", IntegerType()),
        StructField("consumer", StringType()),
        StructField("measure", StringType()),
        StructField("n", LongType()),
        StructField("p01", DoubleType()),
        StructField("p99", DoubleType()),
        StructField("p999", DoubleType()),
    ]
)
"""Usual values of a queue on a date, from the four weeks before it; `consumer` is null for all consumers together."""

BANDS = StructType(
    [
        StructField("date", DateType()),
        StructField("queue_id", IntegerType()),
        StructField("metric", StringType()),
        StructField("scale", IntegerType()),
        StructField("hour", IntegerType()),
        StructField("n", LongType()),
        StructField("median", DoubleType()),
        StructField("sigma", DoubleType()),
        StructField("p01", DoubleType()),
        StructField("p99", DoubleType()),
    ]
)
"""Usual values in an hour of a date, from the same hours of the weeks before it, on the scale of `series`."""


@dataclass(frozen=True)
class Seen:
    """The frames to judge. `since` and `until` bound what is judged; the frames begin earlier, as anomalies may."""

    events: DataFrame
    """`schemas.EVENTS`, from a day before `since`."""
    sequence: DataFrame
    """The events of messages, each with the history of its message, see `tracing.sequenced`."""
    metrics: DataFrame
    """Per queue and minute, see `transforms.metrics`; minutes without events have no row."""
    series: DataFrame
    """The same per metric, with a row for every minute, see `baselines.series`."""
    queues: DataFrame
    profiles: DataFrame
    bands: DataFrame
    since: datetime
    until: datetime
    complete_until: datetime | None = None
    """The events are complete up to here: only silence before it counts. None: `until`."""
    kinds: frozenset[str] | None = None
    """Kinds of the events, if known: a detector of other kinds gets an empty frame at no cost."""
    published: Mapping[str, DataFrame] = field(default_factory=dict)
    """By detector, the published anomalies that began before `since`, see `continuing.TOLD`. No entry if there are
    none.
    """
    told: DataFrame | None = None
    """The entry of `published` for the current detector."""

    def by(self, detector: str) -> Seen:
        """The same input with the published anomalies of one detector."""
        return replace(self, told=self.published.get(detector))

    @property
    def known_until(self) -> datetime:
        return self.until if self.complete_until is None else min(self.until, self.complete_until)

    def events_of(self, *kinds: str) -> DataFrame:
        if self.kinds is not None and self.kinds.isdisjoint(kinds):
            return self.events.limit(0)
        return self.events.where(F.col("kind").isin(*kinds))

    def profile(self, measure: str) -> DataFrame:
        """date, queue_id, n, p01, p99, p999 of one measure, over all consumers; small, so it is broadcast."""
        of_queue = self.profiles.where((F.col("measure") == measure) & F.col("consumer").isNull())
        return F.broadcast(of_queue.select("date", "queue_id", "n", "p01", "p99", "p999"))

    def within(self, frm: Column, to: Column) -> Column:
        """Whether the given time span overlaps the judged range."""
        return (to >= F.lit(self.since)) & (frm < F.lit(self.until))
