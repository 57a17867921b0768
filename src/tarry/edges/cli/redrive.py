"""tarry redrive: the jobs that bring dead letters back."""

from __future__ import annotations

from typing import Annotated

import typer

from tarry.edges.cli.dead_views import JOB_COLUMNS, job_data, job_fields, job_row
from tarry.edges.cli.exits import ExitCode
from tarry.edges.cli.help import group
from tarry.edges.cli.redriving import carry_on, finish
from tarry.edges.cli.session import Session, command

app = group("redrive", "Follow, pause, resume and cancel redrive jobs.")

Job = Annotated[int, typer.Argument(metavar="JOB", help="The number of the job.", show_default=False)]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; whoever looks will see it.")]


@command(app, "list", examples=("tarry redrive list", "tarry redrive list orders -o json"))
def list_jobs(
    cli: Session,
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Of this queue.", show_default=False)] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="At most this many.")] = 100,
) -> None:
    """List redrive jobs, the newest first.

    They are started with tarry dlq redrive, and carried on by a sweeper or by whoever watches them.
    """
    with cli.open() as opened:
        if queue is not None:
            opened.queues.get(queue)
        found = opened.redrives.list(queue, limit=limit)
        now = opened.store.now()
    cli.printer.listing(
        "tarry.redrive.list/1",
        {"redrives": [job_data(job) for job in found]},
        JOB_COLUMNS,
        [job_row(job, now) for job in found],
    )
    if not found:
        cli.note("there are no redrive jobs")


@command(app, "show", examples=("tarry redrive show 7", "tarry redrive show 7 -o json"))
def show(cli: Session, job: Job) -> None:
    """Show how far a redrive job is.

    Changes nothing. To carry it on as well: tarry redrive watch.
    """
    with cli.open() as opened:
        found = opened.redrives.get(job).job
        cli.printer.record("tarry.redrive/1", job_data(found), job_fields(found, opened.store.now()))


@command(app, "watch", examples=("tarry redrive watch 7",))
def watch(cli: Session, job: Job) -> ExitCode | None:
    """Carry a redrive job on, and follow it to its end.

    Beside a sweeper this only watches; without one it does the work. Ctrl-C ends the watching, not the job. Ends with 6
    if letters were skipped, and with 7 if the job is paused, as it does itself when a canary dies again.
    """
    with cli.open() as opened:
        return carry_on(cli, opened, opened.redrives.get(job))


@command(app, "pause", audited=True, examples=('tarry redrive pause 7 --reason "the database is busy"',))
def pause(cli: Session, job: Job, reason: Reason = None) -> None:
    """Let a redrive job rest.

    What lives again stays alive. Go on with tarry redrive resume.
    """
    with cli.open() as opened:
        found = opened.redrives.get(job)
        found.pause(reason)
        cli.printer.record("tarry.redrive/1", job_data(found.job), job_fields(found.job, opened.store.now()))


@command(app, "resume", audited=True, examples=("tarry redrive resume 7", "tarry redrive resume 7 --watch"))
def resume(
    cli: Session,
    job: Job,
    watching: Annotated[bool, typer.Option("--watch", help="And carry it on, as tarry redrive watch does.")] = False,
) -> ExitCode | None:
    """Go on with a paused redrive job.

    A job that paused itself because a canary died again goes on with the rest: mend the cause first.
    """
    with cli.open() as opened:
        found = opened.redrives.get(job)
        found.resume()
        if watching:
            return carry_on(cli, opened, found)
        return finish(cli, opened, found.job)


@command(app, "cancel", audited=True, examples=("tarry redrive cancel 7",))
def cancel(cli: Session, job: Job, reason: Reason = None) -> None:
    """End a redrive job where it is.

    What lives again stays alive, the others stay dead. It cannot be resumed; a new one can be started.
    """
    with cli.open() as opened:
        found = opened.redrives.get(job)
        found.cancel(reason)
        cli.printer.record("tarry.redrive/1", job_data(found.job), job_fields(found.job, opened.store.now()))
