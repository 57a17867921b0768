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
    """A week and a half of a queue with faults, and a gauge that rises, falls and has one far value."""
    whole = faults.world(1)
    from_day = pd.Timestamp(faults.START) + 3 * 7 * DAY
    rows = whole.minutes.loc[(whole.minutes["queue_id"] == 3) & (whole.minutes["minute"] >= from_day)]
    rows = rows.assign(minute=rows["minute"] - 3 * 7 * DAY)
    minutes = pd.date_range(faults.START, periods=10 * 1440, freq="min")
    rng = np.random.default_rng(1)
    depth = 50 + 20 * np.sin(np.arange(len(minutes)) / 1440 * 2 * np.pi) + rng.normal(0, 2, len(minutes))
    depth[8 * 1440 + 100 : 8 * 1440 + 190] += 60
    depth[8 * 1440 + 700 : 8 * 1440 + 800] -= 35
    depth[9 * 1440 + 300 : 9 * 1440 + 303] += 150
    depth[::7] = np.nan
    nothing = dict.fromkeys(("offered", "updated", "acked", "nacked", "expired"), 0)
    durations = dict.fromkeys(("processing_p95_s", "lag_p95_s"), np.nan)
    gauge = pd.DataFrame({"queue_id": 9, "minute": minutes, **nothing, **durations, "depth": depth})
    since = faults.START + 7 * DAY
    return replace(
        whole,
        minutes=pd.concat([rows, gauge], ignore_index=True)[["queue_id", "minute", *faults.COLUMNS]],
        queues=((3, "queue"), (9, "gauge")),
        since=since,
        until=since + 3 * DAY,
    )


def test_spark_and_the_prototype_find_the_same_incidents(spark: SparkSession) -> None:
    judged, registry = world(), ours.STATISTICAL.with_detector(UNUSUAL_DEPTH)
    expected = sorted(prototype.detected_incidents(judged, registry))
    assert sorted(ours.detected_incidents(spark, judged, registry)) == expected
    assert {name for name, _ in expected} >= {"unusual_offers", "unusual_acks", "slow_processing", "unusual_depth"}
    assert sum(name == "unusual_depth" for name, _ in expected) == 3
