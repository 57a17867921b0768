"""A key that is forgotten is in no file, no table and no journal any more, and everything else is as before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tarry import QueueSettings
from tarry.app import App
from tarry.core.errors import InvalidState
from tarry.core.journal.events import JournalLevel
from tarry.edges.spark.jobs import archive, facts, forget, verify
from tarry.edges.spark.jobs.forget import ForgetArgs
from tarry.edges.spark.lake.lake import Lake, read_events
from tarry.edges.spark.lake.tables import LakeTable
from tests.kit.spark import keys_in_files, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "anna's"
ARGS = ForgetArgs(queue="people", key=SECRET)


def executed(app: App, statement: Any) -> list[Any]:
    assert app.dsn is not None
    with psycopg.connect(app.dsn) as conn:
        cursor = conn.execute(statement)
        return cursor.fetchall() if cursor.description else []


def offers(spark: SparkSession, lake: str) -> int:
    """As the metrics count them."""
    metrics = LakeTable(Lake.at(lake), "metrics").read(spark)
    assert metrics is not None
    return metrics.selectExpr("sum(offered)").collect()[0][0]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([(LakeTable, "erase")], id="once"),
        pytest.param(
            [(forget, "write_batch"), (forget, "clear"), (LakeTable, "erase")], marks=pytest.mark.chaos, id="often"
        ),
    ],
)
def test_after_interruptions_it_is_gone_everywhere_and_nothing_else_is(
    spark: SparkSession, pipeline_app: App, lake: str, monkeypatch: pytest.MonkeyPatch, steps: list[tuple[Any, str]]
) -> None:
    app = pipeline_app
    app.queues.create("users", QueueSettings(journal=JournalLevel.PAYLOADS, max_attempts=1))
    users = app.queue("users")
    users.offer(SECRET, "her letter")
    users.offer("other", 1)
    archive.run(spark, app, archive.ArchiveArgs(lake=lake))
    for delivery in users.try_poll_many(2):
        delivery.bury("no")
    app.queues.rename("users", "people")
    with pytest.raises(InvalidState, match="a dead letter"):
        forget.run(spark, app, ARGS)
    app.queue("people").dead_letters.discard()
    app.queue("people").offer("live", 1)
    facts.run(spark, app, facts.FactsArgs(lake=lake))
    raised = spark.sql('select 1 as queue_id, "anna\'s" as key, current_date() as date')
    LakeTable(Lake.at(lake), "anomalies").commit(raised, [], 1)
    executed(
        app,
        "insert into tarry.anomaly (fingerprint, detector, detector_version, severity, queue_id, queue, key, window_from,"
        " window_to, sentence, evidence, run_id, fresh_at)"
        " select 'f', 'd', 1, 'info', id, name, 'anna''s', now(), now(), 's', 'e', 1, now() from tarry.queue",
    )
    others = executed(app, "select id, key from tarry.event where key is distinct from 'anna''s' order by id")
    assert SECRET in keys_in_files(lake)

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    for step in steps:
        with monkeypatch.context() as patch:
            patch.setattr(*step, killed)
            with pytest.raises(KeyboardInterrupt):
                forget.run(spark, app, ARGS)
    done = forget.run(spark, app, ARGS)
    assert (done.journal, done.archived) == (0, 0), "the interrupted runs have removed them"
    assert done.rows == {"facts": 1, "trace": 4, "open": 2, "anomalies": 1, "verified": 0}
    assert keys_in_files(lake) == {"other", "live", None}
    assert sorted(rows_of(read_events(spark, app, lake).select("id", "key"))) == others
    assert executed(app, "select count(*) from tarry.event where key = 'anna''s'") == [(0,)]
    assert executed(app, "select count(*) from tarry.anomaly") == [(0,)]
    assert offers(spark, lake) == 3, "they are still counted"
    app.queue("people").offer(SECRET, "again")
    facts_then = sorted(row.key for row in facts.read_facts(spark, lake, app).where("queue = 'people'").collect())
    assert facts_then == ["live", "other"]
    archive.run(spark, app, archive.ArchiveArgs(lake=lake))
    facts.run(spark, app, facts.FactsArgs(lake=lake))
    assert offers(spark, lake) == 4
    assert verify.run(spark, app, verify.VerifyArgs(lake=lake)).problems == ()
