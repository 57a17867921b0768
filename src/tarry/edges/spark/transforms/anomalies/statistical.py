# pyright: basic
"""Statistical detectors: a metric that deviates from its usual value at this hour of the week."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from tarry.core.anomalies import Severity
from tarry.edges.spark.transforms.anomalies.baselines import unscaled
from tarry.edges.spark.transforms.anomalies.continuing import continued
from tarry.edges.spark.transforms.anomalies.found import duration, instant, number, quoted, utc
from tarry.edges.spark.transforms.anomalies.registry import Detector
from tarry.edges.spark.transforms.anomalies.seen import Seen


@dataclass(frozen=True)
class Level:
    """Settings of a level detector. A minute is unusual if it is `threshold` spreads from the median and outside of the
    outer percentiles. A single minute is raised only at twice that distance; otherwise `lasting` minutes in a row are
    needed, with gaps of at most `gap` minutes.
    """

    metric: str
    threshold: float = 3.5
    threshold_of_ten: float = 4.5
    """For sums over ten minutes: they overlap, so that an unusual one is never alone."""
    lasting: int = 5
    gap: int = 2


_WORDS = {
    "offered": ("messages were offered", "offered', 'updated"),
    "acked": ("messages were acked", "acked"),
    "failed": ("deliveries failed", "nacked', 'expired"),
    "processing": ("was the processing time (p95)", "acked', 'nacked"),
    "lag": ("was the delivery lag (p95)", "leased"),
}
_ONLY_HIGH = ("failed", "processing", "lag")
_DURATIONS = ("processing", "lag")


def scored(series: DataFrame, bands: DataFrame) -> DataFrame:
    """Each minute with its `score` (signed number of spreads from the median) and `low` and `high`, on the scale of the
    metric. Hours with too little history are left out.
    """
    known = bands.select("date", "queue_id", "metric", "scale", "hour", "median", "sigma", "p01", "p99")
    beside = series.join(known, ["date", "queue_id", "metric", "scale", "hour"])
    return beside.withColumn("score", (F.col("x") - F.col("median")) / F.col("sigma"))


def unusual(scores: DataFrame, settings: Level) -> DataFrame:
    """The unusual minutes, one row each, with the scale of the highest score; `side` is 1 or -1."""
    threshold = F.when(F.col("scale") == 1, settings.threshold).otherwise(settings.threshold_of_ten)
    high = F.greatest(F.col("median") + threshold * F.col("sigma"), F.col("p99"))
    low = F.least(F.col("median") - threshold * F.col("sigma"), F.col("p01"))
    if settings.metric in _ONLY_HIGH:
        low = F.lit(float("-inf"))
    side = F.when(F.col("x") > high, 1).when(F.col("x") < low, -1)
    out = scores.where(F.col("metric") == settings.metric).withColumns({"side": side, "low": low, "high": high})
    out = out.where(F.col("side").isNotNull())
    weight = F.abs(F.col("score")) / threshold
    return out.groupBy("queue_id", "minute", "side").agg(
        F.max("queue").alias("queue"),
        F.max(weight).alias("weight"),
        F.max_by(F.struct("metric", "scale", "value", "score", "low", "high"), weight).alias("said"),
    )


def incidents(minutes: DataFrame, settings: Level) -> DataFrame:
    """Consecutive minutes on one side are one incident, represented by its worst minute."""
    of_queue = Window.partitionBy("queue_id", "side").orderBy("minute")
    away = F.unix_seconds("minute") - F.unix_seconds(F.lag("minute").over(of_queue))
    begins = F.coalesce(away > 60 * (settings.gap + 1), F.lit(True)).cast("int")
    numbered = minutes.withColumn("begins", begins).withColumn("incident", F.sum("begins").over(of_queue))
    whole = numbered.groupBy("queue_id", "side", "incident").agg(
        F.max("queue").alias("queue"),
        F.min("minute").alias("window_from"),
        (F.max("minute") + F.expr("interval 1 minute")).alias("window_to"),
        F.count(F.lit(1)).alias("minutes"),
        F.max("weight").alias("weight"),
        F.max_by("said", "weight").alias("said"),
        F.max_by("minute", "weight").alias("worst"),
    )
    return whole.where((F.col("minutes") >= settings.lasting) | (F.col("weight") >= 2))


def unusual_level(seen: Seen, settings: Level) -> DataFrame:
    found = incidents(unusual(scored(seen.series, seen.bands), settings), settings)
    judged = _continued(found.where(seen.within(F.col("window_from"), F.col("window_to"))), seen)
    metric = F.lit(settings.metric)
    told = judged.withColumns(
        {
            "observed": F.col("said.value"),
            "expected_low": F.when(F.lit(settings.metric not in _ONLY_HIGH), unscaled(metric, F.col("said.low"))),
            "expected_high": unscaled(metric, F.col("said.high")),
            "score": F.col("said.score"),
        }
    )
    return told.select(
        "queue_id", "queue", "window_from", "window_to", "observed", "expected_low", "expected_high", "score",
        _sentence(settings.metric).alias("sentence"),
        _evidence(settings.metric).alias("evidence"),
        F.concat_ws("|", F.unix_seconds("window_from").cast("string"), F.col("side").cast("string")).alias("identity"),
    )  # fmt: skip


def _continued(found: DataFrame, seen: Seen) -> DataFrame:
    """Continue published incidents. Precedes the sentence, which has the duration. Too low never continues too high."""
    if seen.told is None:
        return found
    below = F.coalesce(F.col("observed") < F.col("expected_low"), F.lit(False))
    return continued(found, seen.told.withColumn("side", F.when(below, -1).otherwise(1)))


def _sentence(metric: str) -> Column:
    words = _WORDS[metric][0]
    shown = duration if metric in _DURATIONS else number
    if metric in _ONLY_HIGH:
        usual = F.concat(F.lit("up to "), shown(F.col("expected_high")))
    else:
        usual = F.concat(shown(F.col("expected_low")), F.lit(" to "), shown(F.col("expected_high")))
    when = utc(F.col("worst"), "HH:mm")
    span = F.when(F.col("said.scale") == 1, F.concat(F.lit("in the minute "), when)).otherwise(
        F.concat(F.lit("in the ten minutes up to "), when)
    )
    lasted = F.round((F.unix_seconds("window_to") - F.unix_seconds("window_from")) / 60).cast("int")
    if metric in _DURATIONS:
        said = F.concat(shown(F.col("observed")), F.lit(f" {words} "), span)
    else:
        nothing = F.when(F.col("observed") == 0, F.lit("no")).otherwise(number(F.col("observed")))
        said = F.concat(nothing, F.lit(f" {words} "), span)
    return F.concat(
        F.lit("Queue "), "queue", F.lit(": "), said, F.lit(" UTC, where "), usual,
        F.lit(" is usual at this hour of the week. It lasted "), F.format_string("%d min.", lasted),
    )  # fmt: skip


def _evidence(metric: str) -> Column:
    kinds = _WORDS[metric][1]
    measures = {
        "processing": "percentile_cont(0.95) within group (order by at - leased_at) as p95",
        "lag": "percentile_cont(0.95) within group (order by at - due_at) as p95",
    }
    measure = measures.get(metric, "count(*)")
    return F.concat(
        F.lit(f"select date_trunc('minute', at) as minute, {measure} from tarry.journal where queue = "),  # noqa: S608
        quoted(F.col("queue")), F.lit(f" and kind in ('{kinds}') and at >= "),
        instant(F.col("window_from") - F.expr("interval 15 minute")), F.lit(" and at < "),
        instant(F.col("window_to") + F.expr("interval 5 minute")), F.lit(" group by 1 order by 1"),
    )  # fmt: skip


LEVELS = (
    Detector("unusual_offers", Severity.WARNING, unusual_level, Level("offered")),
    Detector("unusual_acks", Severity.WARNING, unusual_level, Level("acked")),
    Detector("unusual_failures", Severity.CRITICAL, unusual_level, Level("failed")),
    Detector("slow_processing", Severity.WARNING, unusual_level, Level("processing")),
    Detector("late_delivery", Severity.WARNING, unusual_level, Level("lag")),
)
