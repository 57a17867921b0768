"""The processes behind `tarry serve` and `tarry dev`, separate from the commands because they need the extra `http`."""

import logging
import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta

from tarry.app import AsyncApp, connect_async
from tarry.core.settings import StoreSettings, SweeperSettings
from tarry.edges.cli.commands.services import ServeOptions
from tarry.edges.cli.context import CommandSession
from tarry.edges.cli.processes.signals import stop_on_signals
from tarry.edges.cli.processes.started import running_for_s
from tarry.edges.cli.processes.worker import WorkerProcess, collect_rarely
from tarry.edges.dashboard.app import PATH
from tarry.edges.dashboard.redaction import Redaction
from tarry.edges.dashboard.settings import DashboardSettings
from tarry.edges.env import release_from
from tarry.edges.formats import duration, plural
from tarry.edges.http import server
from tarry.edges.http.connection_limits import raise_descriptor_limit
from tarry.edges.http.settings import BrokerSettings
from tarry.edges.secrets import without_secrets
from tarry.services.worker.worker import WorkerSettings

_STORE = StoreSettings(create_queues=False, pool_size=10)
_DEV_GRACE = timedelta(seconds=10)
_DEV_SWEEPER = SweeperSettings(every=timedelta(seconds=1))
"""Short, because a developer waits for a redrive or an expired lease; a round per second costs little on one machine."""


async def serve(cli: CommandSession, options: ServeOptions, grace: timedelta) -> None:
    stop, host = stop_on_signals(grace=grace), options.host
    redaction = Redaction(keys=(*Redaction().keys, *(options.hide or ())))
    pages = DashboardSettings(
        read_only=options.read_only,
        environment=options.environment,
        redaction=redaction,
        trace_url=options.trace_url,
    )
    sweeping = SweeperSettings(every=duration(options.sweep_every, "--sweep-every"))
    async with connect_async(cli.dsn, settings=replace(_STORE, pool_size=options.pool_size)) as app:
        settings = replace(await server.check_bind(app, host), requests_per_s=options.rate, grace=grace)
        raise_descriptor_limit(settings.connections)
        logging.getLogger("tarry.http.access").setLevel(logging.WARNING if options.no_access_log else logging.NOTSET)
        collect_rarely()
        async with (
            app.sweeper(sweeping) if options.sweeper else nullcontext(),
            server.running_broker(app, settings, host, options.port, pages, stop) as url,
        ):
            cli.note(f"listening on {url}")
            cli.note(f"dashboard at {url}{PATH}/")
            await stop.wait()
    cli.note("stopped")


@asynccontextmanager
async def dev_parts(dsn: str | None, port: int, environment: str) -> AsyncGenerator[tuple[AsyncApp, str]]:
    """Run broker, dashboard, scheduler and sweeper on loopback. Yields the app, which creates queues on use, and the URL.

    `environment` is shown in the dashboard.
    """
    async with (
        connect_async(dsn, settings=_STORE) as broker_app,
        connect_async(broker_app.dsn) as app,
        server.running_broker(
            broker_app, BrokerSettings(anonymous=True), port=port, pages=DashboardSettings(environment=environment)
        ) as url,
        app.cron(),
        app.sweeper(_DEV_SWEEPER),
    ):
        yield app, url


async def dev(cli: CommandSession, target: str | None, port: int) -> None:
    settings = WorkerSettings(grace=_DEV_GRACE, release=release_from())
    worker = None if target is None else WorkerProcess(target, settings).load()  # report an invalid target first
    stop = stop_on_signals(grace=timedelta(0) if worker is None else _DEV_GRACE)
    async with dev_parts(cli.dsn, port, "dev") as (app, url):
        collect_rarely()
        await _print_dev(cli, app, url, target, () if worker is None else worker.queues)
        if worker is None:
            await stop.wait()
        else:
            await worker.run(app, settings, stop=stop)
    cli.note("stopped")


async def _print_dev(cli: CommandSession, app: AsyncApp, url: str, target: str | None, queues: tuple[str, ...]) -> None:
    schedules, dsn = len(await app.schedules.list()), without_secrets(app.dsn or "")
    database = dsn or "from the PG* variables"
    dsn_given = [] if cli.dsn is None else ["--dsn", dsn]
    # A stored key cannot be shown: if there are keys, the printed command creates a new one.
    create = shlex.join(["tarry", "key", "create", "try", "--action=all", "--expires=1h", "-q", *dsn_given])
    key = f' -H "Authorization: Bearer $({create})"' if await app.keys.list() else ""
    cli.printer.record(
        "tarry.dev/1",
        {
            "url": url,
            "dashboard": f"{url}{PATH}/",
            "dsn": dsn,
            "embedded": cli.embedded,
            "schedules": schedules,
            "worker": target,
            "queues": queues,
        },
        [
            ("broker", url),
            ("its API", f"{url}/docs"),
            ("dashboard", f"{url}{PATH}/"),
            ("database", f"embedded: {database}" if cli.embedded else database),
            ("scheduler", f"plans {plural(schedules, 'schedule')}; to add one: tarry cron add"),
            ("sweeper", "runs maintenance"),
            ("worker", "none: tarry dev MODULE:WORKER" if target is None else f"{target} on {', '.join(queues)}"),
            ("try it", f'curl {url}/v1/queues/hello/messages{key} -d \'{{"payload": 1, "after": "5s"}}\''),
        ],
    )
    cli.printer.flush()
    cli.note(f"ready after {running_for_s():.1f} s; Ctrl-C stops it")
