"""tarry sweeper: clean up where nobody polls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tarry.core.settings import StoreSettings, SweeperSettings
from tarry.edges.cli.session import Session, command
from tarry.edges.cli.text import plural
from tarry.edges.times import duration

if TYPE_CHECKING:
    from tarry.services.sweeper import SweepReport


def register(app: typer.Typer) -> None:
    command(
        app,
        "sweeper",
        examples=("tarry sweeper", "tarry sweeper --once -o json", "tarry sweeper --every 1m -o jsonl"),
    )(sweeper)


def sweeper(
    cli: Session,
    once: Annotated[bool, typer.Option("--once", help="One round, if nobody else leads, and stop.")] = False,
    every: Annotated[str, typer.Option("--every", metavar="DURATION", help="How often queues are walked.")] = "10s",
) -> None:
    """Clean up where nobody polls.

    Tells the journal of leases that ran out, buries what has no attempt left, carries redrive jobs on, makes the journal's
    partitions ahead, and names what holds vacuum back. Deliveries do not need it. Start as many as you like: one works.
    """
    settings = SweeperSettings(every=duration(every, "--every"))
    cli.prepare()
    import asyncio

    asyncio.run(_once(cli, settings) if once else _until_told(cli, settings))


async def _once(cli: Session, settings: SweeperSettings) -> None:
    from tarry.app import connect_async

    async with connect_async(cli.dsn, settings=_STORE) as app:
        working = app.sweeper(settings)
        try:
            report = await working.run_once()
            leader = await app.store.leader("sweeper")
        finally:
            await working.resign()
    holder = leader.holder if leader is not None else None
    cli.printer.record("tarry.sweep/1", _data(report), _fields(report, holder))
    if not report.leading:
        cli.note(f"nothing was done: {holder or 'somebody else'} leads")


async def _until_told(cli: Session, settings: SweeperSettings) -> None:
    import asyncio

    from tarry.app import connect_async
    from tarry.edges.cli.signals import heed

    led: bool | None = None

    def tell(report: SweepReport) -> None:
        nonlocal led
        if report.leading is not led:
            cli.note("this sweeper leads" if report.leading else "another sweeper leads; this one waits")
            led = report.leading
        if not report.did_something:
            return
        if cli.printer.for_people:
            cli.note(_sentence(report))
        else:
            cli.printer.record("tarry.sweep/1", _data(report), [])
            cli.printer.flush()

    async with connect_async(cli.dsn, settings=_STORE) as app:
        stop = asyncio.Event()
        heed(stop, first="stopping", again="ending at once")
        async with app.sweeper(settings, on_report=tell):
            await stop.wait()


_STORE = StoreSettings(create_queues=False, pool_size=2)


def _data(report: SweepReport) -> dict[str, Any]:
    partitions = report.partitions
    return {
        "leading": report.leading,
        "fence": report.fence,
        "queues": report.queues,
        "expired": report.expired,
        "buried": report.buried,
        "labelled": report.labelled,
        "redriven": report.redriven,
        "forgotten": report.forgotten,
        "partitions": None
        if partitions is None
        else {"made": partitions.made, "ahead": partitions.ahead, "overflowing": partitions.overflowing},
        "strains": [{"what": s.what, "found": s.found, "hint": s.hint} for s in report.strains],
        "took": round(report.took_s, 3),
    }


def _fields(report: SweepReport, holder: str | None) -> list[tuple[str, str]]:
    fields = [("leader", (holder or "") + (" (this one)" if report.leading else ""))]
    if report.leading:
        fields += [
            ("queues", f"{report.queues:,}"),
            ("leases that ran out", f"{report.expired:,}"),
            ("became dead letters", f"{report.buried:,}"),
            ("errors named", f"{report.labelled:,}"),
            ("redriven", f"{report.redriven:,}"),
        ]
    if report.partitions is not None:
        fields.append(("partitions ahead", f"{report.partitions.ahead:,} ({report.partitions.made:,} made now)"))
    return [*fields, *((strain.what, f"{strain.found}: {strain.hint}") for strain in report.strains)]


def _sentence(report: SweepReport) -> str:
    said = [
        f"{plural(report.expired, 'lease')} ran out" if report.expired else "",
        f"{plural(report.buried, 'message')} died" if report.buried else "",
        f"{plural(report.redriven, 'dead letter')} redriven" if report.redriven else "",
        f"{plural(report.labelled, 'error')} named" if report.labelled else "",
        f"{plural(report.partitions.made, 'partition')} made" if report.partitions and report.partitions.made else "",
        *(f"{strain.what}: {strain.found} ({strain.hint})" for strain in report.strains),
    ]
    return "; ".join(word for word in said if word)
