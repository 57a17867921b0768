"""Consumer statistics per hour on small journals, with the expected tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tarry.edges.spark.transforms import consumers
from tarry.edges.spark.transforms import history as tracing
from tests.edges.spark.journal_frames import Event, event, frame, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNTS = ("consumer", "hour", "leased", "acked", "failed", "expired", "released", "success_rate", "share")


def lease(at: float, version: int, consumer: str | None) -> Event:
    key = f"k{version}"
    return event("leased", at, version, key=key, due=0, attempt=1, leased=at, until=at + 30, consumer=consumer)


def settle(kind: str, at: float, version: int, consumer: str, leased: float, reason: str | None = None) -> Event:
    detail = None if reason is None else {"reason": reason}
    return event(kind, at, version, key=f"k{version}", leased=leased, consumer=consumer, detail=detail)


def hours_of(spark: SparkSession, events: list[Event]) -> DataFrame:
    """The history is computed first, as in a round: the query would plan it again for each of its uses."""
    traced = tracing.traced(tracing.sequenced(frame(spark, events))).localCheckpoint()
    return consumers.consumer_hours(traced).localCheckpoint()


def test_each_consumer_has_its_counts_rate_and_share(spark: SparkSession) -> None:
    events = [
        *(lease(n, n, "w1") for n in range(1, 7)),
        *(lease(n, n, "w2") for n in range(7, 9)),
        settle("acked", 20, 1, "w1", 1),
        settle("acked", 20, 2, "w1", 2),
        settle("nacked", 20, 3, "w1", 3),
        settle("buried", 20, 3, "w1", 3, "exhausted"),
        settle("buried", 20, 4, "w1", 4, "undecodable"),
        event("released", 20, 5, key="k5"),
        event("expired", 60, 6, key="k6"),
        settle("acked", 27, 7, "w2", 7),
    ]
    hours = hours_of(spark, events)
    assert table(hours, *COUNTS) == [
        ("w1", 0.0, 6, 2, 2, 1, 1, 0.4, 0.75),
        ("w2", 0.0, 2, 1, 0, 0, 0, 1.0, 0.25),
    ]
    assert table(hours.where("consumer = 'w1'"), "processing_p50_s", "exact") == [(18.0, True)]


def test_an_hour_counts_what_happened_in_it(spark: SparkSession) -> None:
    events = [lease(3599, 1, "w1"), settle("acked", 3601, 1, "w1", 3599)]
    hours = hours_of(spark, events)
    assert table(hours, *COUNTS) == [
        ("w1", 0.0, 1, 0, 0, 0, 0, None, 1.0),
        ("w1", 3600.0, 0, 1, 0, 0, 0, 1.0, None),
    ]


def test_a_consumer_without_a_name_is_unknown(spark: SparkSession) -> None:
    hours = hours_of(spark, [lease(1, 1, None)])
    assert table(hours, "consumer", "leased") == [("unknown", 1)]
