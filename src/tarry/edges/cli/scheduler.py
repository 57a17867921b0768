"""tarry scheduler: plan the ticks of schedules."""

from __future__ import annotations

from typing import Annotated

import typer

from tarry.edges.cli.exits import ExitCode
from tarry.edges.cli.session import Session, command
from tarry.edges.cli.text import plural


def register(app: typer.Typer) -> None:
    command(app, "scheduler", examples=("tarry scheduler", "tarry scheduler --once"))(scheduler)


def scheduler(
    cli: Session,
    once: Annotated[bool, typer.Option("--once", help="Plan what needs planning now, and end.")] = False,
) -> ExitCode | None:
    """Plan the ticks of schedules.

    Until SIGTERM or Ctrl-C. Run as many as you like, on as many machines: they need no leader, and no tick is made twice.
    Schedules whose payloads are functions are planned by the program that installed them.
    """
    import asyncio

    cli.prepare()
    warn_of_old_zones(cli)
    return _once(cli) if once else asyncio.run(_until_told(cli))


def warn_of_old_zones(cli: Session) -> None:
    """Whoever plans goes by the zone data of this machine."""
    from tarry.upkeep import zones_here

    found = zones_here()
    if found.warning or not found.ok:
        cli.warn(f"{found.check}: {found.found}; {found.hint}")


def _once(cli: Session) -> ExitCode | None:
    from tarry.app import connect
    from tarry.services.scheduler import Scheduler

    planned, failed = 0, dict[str, str]()
    with connect(cli.dsn) as app:
        planner, more = Scheduler(app.store), True
        while more and not failed:
            ran = planner.run_once()
            planned, failed, more = planned + ran.planned, ran.failed, ran.more
    fields = [("planned", plural(planned, "tick")), *(("failed", f"{p}: {why}") for p, why in failed.items())]
    cli.printer.record("tarry.scheduler/1", {"planned": planned, "failed": failed}, fields)
    return ExitCode.PARTLY if failed else None


async def _until_told(cli: Session) -> None:
    import asyncio

    from tarry.app import connect_async
    from tarry.edges.cli.signals import heed

    stop = asyncio.Event()
    heed(stop, first="stopping", again="ending at once")
    async with connect_async(cli.dsn) as app, app.cron():
        cli.note(f"planning {plural(len(await app.schedules.list()), 'schedule')}; Ctrl-C stops it")
        await stop.wait()
