"""What `tarry dev` runs, apart, because it imports what the rest of the command line does without."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from tarry.app import AsyncApp, connect_async
from tarry.core.settings import StoreSettings
from tarry.edges.cli.session import Session
from tarry.edges.cli.signals import heed
from tarry.edges.cli.text import plural, without_secrets
from tarry.edges.cli.worker_process import Plan
from tarry.edges.http.server import serving
from tarry.edges.http.settings import BrokerSettings

_BROKER = StoreSettings(create_queues=False, pool_size=10)
_GRACE = timedelta(seconds=10)


async def run(cli: Session, target: str | None, port: int) -> None:
    plan = None if target is None else _plan(target)
    worker = None if plan is None else plan.load()  # what is wrong with it is said before anything starts
    stop = asyncio.Event()
    heed(stop, first="stopping", again="ending at once", grace=_GRACE if worker is not None else timedelta(0))
    async with (
        connect_async(cli.dsn, settings=_BROKER) as behind,
        connect_async(behind.dsn) as app,  # for a program of one's own queues come into being when they are used
        serving(behind, BrokerSettings(anonymous=True), port=port) as url,
        app.cron(),
        app.sweeper(),
    ):
        await _tell(cli, app, url, target, () if worker is None else worker.queues)
        if worker is None or plan is None:
            await stop.wait()
        else:
            await worker.run(app, plan.settings, stop=stop)
    cli.note("stopped")


def _plan(target: str) -> Plan:
    return Plan(target=target, concurrency=10, processes=1, grace=_GRACE, queues=None, metrics_port=None)


async def _tell(cli: Session, app: AsyncApp, url: str, target: str | None, queues: tuple[str, ...]) -> None:
    schedules, dsn = len(await app.schedules.list()), without_secrets(app.dsn or "")
    place = dsn or "as the PG* variables say"
    cli.printer.record(
        "tarry.dev/1",
        {"url": url, "dsn": dsn, "embedded": cli.embedded, "schedules": schedules, "worker": target, "queues": queues},
        [
            ("broker", url),
            ("database", f"embedded: {place}" if cli.embedded else place),
            ("scheduler", f"plans {plural(schedules, 'schedule')}, and what you add: tarry cron add"),
            ("sweeper", "cleans up where nobody polls"),
            ("worker", "none: tarry dev MODULE:WORKER" if target is None else f"{target} on {', '.join(queues)}"),
            ("try it", f'curl {url}/v1/queues/hello/messages -d \'{{"payload": 1, "delay": "5s"}}\''),
        ],
    )
    cli.printer.flush()
    cli.note("Ctrl-C stops it")
