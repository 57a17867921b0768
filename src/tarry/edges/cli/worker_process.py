"""One process of `tarry worker`: find the worker, run it on a database, and end as the signals say."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from datetime import timedelta

from tarry.app import connect_async
from tarry.core.errors import Refused
from tarry.edges.cli.exits import ExitCode
from tarry.edges.cli.signals import end_within, heed
from tarry.edges.cli.targets import imported, of_another_kind
from tarry.edges.cli.text import plural
from tarry.services.worker import Worker, WorkerSettings

_log = logging.getLogger("tarry.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the command line asked for."""

    target: str
    concurrency: int
    processes: int
    grace: timedelta
    queues: tuple[str, ...] | None
    metrics_port: int | None

    @property
    def settings(self) -> WorkerSettings:
        return WorkerSettings(
            concurrency=self.concurrency, grace=self.grace, queues=self.queues, processes=self.processes
        )

    def load(self) -> Worker:
        """The worker, with handlers for everything that was asked for."""
        found = find(self.target)
        found.sources(self.settings)
        return found


def find(target: str) -> Worker:
    """`module:worker`, as if the module were imported from here."""
    module, found = imported(target, what="worker", example="tarry worker shop.tasks:worker")
    if not isinstance(found, Worker):
        workers = [name for name, value in vars(module).items() if isinstance(value, Worker)]
        hint = f"there is {module.__name__}:{workers[0]}" if workers else "make one: worker = tarry.Worker()"
        raise of_another_kind(target, found, "a tarry.Worker", hint=hint)
    return found


def run(plan: Plan, dsn: str | None, parent: int | None) -> ExitCode:
    """`parent`: the pipe to the process that started this one and its like, if one did."""
    worker = plan.load()
    _observe(worker, plan)
    return asyncio.run(_run(worker, plan, dsn, parent))


async def _run(worker: Worker, plan: Plan, dsn: str | None, parent: int | None) -> ExitCode:
    stop = asyncio.Event()
    heed(
        stop,
        first="no new messages",
        again="ending at once; what is held comes back when its lease runs out",
        grace=plan.grace,
    )
    if parent is not None:
        _heed_parent(parent, stop, plan.grace)
    async with connect_async(dsn) as app:
        queues = plan.queues or worker.queues
        _log.info("working on %s with %s", ", ".join(queues), plural(plan.concurrency, "place"))
        async with app.sweeper():  # of all the worker processes of a database one sweeps
            tally = await worker.run(app, plan.settings, stop=stop)
        _log.info("stopped: %s; %s given back unstarted", tally, f"{tally.given_back:,}")
    return ExitCode.OK


def _heed_parent(pipe: int, stop: asyncio.Event, grace: timedelta) -> None:
    """Nothing is ever written to the pipe: it is readable when its other end is closed, however that came about."""
    loop = asyncio.get_running_loop()

    def orphaned() -> None:
        loop.remove_reader(pipe)
        end_within(grace)
        _log.info("the process that started this one lets go: no new messages")
        stop.set()

    loop.add_reader(pipe, orphaned)


def _observe(worker: Worker, plan: Plan) -> None:
    from tarry.edges.telemetry import Metrics, trace

    with contextlib.suppress(Refused):  # without OpenTelemetry nobody waits for spans
        trace(worker)
    if plan.metrics_port is not None:
        try:
            port = Metrics(worker).serve(plan.metrics_port)
        except OSError as error:
            raise Refused(f"metrics cannot be served on port {plan.metrics_port}: {error}") from error
        _log.info("metrics on http://127.0.0.1:%d/metrics", port)
