"""tarry serve: the broker."""

from __future__ import annotations

from typing import Annotated

import typer

from tarry.edges.cli.exits import CommandFailed, ExitCode
from tarry.edges.cli.session import Session, command
from tarry.edges.times import delay


def register(app: typer.Typer) -> None:
    command(
        app,
        "serve",
        examples=("tarry serve", "tarry serve --port 9000", "tarry serve --host 0.0.0.0 --rate 500"),
    )(serve)


def serve(
    cli: Session,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0 for any that is free.")] = 8080,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", min=0.001, help="Requests a second for each key.")
    ] = None,
    grace: Annotated[
        str, typer.Option("--grace", metavar="DURATION", help="For answers under way, when told to stop.")
    ] = "10s",
    sweeper: Annotated[
        bool, typer.Option("--sweeper/--no-sweeper", help="Clean up beside it; of all sweepers one works.")
    ] = True,
    no_access_log: Annotated[bool, typer.Option("--no-access-log", help="No line per request on stderr.")] = False,
) -> None:
    """Run the broker: produce and consume by HTTP.

    From any language. Beyond this machine (any --host but loopback) it answers to API keys only, and does not start
    before there is one: tarry key create. A sweeper runs beside it and carries redrive jobs on; schedules need a
    scheduler: tarry scheduler. Ctrl-C or SIGTERM lets answers under way finish; waiting clients are
    answered at once.
    """
    import asyncio
    from importlib import import_module

    cli.prepare()
    try:
        running = import_module("tarry.edges.cli.serving")
    except ModuleNotFoundError as error:
        raise CommandFailed(
            f"the broker is not installed: {error}", ExitCode.FAILED, hint="pip install 'tarry[http]'"
        ) from error
    allowed = delay(grace, "--grace")
    asyncio.run(
        running.run(cli, host, port, rate, allowed, sweeper=sweeper, access_log=not no_access_log and not cli.quiet)
    )
