# pyright: basic
"""Statistical detectors: a metric that deviates from its usual value at this hour of the week."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from tarry.core.analytics.anomalies import Severity
from tarry.edges.spark.transforms.anomalies.baselines import unscaled
from tarry.edges.spark.transforms.anomalies.context import DetectorContext, continued
from tarry.edges.spark.transforms.anomalies.findings import filled, utc
from tarry.edges.spark.transforms.anomalies.registry import Detector


@dataclass(frozen=True)
class LevelSettings:
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
    """Each minute with its `score`, in spreads from the median. Hours with little history are left out."""
    known = bands.select("date", "queue_id", "metric", "scale", "hour", "median", "sigma", "p01", "p99")
    beside = series.join(known, ["date", "queue_id", "metric", "scale", "hour"])
    return beside.withColumn("score", (F.col("x") - F.col("median")) / F.col("sigma"))


def unusual(scores: DataFrame, settings: LevelSettings) -> DataFrame:
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
        F.max_by(F.struct("metric", "scale", "value", "score", "low", "high"), weight).alias("worst_value"),
    )


def incidents(minutes: DataFrame, settings: LevelSettings) -> DataFrame:
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
        F.max_by("worst_value", "weight").alias("worst_value"),
        F.max_by("minute", "weight").alias("worst"),
    )
    return whole.where((F.col("minutes") >= settings.lasting) | (F.col("weight") >= 2))


def unusual_level(context: DetectorContext, settings: LevelSettings) -> DataFrame:
    raised = incidents(unusual(scored(context.series, context.bands), settings), settings)
    judged = _continued(raised.where(context.within(F.col("window_from"), F.col("window_to"))), context)
    metric = F.lit(settings.metric)
    described = judged.withColumns(
        {
            "observed": F.col("worst_value.value"),
            "expected_low": F.when(
                F.lit(settings.metric not in _ONLY_HIGH), unscaled(metric, F.col("worst_value.low"))
            ),
            "expected_high": unscaled(metric, F.col("worst_value.high")),
            "score": F.col("worst_value.score"),
        }
    )
    return described.select(
        "queue_id", "queue", "window_from", "window_to", "observed", "expected_low", "expected_high", "score",
        _sentence(settings.metric).alias("sentence"),
        _evidence(settings.metric).alias("evidence"),
        F.concat_ws("|", F.unix_seconds("window_from").cast("string"), F.col("side").cast("string")).alias("identity"),
    )  # fmt: skip


def _continued(findings: DataFrame, context: DetectorContext) -> DataFrame:
    """Continue published incidents. Precedes the sentence, which has the duration. Too low never continues too high."""
    if context.continuable is None:
        return findings
    below = F.coalesce(F.col("observed") < F.col("expected_low"), F.lit(False))
    return continued(findings, context.continuable.withColumn("side", F.when(below, -1).otherwise(1)))


def _sentence(metric: str) -> Column:
    form = "s" if metric in _DURATIONS else "number"
    usual = f"up to {{expected_high:{form}}}"
    if metric not in _ONLY_HIGH:
        usual = f"{{expected_low:{form}}} to {{expected_high:{form}}}"
    observed = filled(f"{{observed:{form}}}")
    if metric not in _DURATIONS:
        observed = F.when(F.col("observed") == 0, F.lit("no")).otherwise(observed)
    return filled(
        f"Queue {{queue}}: {{observed}} {_WORDS[metric][0]} in the {{span}} {{at}} UTC, where {usual} is usual at this hour "
        "of the week. It lasted {lasted} min.",
        observed=observed,
        span=F.when(F.col("worst_value.scale") == 1, "minute").otherwise("ten minutes up to"),
        at=utc(F.col("worst"), "HH:mm"),
        lasted=F.round((F.unix_seconds("window_to") - F.unix_seconds("window_from")) / 60).cast("int"),
    )


def _evidence(metric: str) -> Column:
    kinds = _WORDS[metric][1]
    measures = {
        "processing": "percentile_cont(0.95) within group (order by at - leased_at) as p95",
        "lag": "percentile_cont(0.95) within group (order by at - due_at) as p95",
    }
    measure = measures.get(metric, "count(*)")
    return filled(
        f"select date_trunc('minute', at) as minute, {measure} from tarry.journal where queue = {{queue:sql}} "  # noqa: S608
        f"and kind in ('{kinds}') and at >= {{since:instant}} and at < {{until:instant}} group by 1 order by 1",
        since=F.col("window_from") - F.expr("interval 15 minute"),
        until=F.col("window_to") + F.expr("interval 5 minute"),
    )


LEVELS = (
    Detector("unusual_offers", Severity.WARNING, unusual_level, LevelSettings("offered")),
    Detector("unusual_acks", Severity.WARNING, unusual_level, LevelSettings("acked")),
    Detector("unusual_failures", Severity.CRITICAL, unusual_level, LevelSettings("failed")),
    Detector("slow_processing", Severity.WARNING, unusual_level, LevelSettings("processing")),
    Detector("late_delivery", Severity.WARNING, unusual_level, LevelSettings("lag")),
)
