# pyright: basic
"""Statistical detectors: a metric that deviates from its usual value at this hour of the week."""

from dataclasses import dataclass

from pyspark.sql import DataFrame

from tarry.core.analytics.anomalies import Severity
from tarry.edges.spark.transforms.anomalies.baselines import unscaled
from tarry.edges.spark.transforms.anomalies.context import DetectorContext, continued
from tarry.edges.spark.transforms.anomalies.registry import Detector
from tarry.edges.spark.transforms.query import query, sql


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


def scored(series: DataFrame, bands: DataFrame) -> DataFrame:
    return query(sql("anomalies/scored"), series=series, bands=bands)


def unusual(scores: DataFrame, settings: LevelSettings) -> DataFrame:
    return query(sql("anomalies/unusual"), _limits(settings), scores=scores)


def incidents(minutes: DataFrame, settings: LevelSettings) -> DataFrame:
    return query(sql("anomalies/incidents"), {"lasting": settings.lasting, "gap": settings.gap}, minutes=minutes)


def _limits(settings: LevelSettings) -> dict[str, str | float]:
    return {
        "metric": settings.metric,
        "threshold": settings.threshold,
        "threshold_of_ten": settings.threshold_of_ten,
    }


def unusual_level(context: DetectorContext, settings: LevelSettings) -> DataFrame:
    minutes = sql("anomalies/unusual", scores=sql("anomalies/scored"))
    raised = (
        f"select * from ({sql('anomalies/incidents', minutes=minutes)}) "  # noqa: S608
        "where window_to >= timestamp(:since) and window_from < timestamp(:until)"
    )
    args = context.args(lasting=settings.lasting, gap=settings.gap, **_limits(settings))
    args["since"] = context.minutes_since
    words = {"low": unscaled("worst_value.low"), "high": unscaled("worst_value.high")}
    frames = {"series": context.series, "bands": context.bands}
    if context.continuable is None:
        return query(sql("anomalies/unusual_level", incidents=raised, **words), args, **frames)
    # Precedes the sentence, which has the duration. Too low never continues too high.
    side = "select *, if(coalesce(observed < expected_low, false), -1, 1) as side from {published}"
    published = query(side, published=context.continuable)
    lasting = continued(query(raised, args, **frames), published)
    return query(sql("anomalies/unusual_level", **words), incidents=lasting)


LEVELS = (
    Detector("unusual_offers", Severity.WARNING, unusual_level, LevelSettings("offered"), by_minute=True),
    Detector("unusual_acks", Severity.WARNING, unusual_level, LevelSettings("acked"), by_minute=True),
    Detector("unusual_failures", Severity.CRITICAL, unusual_level, LevelSettings("failed"), by_minute=True),
    Detector("slow_processing", Severity.WARNING, unusual_level, LevelSettings("processing"), by_minute=True),
    Detector("late_delivery", Severity.WARNING, unusual_level, LevelSettings("lag"), by_minute=True),
)
