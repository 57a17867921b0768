"""A notebook as a plain file: each `# %%` is a cell (VS Code, Jupyter with jupytext, Databricks read it as one).

It creates some messages, runs the pipeline on them, and reads the results with Spark. TARRY_DSN chooses the database, else an
embedded one is used; LAKE chooses the lake, else it is beside the embedded data.
"""

# pyright: basic
# %% A session, and Tarry. An existing session of the notebook is used.
import os
from datetime import timedelta

from pyspark.sql import functions as F  # noqa: N812

import tarry
import tarry.spark
from tarry.core.journal.events import JournalLevel

spark = tarry.spark.session()
tarry.spark.register(spark)
app = tarry.connect()
lake = os.environ.get("LAKE")

# %% Some traffic: most orders are fine, every tenth fails once, and two cannot be paid at all.
app.queues.create("notebook", tarry.QueueSettings(journal=JournalLevel.PAYLOADS), exist_ok=True)
orders = app.queue("notebook")
orders.offer_many([tarry.Message(payload={"total": n % 50}, key=f"order-{n}") for n in range(300)])
orders.offer_many(
    [
        tarry.Message(payload={"total": -1}, key=f"unpaid-{n}", retry=tarry.Retry.at_once(max_attempts=2))
        for n in range(2)
    ]
)
while deliveries := orders.try_poll_many(100):
    for delivery in deliveries:
        if delivery.payload["total"] < 0:
            delivery.nack("the card has expired")
        elif delivery.payload["total"] % 10 == 7 and delivery.attempt == 1:
            delivery.nack("a transient error", after=timedelta(0))
        else:
            delivery.ack()

# %% The live tables and the journal, as frames. The database applies filters and selects columns.
events = spark.read.format("tarry").option("dsn", app.dsn).load()
events.where("queue = 'notebook'").groupBy("kind").count().orderBy(F.desc("count")).show()

# %% The jobs: session, app and arguments in, a summary out. `tarry pipeline run` does the same.
from tarry.edges.spark.jobs import anomalies, archive, consumers, facts, forecast, metrics  # noqa: E402

soon = app.store.run(app.store.queues.now()) + timedelta(minutes=1)  # detectors wait until a minute is over
for job, arguments in (
    (archive, archive.ArchiveArgs(lake=lake)),
    (facts, facts.FactsArgs(lake=lake)),
    (metrics, metrics.MetricsArgs(lake=lake)),
    (consumers, consumers.ConsumersArgs(lake=lake)),
    (anomalies, anomalies.AnomaliesArgs(lake=lake, until=soon)),
    (forecast, forecast.ForecastArgs(lake=lake)),
):
    print(job.run(spark, app, arguments).line())

# %% The archive is a lake of Parquet files. The manifest lists the valid ones.
from tarry.edges.spark.lake.lake import Lake, read_events  # noqa: E402

archived = read_events(spark, app, Lake.at(lake))
archived.groupBy("queue", "kind").count().orderBy("queue", "kind").show()

# %% The anomalies that the pipeline detected.
for anomaly in app.pipeline.anomalies.list(queue="notebook"):
    print(f"{anomaly.severity.value:<8} {anomaly.detector:<16} {anomaly.sentence}")

# %% And the report, as `tarry pipeline report` writes it.
from pathlib import Path  # noqa: E402

from tarry.edges.spark.report.gather import gathered  # noqa: E402
from tarry.edges.spark.report.html import page  # noqa: E402

now = app.store.run(app.store.queues.now())
report = gathered(app, queue="notebook", since=now - timedelta(hours=1), until=now)
Path("notebook-report.html").write_text(page(report), encoding="utf-8")

# %% The session stays open: other cells of a notebook may use it.
app.close()
