"""tarry demo: the command. What it shows is in `demo`, which needs rich and much else."""

from __future__ import annotations

from typing import Annotated

import typer

from tarry.edges.cli.exits import ExitCode, Usage
from tarry.edges.cli.session import Session, command


def register(app: typer.Typer) -> None:
    command(app, "demo", examples=("tarry demo", "tarry demo --seconds 60"))(demo)


def demo(
    cli: Session,
    seconds: Annotated[
        float | None, typer.Option("--seconds", metavar="N", help="How long, about; else DEMO_SECONDS.")
    ] = None,
) -> ExitCode:
    """Show Tarry at work.

    Sample traffic on the queue "demo", which is emptied first, of the embedded database, whatever others are named by
    the environment.
    """
    from tarry.edges.env import demo_seconds_from

    if cli.dsn is not None:
        raise Usage("the demo runs on the embedded database, and on no other", hint="leave out --dsn")
    seconds = demo_seconds_from() if seconds is None else seconds
    if seconds is not None and not 0 < seconds < float("inf"):
        raise Usage(f"the demo runs for some seconds, not {seconds:g}")
    from tarry.edges.cli.demo import run

    return ExitCode(run(seconds))
