"""One process of `tarry worker`."""

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from tarry.app import connect_async
from tarry.core.errors import TarryError
from tarry.edges.cli.exit_codes import ExitCode
from tarry.edges.cli.import_string import imported, wrong_type
from tarry.edges.cli.processes.probes import NO_PROBES, ProbeOptions, probes
from tarry.edges.cli.processes.signals import end_within, stop_on_signals
from tarry.edges.formats import plural
from tarry.services.worker.worker import Worker, WorkerSettings

R = TypeVar("R")

_log = logging.getLogger("tarry.worker")
_COLLECT_AFTER = 10_000
"""Garbage collection threshold in objects: more than 256 concurrent jobs have."""


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    target: str
    """`module:worker`."""
    settings: WorkerSettings
    probes: ProbeOptions = NO_PROBES

    def load(self) -> Worker:
        """The worker, imported from the current folder or sys.path; it has a handler for every queue of the settings."""
        module, worker = imported(self.target, what="worker", example="tarry worker shop.tasks:worker")
        if not isinstance(worker, Worker):
            workers = [name for name, attribute in vars(module).items() if isinstance(attribute, Worker)]
            hint = f"there is {module.__name__}:{workers[0]}" if workers else "create one: worker = tarry.Worker()"
            raise wrong_type(self.target, worker, "a tarry.Worker", hint=hint)
        worker.sources(self.settings)
        return worker

    def run(self, dsn: str | None, parent: int | None) -> ExitCode:
        """`parent`: a pipe that is closed when the supervisor stops this process or exits."""
        worker = self.load()
        metrics = self._observe(worker)
        collect_rarely()
        return run_fast(self._run(worker, metrics, dsn, parent))

    async def _run(
        self, worker: Worker, metrics: Callable[[], bytes] | None, dsn: str | None, parent: int | None
    ) -> ExitCode:
        stop = stop_on_signals(
            first="no new messages",
            again="ending at once; leased messages are delivered again when their leases expire",
            grace=self.settings.grace,
        )
        if parent is not None:
            _stop_with_parent(parent, stop, self.settings.grace)
        async with connect_async(dsn) as app:
            queues = ", ".join(self.settings.queues or worker.queues)
            _log.info("working on %s with %s", queues, plural(self.settings.concurrency, "slot"))
            async with (
                probes(self.probes, app.store, stop, metrics),
                app.sweeper(),
            ):  # of all worker processes of a database, one sweeps
                totals = await worker.run(app, self.settings, stop=stop)
            _log.info("stopped: %s; %s released unstarted", totals, f"{totals.released:,}")
        return ExitCode.OK

    def _observe(self, worker: Worker) -> Callable[[], bytes] | None:
        from tarry.edges.telemetry import Metrics, trace

        with contextlib.suppress(TarryError):  # OpenTelemetry is not installed
            trace(worker)
        if self.probes.port is None:
            return None
        try:
            return Metrics(worker).text
        except TarryError as error:  # the probes need no library
            _log.warning("no /metrics: %s", error)
            return None


def collect_rarely() -> None:
    """Tune garbage collection for a dedicated process.

    Imported modules are frozen: scanning them repeatedly took a tenth of the time of small jobs and delayed broker requests
    by 60 ms. Collecting after every 700 new objects scans the running jobs, of 20 objects each: another tenth.
    """
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER)


def run_fast(main: Coroutine[Any, Any, R]) -> R:
    """`asyncio.run`, on uvloop where it is installed."""
    try:
        from uvloop import new_event_loop
    except ModuleNotFoundError:
        from asyncio import new_event_loop
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def _stop_with_parent(pipe: int, stop: asyncio.Event, grace: timedelta) -> None:
    """Stop when the pipe becomes readable. Nothing is written to it, so readable means closed."""
    loop = asyncio.get_running_loop()

    def stopped() -> None:
        loop.remove_reader(pipe)
        end_within(grace)
        _log.info("the supervisor stops this process: no new messages")
        stop.set()

    loop.add_reader(pipe, stopped)
