"""tarry serve, dev, worker, scheduler, sweeper: long-running processes; see `tarry.edges.cli.processes`."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tarry.core.extras import needs_extra
from tarry.core.settings import StoreSettings, SweeperSettings
from tarry.edges.cli.context import CommandSession, command
from tarry.edges.cli.exit_codes import ExitCode, Usage
from tarry.edges.cli.help import argument, option
from tarry.edges.cli.options import Port
from tarry.edges.formats import delay, duration, plural
from tarry.wire.base import data_of

if TYPE_CHECKING:
    from tarry.services.sweeper import SweepReport

_LAST_PORT = 65_535
_STORE = StoreSettings(create_queues=False, pool_size=2)


@dataclass(frozen=True)
class ServeOptions:
    host: Annotated[str, option("--host ADDRESS", "The address to listen on.")] = "127.0.0.1"
    port: Port = 8080
    rate: Annotated[float | None, option("--rate N", "Requests per second for each key.", min=0.001)] = None
    grace: Annotated[str, option("--grace DURATION", "Time for running requests after SIGTERM.")] = "10s"
    sweeper: Annotated[bool, option("--sweeper/--no-sweeper", "Also run a sweeper; of all sweepers one works.")] = True
    sweep_every: Annotated[str, option("--sweep-every DURATION", "How often this sweeper sweeps.")] = "10s"
    pool_size: Annotated[int, option("--pool-size N", "Connections to the database.", min=2, max=1000)] = 10
    no_access_log: Annotated[bool, option("--no-access-log", "No line per request on stderr.")] = False
    read_only: Annotated[bool, option("--read-only", "The dashboard cannot change anything.")] = False
    environment: Annotated[str | None, option("--environment NAME", "Shown in the dashboard.")] = None
    trace_url: Annotated[str | None, option("--trace-url URL", "Where the dashboard links traces, with {trace}.")] = (
        None
    )
    hide: Annotated[list[str] | None, option("--hide KEY", "Also hide values of this key in the dashboard.")] = None


ProbesPort = Annotated[int | None, option("--metrics-port PORT", "Serves /healthz and /readyz.", min=0, max=_LAST_PORT)]
WorkerPort = Annotated[
    int | None,
    option("--metrics-port PORT", "Serves /metrics, /healthz, /readyz; process n on PORT+n.", min=0, max=_LAST_PORT),
]
MetricsHost = Annotated[str, option("--metrics-host ADDRESS", "The address to serve them on.")]


@command("serve", "tarry serve", "tarry serve --port 9000", "tarry serve --host 0.0.0.0 --rate 500")
def serve(cli: CommandSession, options: ServeOptions) -> None:
    """Run the broker with its dashboard.

    Produce and consume by HTTP; the dashboard is at /dashboard. With a --host other than loopback both require API keys,
    and the broker starts only if there is one: tarry key create. Schedules need a scheduler: tarry scheduler. SIGTERM or
    Ctrl-C: running requests finish, and waiting clients get a response immediately.
    """
    from tarry.edges.cli.processes.worker import run_fast

    _log(cli)
    cli.prepare()
    run_fast(_broker().serve(cli, options, delay(options.grace, "--grace")))


@command("dev", "tarry dev", "tarry dev shop.tasks:worker", "tarry dev --port 0 -o json")
def dev(
    cli: CommandSession,
    target: Annotated[str | None, argument("[MODULE:WORKER]", "A tarry.Worker to run as well.")] = None,
    port: Port = 8080,
) -> None:
    """Run everything in one process, for development.

    The broker on loopback, the scheduler, the sweeper, and a worker if you name one, on the named or the embedded
    database. SIGTERM or Ctrl-C stops them, a second one immediately. In production run them separately: tarry serve,
    scheduler, sweeper, worker.
    """
    from tarry.edges.cli.processes.worker import run_fast

    _log(cli)
    cli.prepare()
    _warn_of_old_zones(cli)
    run_fast(_broker().dev(cli, target, port))


@command(
    "worker",
    "tarry worker shop.tasks:worker",
    "tarry worker shop.tasks:worker -c 20 --processes 4 --grace 1m",
    "tarry worker shop.tasks:worker --queues orders,mails",
    "tarry worker shop.tasks:worker --once",
    "tarry worker shop.tasks:worker --reload   # during development",
)
def worker(
    cli: CommandSession,
    target: Annotated[str, argument("MODULE:WORKER", "Where the tarry.Worker is.")],
    concurrency: Annotated[int, option("--concurrency -c N", "Handlers per process.", min=1, max=1000)] = 10,
    processes: Annotated[int, option("--processes N", "Number of processes.", min=1, max=256)] = 1,
    grace: Annotated[str, option("--grace DURATION", "Time for running handlers after SIGTERM.")] = "30s",
    queues: Annotated[str | None, option("--queues A,B", "Only these; default: all with a handler.")] = None,
    metrics_port: WorkerPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    release: Annotated[str | None, option("--release TEXT", "Of your program; default: TARRY_RELEASE.")] = None,
    once: Annotated[bool, option("--once", "Handle due messages, and exit.")] = False,
    reload: Annotated[bool, option("--reload", "Restart when a Python file changes here.")] = False,
    verbose: Annotated[bool, option("--verbose -v", "Log every message.")] = False,
) -> ExitCode:
    """Handle messages with the functions of a module.

    SIGTERM or Ctrl-C: no more messages are leased, running handlers get --grace, messages that were not started are
    released, and the exit code is 0. A second signal exits immediately; the messages are delivered again when their leases
    expire. With --once the exit code is 0 even if handlers fail: the last line of the log has the totals, and failed
    messages are retried, or dead: tarry dlq list.
    """
    from tarry.edges.cli.processes.probes import ProbeOptions
    from tarry.edges.cli.processes.worker import WorkerProcess
    from tarry.edges.env import release_from, worker_parent_from
    from tarry.services.worker.worker import WorkerSettings

    _log(cli, verbose=verbose)
    names = None if queues is None else tuple(name.strip() for name in queues.split(",") if name.strip())
    if once and (processes > 1 or reload):
        raise Usage("--once is for one process, without --reload")
    settings = WorkerSettings(
        concurrency=concurrency,
        grace=delay(grace, "--grace"),
        queues=names,
        processes=processes,
        until_empty=once,
        release=release or release_from(),
    )
    process = WorkerProcess(target, settings, ProbeOptions(metrics_host, metrics_port))
    parent = worker_parent_from()
    if parent is None and (processes > 1 or reload):
        if metrics_port and (last := metrics_port + processes - 1) > _LAST_PORT:
            raise Usage(f"{processes} processes need the ports {metrics_port} to {last}, and {_LAST_PORT} is the last")
        from tarry.edges.cli.processes.supervisor import WorkerSupervisor, changes_below

        changes = changes_below(Path.cwd()) if reload else None
        if not reload:
            process.load()  # report an invalid target once, before any process starts
        cli.prepare()
        return asyncio.run(WorkerSupervisor(process, sys.argv[1:], changes).run())
    cli.prepare(announce=parent is None)
    return process.run(cli.dsn, parent)


@command("scheduler", "tarry scheduler", "tarry scheduler --once")
def scheduler(
    cli: CommandSession,
    once: Annotated[bool, option("--once", "Plan pending ticks, and exit.")] = False,
    metrics_port: ProbesPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
) -> ExitCode | None:
    """Plan the ticks of schedules.

    Until SIGTERM or Ctrl-C. Any number may run, on any machines: they need no leader, and no tick is planned twice.
    Schedules whose payloads are functions are planned by the program that installed them.
    """
    _log(cli)
    cli.prepare()
    _warn_of_old_zones(cli)
    return _plan_once(cli) if once else asyncio.run(_plan(cli, metrics_host, metrics_port))


def _log(cli: CommandSession, *, verbose: bool = False) -> None:
    from tarry.edges.cli.processes.log import log_to

    log_to(json_lines=not cli.printer.for_people, quiet=cli.quiet, verbose=verbose)


def _broker() -> Any:
    """The module of the broker, which needs the extra `http`."""
    with needs_extra("http", "the broker"):
        return import_module("tarry.edges.cli.processes.broker")


def _warn_of_old_zones(cli: CommandSession) -> None:
    """Warn of old time zone data on this machine, which ticks are planned with."""
    from tarry.admin import zones_here

    finding = zones_here()
    if finding.warning or not finding.ok:
        cli.warn(f"{finding.check}: {finding.actual}; {finding.hint}")


def _plan_once(cli: CommandSession) -> ExitCode | None:
    from tarry.app import connect
    from tarry.services.cron._sync.scheduler import Scheduler

    planned, failed = 0, dict[str, str]()
    with connect(cli.dsn) as app:
        planner, more = Scheduler(app.store), True
        while more and not failed:
            result = planner.run_once()
            planned, failed, more = planned + result.planned, result.failed, result.more
    fields = [("planned", plural(planned, "tick")), *(("failed", f"{name}: {why}") for name, why in failed.items())]
    cli.printer.record("tarry.scheduler/1", {"planned": planned, "failed": failed}, fields)
    return ExitCode.PARTLY if failed else None


async def _plan(cli: CommandSession, host: str, port: int | None) -> None:
    from tarry.app import connect_async
    from tarry.edges.cli.processes.probes import ProbeOptions, probes
    from tarry.edges.cli.processes.signals import stop_on_signals

    stop = stop_on_signals()
    async with connect_async(cli.dsn) as app, probes(ProbeOptions(host, port), app.store, stop), app.cron():
        cli.note(f"planning {plural(len(await app.schedules.list()), 'schedule')}; Ctrl-C stops it")
        await stop.wait()


@command("sweeper", "tarry sweeper", "tarry sweeper --once -o json", "tarry sweeper --every 1m -o jsonl")
def sweeper(
    cli: CommandSession,
    once: Annotated[bool, option("--once", "One round, unless another sweeper leads, and exit.")] = False,
    every: Annotated[str, option("--every DURATION", "How often queues are swept.")] = "10s",
    metrics_port: ProbesPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
) -> None:
    """Run maintenance: expired leases, redrives, partitions.

    Records expired leases in the journal, buries messages without attempts left, advances redrive jobs, creates
    partitions of the journal, and reports what blocks vacuum. Deliveries do not need it. Any number may run; one works.
    """
    settings = SweeperSettings(every=duration(every, "--every"))
    _log(cli)
    cli.prepare()
    asyncio.run(_sweep_once(cli, settings) if once else _sweep(cli, settings, metrics_host, metrics_port))


async def _sweep_once(cli: CommandSession, settings: SweeperSettings) -> None:
    from tarry.app import connect_async

    async with connect_async(cli.dsn, settings=_STORE) as app:
        worker = app.sweeper(settings)
        try:
            report = await worker.run_once()
            leader = await app.store.run(app.store.maintenance.leader("sweeper"))
        finally:
            await worker.resign()
    holder = leader.holder if leader is not None else "another process"
    cli.printer.record("tarry.sweep/1", {"leader": holder, **_data(report)})
    cli.note(_sentence(report) if report.leading else f"nothing was done: {holder} leads")


async def _sweep(cli: CommandSession, settings: SweeperSettings, host: str, port: int | None) -> None:
    from tarry.app import connect_async
    from tarry.edges.cli.processes.probes import ProbeOptions, probes
    from tarry.edges.cli.processes.signals import stop_on_signals

    was_leading: bool | None = None

    def print_report(report: SweepReport) -> None:
        nonlocal was_leading
        if report.leading is not was_leading:
            cli.note("this sweeper leads" if report.leading else "another sweeper leads; this one waits")
            was_leading = report.leading
        if not report.did_something:
            return
        if cli.printer.for_people:
            cli.note(_sentence(report))
        else:
            cli.printer.record("tarry.sweep/1", _data(report), [])
            cli.printer.flush()

    async with connect_async(cli.dsn, settings=_STORE) as app:
        stop = stop_on_signals()
        async with probes(ProbeOptions(host, port), app.store, stop), app.sweeper(settings, on_report=print_report):
            await stop.wait()


def _data(report: SweepReport) -> dict[str, Any]:
    data: dict[str, Any] = data_of(report)
    data["took"] = round(data.pop("took_s"), 3)
    return data


def _sentence(report: SweepReport) -> str:
    counts = (
        (report.expired, "lease", "expired"),
        (report.buried, "message", "died"),
        (report.redriven, "dead letter", "redriven"),
        (report.labelled, "error", "fingerprinted"),
        (report.removed, "message", "of deleted queues removed"),
        (report.partitions.made if report.partitions else 0, "partition", "created"),
        (report.days_pruned, "day", "of the journal dropped"),
    )
    parts = [f"{plural(n, noun)} {what}" for n, noun, what in counts if n]
    parts += [f"{problem.what}: {problem.detail} ({problem.hint})" for problem in report.vacuum_problems]
    return "; ".join(parts) or "nothing to do"
