"""The level detectors on Spark find the incidents of the prototype in NumPy, with which their thresholds were selected."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from benchmarks.anomalies import faults, ours, prototype
from tarry.edges.spark.transforms.anomalies.statistical import UNUSUAL_DEPTH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = timedelta(days=1)


def world() -> faults.World:
    """Thursday to Tuesday, of which the last two days are judged: a queue with faults of every kind but a drop, and a gauge
    that rises, falls and has one far value. On Monday the hours of all days are the past, on Tuesday those of working days.
    """
    whole = faults.world(2)
    begin, until = whole.since - 4 * DAY, whole.since + 2 * DAY
    minute = whole.minutes["minute"]
    rows = whole.minutes.loc[(whole.minutes["queue_id"] == 1) & (minute >= begin) & (minute < until)]
    minutes = pd.date_range(begin, until, freq="min", inclusive="left")
    rng = np.random.default_rng(1)
    depth = 50 + 20 * np.sin(np.arange(len(minutes)) / 1440 * 2 * np.pi) + rng.normal(0, 2, len(minutes))
    depth[4 * 1440 + 100 : 4 * 1440 + 190] += 60
    depth[4 * 1440 + 700 : 4 * 1440 + 800] -= 35
    depth[5 * 1440 + 300 : 5 * 1440 + 303] += 150
    depth[::7] = np.nan
    nothing = dict.fromkeys(("offered", "updated", "acked", "nacked", "expired"), 0)
    durations = dict.fromkeys(("processing_p95_s", "lag_p95_s"), np.nan)
    gauge = pd.DataFrame({"queue_id": 9, "minute": minutes, **nothing, **durations, "depth": depth})
    return replace(
        whole,
        minutes=pd.concat([rows, gauge], ignore_index=True)[["queue_id", "minute", *faults.COLUMNS]],
        queues=((1, "queue"), (9, "gauge")),
        until=until,
        lives=((begin, until),) * 2,
    )


def test_spark_and_the_prototype_find_the_same_incidents(spark: SparkSession) -> None:
    judged, registry = world(), ours.STATISTICAL.with_detector(UNUSUAL_DEPTH)
    expected = sorted(prototype.detected_incidents(judged, registry))
    assert sorted(ours.detected_incidents(spark, judged, registry)) == expected
    levels = {"unusual_offers", "unusual_acks", "unusual_failures", "slow_processing", "unusual_depth"}
    assert {name for name, _ in expected} == levels
    assert sum(name == "unusual_depth" for name, _ in expected) == 3
