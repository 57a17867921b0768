# pyright: basic
"""Statistical detectors: metrics that deviate from the usual value of this time of the week."""

from dataclasses import asdict, dataclass

from pyspark.sql import DataFrame

from tarry.core.analytics.anomalies import Severity
from tarry.edges.spark.transforms.anomalies.baselines import unscaled
from tarry.edges.spark.transforms.anomalies.context import DetectorContext, continued
from tarry.edges.spark.transforms.anomalies.registry import Detector
from tarry.edges.spark.transforms.query import query, sql


@dataclass(frozen=True)
class LevelSettings:
    """Settings of a level detector. Unusual minutes with gaps of at most `gap` minutes are one incident. It is raised if it
    has `lasting` such minutes, or one at twice the threshold.
    """

    metric: str
    threshold: float = 3.0
    """Distance from the expected value, in spreads."""
    peak: float = 1.0
    """Factor by which the usual peak of this time of day must be exceeded."""
    trough: float = 1.0
    more: float = 0.5
    """Minimum effect: this share more than expected."""
    less: float = 0.25
    least: float = 8.0
    """Minimum effect in messages."""
    lasting: int = 5
    gap: int = 60


def incidents(minutes: DataFrame, settings: LevelSettings) -> DataFrame:
    return query(sql("anomalies/levels/incidents"), {"lasting": settings.lasting, "gap": settings.gap}, minutes=minutes)


def unusual_level(context: DetectorContext, settings: LevelSettings) -> DataFrame:
    minutes = sql("anomalies/levels/unusual", scores=sql("anomalies/levels/scored"))
    raised = (
        f"select * from ({sql('anomalies/levels/incidents', minutes=minutes)}) "  # noqa: S608
        "where window_to >= timestamp(:since) and window_from < timestamp(:until)"
    )
    args = context.args(**asdict(settings))
    args["since"] = context.minutes_since
    words = {"low": unscaled("worst_value.low"), "high": unscaled("worst_value.high")}
    frames = {"series": context.series, "bands": context.bands}
    if context.continuable is None:
        return query(sql("anomalies/levels/unusual_level", incidents=raised, **words), args, **frames)
    # Before the sentence is built, because it contains the duration. A low level never continues a high one.
    side = "select *, if(coalesce(observed < expected_low, false), -1, 1) as side from {published}"
    published = query(side, published=context.continuable)
    lasting = continued(query(raised, args, **frames), published)
    return query(sql("anomalies/levels/unusual_level", **words), incidents=lasting)


LEVELS = (
    Detector("unusual_offers", Severity.WARNING, unusual_level, LevelSettings("offered"), 4, by_minute=True),
    Detector("unusual_acks", Severity.WARNING, unusual_level, LevelSettings("acked"), 4, by_minute=True),
    Detector(
        "unusual_failures", Severity.CRITICAL, unusual_level, LevelSettings("failed", threshold=4), 4, by_minute=True
    ),
    Detector("slow_processing", Severity.WARNING, unusual_level, LevelSettings("processing"), 4, by_minute=True),
    Detector("late_delivery", Severity.WARNING, unusual_level, LevelSettings("lag"), 4, by_minute=True),
)
UNUSUAL_DEPTH = Detector(
    "unusual_depth",
    Severity.WARNING,
    unusual_level,
    LevelSettings("depth", peak=1.15),
    2,
    by_minute=True,
)
"""Too many or too few live messages. Not built in: its thresholds were selected on gauges that are not queues."""
