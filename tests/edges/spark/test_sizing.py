"""Few rows are worked on in one piece, many are not, and a session that is not ours is given back as it was."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tarry.edges.spark.sizing import FEW, sized_for

SETTINGS = (
    "spark.sql.shuffle.partitions",
    "spark.sql.adaptive.enabled",
    "spark.sql.codegen.wholeStage",
    "spark.sql.codegen.factoryMode",
    "spark.sql.constraintPropagation.enabled",
)


def settings(spark: SparkSession) -> list[str | None]:
    return [spark.conf.get(name) for name in SETTINGS]


def test_few_rows_are_grouped_joined_and_sorted_without_any_exchange(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    with sized_for(spark, FEW) as layout:
        numbers = layout.read(spark.range(0, 100, 1, 4)).withColumn("n", F.col("id") % 7)
        sums = numbers.groupBy("n").agg(F.sum("id").alias("sum"))
        joined = layout.by(numbers.join(sums, "n"), "n").sortWithinPartitions("id")
        joined.explain()
        assert joined.count() == 100
        assert joined.rdd.getNumPartitions() == 1
    assert "Exchange hashpartitioning" not in capsys.readouterr().out


@pytest.mark.parametrize("rows", [FEW + 1, None], ids=["many", "unknown"])
def test_many_rows_and_an_unknown_number_stay_in_as_many_pieces_as_they_come(
    spark: SparkSession, rows: int | None
) -> None:
    before = settings(spark)
    with sized_for(spark, rows) as layout:
        assert settings(spark) == before
        assert layout.read(spark.range(0, 100, 1, 4)).rdd.getNumPartitions() == 4


def test_a_session_is_given_back_as_it_was_also_when_the_work_fails(spark: SparkSession) -> None:
    before = settings(spark)
    with pytest.raises(RuntimeError, match="1, false, false, NO_CODEGEN, false"), sized_for(spark, 1):
        raise RuntimeError(", ".join(map(str, settings(spark))))
    assert settings(spark) == before
