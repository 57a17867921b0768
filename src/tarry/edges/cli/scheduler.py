"""tarry scheduler: plan the ticks of schedules."""

from __future__ import annotations

import signal
import threading
from types import FrameType
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
    from tarry.app import connect
    from tarry.services.background import Background
    from tarry.services.scheduler import SCAN_EVERY, Scheduler

    cli.prepare()
    with connect(cli.dsn) as app:
        planner = Scheduler(app.store)
        if once:
            planned, failed = 0, dict[str, str]()
            while True:
                ran = planner.run_once()
                planned += ran.planned
                failed |= ran.failed
                if not ran.more or ran.failed:
                    break
            fields = [("planned", plural(planned, "tick")), *(("failed", f"{p}: {why}") for p, why in failed.items())]
            cli.printer.record("tarry.scheduler/1", {"planned": planned, "failed": failed}, fields)
            return ExitCode.PARTLY if failed else None
        stop = threading.Event()

        def stopping(number: int, frame: FrameType | None) -> None:
            stop.set()

        signal.signal(signal.SIGTERM, stopping)
        signal.signal(signal.SIGINT, stopping)
        background = Background("tarry-scheduler", planner.cycle, every=SCAN_EVERY)
        background.start()
        cli.note(f"planning {plural(len(app.schedules.list()), 'schedule')}; Ctrl-C stops it")
        stop.wait()
        background.stop()
    return None
