"""tarry worker: run the handlers of a module."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tarry.edges.cli.exits import ExitCode
from tarry.edges.cli.session import Session, command
from tarry.edges.times import delay


def register(app: typer.Typer) -> None:
    command(
        app,
        "worker",
        examples=(
            "tarry worker shop.tasks:worker",
            "tarry worker shop.tasks:worker -c 20 --processes 4 --grace 1m",
            "tarry worker shop.tasks:worker --queues orders,mails",
            "tarry worker shop.tasks:worker --reload   # while you write it",
        ),
    )(worker)


def worker(
    cli: Session,
    target: Annotated[
        str, typer.Argument(metavar="MODULE:WORKER", help="Where the tarry.Worker is.", show_default=False)
    ],
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", metavar="N", min=1, max=1000, help="Handlers at a time, per process.")
    ] = 10,
    processes: Annotated[
        int, typer.Option("--processes", metavar="N", min=1, max=256, help="Processes, each on its own.")
    ] = 1,
    grace: Annotated[
        str, typer.Option("--grace", metavar="DURATION", help="For running handlers, when told to stop.")
    ] = "30s",
    queues: Annotated[
        str | None, typer.Option("--queues", metavar="A,B", help="Only these; else all that have a handler.")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port", metavar="PORT", min=0, max=65535, help="Prometheus on the loopback; one more per process."
        ),
    ] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Start again when a file changes here.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="A line for every message.")] = False,
) -> ExitCode:
    """Handle messages with the functions of a module.

    Until SIGTERM or Ctrl-C: then no new message is taken, running handlers get their grace, what was not started is given
    back uncounted, and the end is 0. A second signal ends it at once; what was held comes back when its lease runs out.
    """
    from tarry.edges.cli.worker_log import log_to
    from tarry.edges.cli.worker_process import Plan, run
    from tarry.edges.env import worker_parent_from

    plan = Plan(
        target=target,
        concurrency=concurrency,
        processes=processes,
        grace=delay(grace, "--grace"),
        queues=None if queues is None else tuple(name.strip() for name in queues.split(",") if name.strip()),
        metrics_port=metrics_port,
    )
    log_to(json_lines=not cli.printer.for_people, quiet=cli.quiet, verbose=verbose)
    parent = worker_parent_from()
    if parent is None and (processes > 1 or reload):
        from tarry.edges.cli.fleet import Fleet, changes_below

        changes = changes_below(Path.cwd()) if reload else None
        if not reload:
            plan.load()  # what is wrong with it is said once, before any process is started
        return Fleet(plan, sys.argv[1:], changes).run()
    cli.prepare()
    return run(plan, cli.dsn, parent)
