# pyright: basic
"""What a detector may look at. Frames only: no session, no clock, no database."""

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
"""Queues as they are now. `journaled` is the level of the journal: off, events or payloads."""

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
"""What is usual for a queue on a date, by the four weeks before it; `consumer` is null for all of its consumers."""

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
"""What is usual in an hour of a date, by the same hours of the weeks before it, on the scale of `series`."""


@dataclass(frozen=True)
class Seen:
    """`since` and `until` bound what is judged. The frames begin earlier: an anomaly may have begun before."""

    events: DataFrame
    """`schemas.EVENTS`, from a day before `since`."""
    sequence: DataFrame
    """Those of messages, each with the history of its message, see `tracing.sequenced`."""
    metrics: DataFrame
    """Per queue and minute, see `transforms.metrics`; minutes in which nothing happened have no row."""
    series: DataFrame
    """The same per metric, with a row for every minute, see `baselines.series`."""
    queues: DataFrame
    profiles: DataFrame
    bands: DataFrame
    since: datetime
    until: datetime
    complete_until: datetime | None = None
    """So far no event is missing: silence before it is silence. None: `until`."""
    kinds: frozenset[str] | None = None
    """Of the events, if that is known: what looks for other kinds has nothing to do."""
    published: Mapping[str, DataFrame] = field(default_factory=dict)
    """By detector, what was told of and began before `since`, see `continuing.TOLD`; nothing, if there is nothing."""
    told: DataFrame | None = None
    """Of these, what the detector that looks has told of."""

    def by(self, detector: str) -> Seen:
        """As one detector sees it."""
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
        """Whether what lasted from one to the other is to be judged now."""
        return (to >= F.lit(self.since)) & (frm < F.lit(self.until))
