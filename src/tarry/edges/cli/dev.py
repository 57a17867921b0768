"""tarry dev: everything in one process, for whoever writes a program."""

from __future__ import annotations

from typing import Annotated

import typer

from tarry.edges.cli.exits import CommandFailed, ExitCode
from tarry.edges.cli.scheduler import warn_of_old_zones
from tarry.edges.cli.session import Session, command


def register(app: typer.Typer) -> None:
    command(app, "dev", examples=("tarry dev", "tarry dev shop.tasks:worker", "tarry dev --port 0 -o json"))(dev)


def dev(
    cli: Session,
    target: Annotated[
        str | None, typer.Argument(metavar="[MODULE:WORKER]", help="A tarry.Worker to run as well.", show_default=False)
    ] = None,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="Of the broker; 0 for any that is free.")
    ] = 8080,
) -> None:
    """Run everything in one process, while you write your program.

    The broker on this machine only, the scheduler, the sweeper, and a worker if you name one, on the database that is
    named or on the embedded one. Ctrl-C or SIGTERM stops them in peace, once more at once. In production each runs on its
    own: tarry serve, scheduler, sweeper, worker.
    """
    import asyncio
    from importlib import import_module

    from tarry.edges.cli.worker_log import log_to

    log_to(json_lines=not cli.printer.for_people, quiet=cli.quiet, verbose=False)
    cli.prepare()
    warn_of_old_zones(cli)
    try:
        running = import_module("tarry.edges.cli.dev_process")
    except ModuleNotFoundError as error:
        raise CommandFailed(
            f"the broker is not installed: {error}", ExitCode.FAILED, hint="pip install 'tarry[http]'"
        ) from error
    asyncio.run(running.run(cli, target, port))
