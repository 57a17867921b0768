"""A registry is a value, and a user's function is as good as ours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tarry.core.analytics.anomalies import Severity
from tarry.core.errors import InvalidInput
from tarry.edges.spark.transforms.anomalies.builtin import BUILT_IN, RULES
from tarry.edges.spark.transforms.anomalies.context import DetectorContext
from tarry.edges.spark.transforms.anomalies.findings import FINDINGS
from tarry.edges.spark.transforms.anomalies.registry import Registry, detected, detector
from tarry.edges.spark.transforms.anomalies.rules import LargePayload
from tests.edges.spark.anomalies.anomaly_kit import Journal, Scene, detected_by, seen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@detector(name="paused", severity="info")
def paused(seen: DetectorContext) -> DataFrame:
    """What a user writes: the least that is required."""
    return seen.events.where("kind = 'queue_paused'").select(
        "queue_id", "queue", F.col("at").alias("window_from"), F.col("at").alias("window_to"),
        F.concat(F.lit("Queue "), "queue", F.lit(" was paused.")).alias("sentence"),
    )  # fmt: skip


def test_a_users_function_finds_what_it_finds(spark: SparkSession) -> None:
    mine = BUILT_IN.with_detector(paused)
    journal = Journal().add("queue_paused", key=None).add("refused")
    rows = detected(seen(spark, Scene(journal)), mine.only("paused", "lock_stolen"))
    assert rows.schema.names == FINDINGS.names
    by_detector = {row.detector: row for row in rows.collect()}
    assert by_detector.keys() == {"paused", "lock_stolen"}
    assert by_detector["paused"].sentence == "Queue orders was paused."
    assert by_detector["paused"].evidence.startswith(
        "select * from tarry.journal where queue = 'orders' and at >= '2026-11-16"
    )
    assert len(by_detector["paused"].fingerprint) == 32


def test_a_detector_with_settings_is_given_them(spark: SparkSession) -> None:
    @dataclass(frozen=True)
    class Words:
        word: str = "paused"

    @detector(name="worded", severity=Severity.WARNING, settings=Words(), version=3)
    def worded(seen: DetectorContext, settings: Words) -> DataFrame:
        return paused.function(seen).withColumn("sentence", F.lit(settings.word))

    registry = Registry((worded,)).with_settings("worded", Words("stopped"))
    (row,) = detected_by(seen(spark, Scene(Journal().add("queue_paused", key=None))), "worded", registry)
    assert (row.sentence, row.detector_version, row.severity) == ("stopped", 3, "warning")


def test_registries_do_not_change() -> None:
    more = BUILT_IN.with_detector(paused)
    assert "paused" in more.names
    assert "paused" not in BUILT_IN.names
    assert more.without("paused").names == BUILT_IN.names


def test_two_detectors_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidInput, match="two detectors are called paused"):
        BUILT_IN.with_detector(paused, paused)


def test_an_unknown_detector_or_the_settings_of_another_are_refused() -> None:
    with pytest.raises(InvalidInput, match="no detector 'nothing'"):
        BUILT_IN.without("nothing")
    with pytest.raises(InvalidInput, match="the settings of near_dlq are NearDlq, not LargePayload"):
        BUILT_IN.with_settings("near_dlq", LargePayload())


def test_severity_is_the_users_to_choose(spark: SparkSession) -> None:
    louder = RULES.with_severity("near_dlq", "critical")
    (row,) = detected_by(seen(spark, Scene(Journal().add("nacked", attempt=4))), "near_dlq", louder)
    assert row.severity == "critical"


def test_a_detector_without_a_required_column_is_rejected(spark: SparkSession) -> None:
    @detector(name="lazy", severity="info")
    def lazy(seen: DetectorContext) -> DataFrame:
        return seen.events.select("queue_id", "queue")

    with pytest.raises(ValueError, match="detector lazy returns no column window_from, window_to, sentence"):
        lazy.find(seen(spark, Scene()))


def test_quotes_in_names_do_not_break_out_of_the_evidence(spark: SparkSession) -> None:
    (row,) = detected_by(seen(spark, Scene(Journal().add("refused", key="o'clock"))), "lock_stolen")
    assert row.evidence == "select * from tarry.journal where queue = 'orders' and key = 'o''clock' order by id"


def test_a_detector_of_kinds_that_did_not_occur_is_not_run(spark: SparkSession) -> None:
    @detector(name="never", severity="info", kinds=("buried",))
    def never(seen: DetectorContext) -> DataFrame:
        raise AssertionError("nothing was buried")

    what = seen(spark, Scene(Journal().add("refused")))
    only_refused = replace(what, kinds=frozenset({"refused"}))
    assert [row.detector for row in detected(only_refused, RULES.with_detector(never)).collect()] == ["lock_stolen"]
    nothing = detected(only_refused, Registry((never,)))
    assert (nothing.schema.names, nothing.count()) == (FINDINGS.names, 0)
    with pytest.raises(AssertionError, match="nothing was buried"):
        detected(what, Registry((never,)))
