"""The model reproduces what a real worker did, or reports that it cannot."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tarry
from tarry import Message, QueueSettings, Retry, Worker
from tarry.core.errors import InvalidState
from tarry.edges.cli.commands.pipeline_simulate import show_queue
from tarry.edges.cli.output.printer import Output, Printer
from tarry.edges.spark.jobs import simulate
from tarry.edges.spark.jobs.simulate import SimulateSummary
from tarry.services.worker.worker import WorkerSettings
from tarry.wire.base import data_of
from tests.docs.pages import SIMULATE
from tests.edges.spark.page_reader import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = 60
WORK_S = 0.12
"""Long enough that a busy machine adds little to it, and that a worker does not lease ahead."""


def worked(database: str) -> None:
    """A burst of messages, two at a time. One in ten fails once, and one always."""

    async def run() -> None:
        worker, failed = Worker(), set[int]()

        @worker.handler("orders")
        async def accept(n: int) -> None:
            await asyncio.sleep(WORK_S)  # the work
            if n == 7 or (n % 10 == 5 and n not in failed):
                failed.add(n)
                raise ValueError("no")

        async with tarry.connect_async(database) as app:
            await app.queues.create("orders", QueueSettings(retry=Retry.at_once(), max_attempts=3))
            orders = app.queue("orders")
            await orders.offer_many([Message(key=f"o-{n}", payload=n, priority=n % 2) for n in range(MESSAGES)])
            await worker.run(app, WorkerSettings(concurrency=2, until_empty=True))

    asyncio.run(run())


def test_a_real_run_is_reproduced_before_another_is_promised(
    spark: SparkSession,
    database: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worked(database)
    summaries: list[SimulateSummary] = []
    run = simulate.run
    monkeypatch.setattr(simulate, "run", lambda *given: summaries.append(run(*given)) or summaries[-1])
    read(SIMULATE, database, tmp_path, capsys, monkeypatch)
    ((queue,),) = (summary.queues for summary in summaries)
    assert (queue.recorded.messages, queue.recorded.done, queue.recorded.dead) == (MESSAGES, MESSAGES - 1, 1)
    assert queue.error < 0.25, queue.error_of
    assert queue.scenario.workers == round(queue.workers / 2)
    assert 2.5 < queue.median.drain_s / queue.recorded.drain_s < 6, "twice the load on half of the workers: four times"
    drawn = json.loads(json.dumps(data_of(summaries[0]), default=str))["queues"][0]["recorded"]["waiting"]
    assert max(drawn) > MESSAGES / 2
    monkeypatch.setattr(simulate, "MOST", MESSAGES)
    with tarry.connect(database) as app, pytest.raises(InvalidState, match="120 messages in this time at this rate"):
        run(spark, app, simulate.SimulateArgs(queues=("orders",), rate=2))
    show_queue(Printer(Output.TABLE), replace(queue, is_reproduced=False))
    assert "NOT REPRODUCED, so the last column is not to be trusted" in capsys.readouterr().out
