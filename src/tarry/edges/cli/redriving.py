"""Carrying a redrive job on from the command line, with a bar that shows how far it is."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from tarry.core.redriving import Phase, RedriveJob, RedriveState
from tarry.edges.cli.dead_views import job_data, job_fields, job_state
from tarry.edges.cli.exits import ExitCode, Interrupted
from tarry.edges.cli.session import Session
from tarry.edges.cli.text import plural

if TYPE_CHECKING:
    from tarry.app import App
    from tarry.handles.redrives import Redrive

_LONGEST_NAP_S = 0.5
"""Somebody may pause or cancel it meanwhile, and a sweeper may be faster: look often enough to notice."""


class Show(Protocol):
    def __call__(self, job: RedriveJob) -> None: ...


def carry_on(cli: Session, app: App, redrive: Redrive) -> ExitCode | None:
    """Until it ends or stops itself. Ctrl-C leaves the job as it is: on the server, for a sweeper or a later watch."""
    try:
        with _bar(cli, redrive.job) as show:
            told = False
            while redrive.job.state is RedriveState.RUNNING:
                show(redrive.advance())
                if redrive.job.phase is Phase.VERDICT and not told:
                    told = True
                    first = plural(len(redrive.job.canaries), "canary", "canaries")
                    cli.note(f"{first} went first: waiting for what comes of it")
                _nap(app, redrive.job)
    except KeyboardInterrupt:
        cli.note(
            f"job {redrive.id} goes on when a sweeper runs, or with: tarry redrive watch {redrive.id}   "
            f"(end it: tarry redrive cancel {redrive.id})"
        )
        raise Interrupted from None
    return finish(cli, app, redrive.job)


def finish(cli: Session, app: App, job: RedriveJob) -> ExitCode | None:
    cli.printer.record("tarry.redrive/1", job_data(job), job_fields(job, app.store.now()))
    if job.state is RedriveState.PAUSED:
        cli.note(f"go on with: tarry redrive resume {job.id}   or end it: tarry redrive cancel {job.id}")
        return ExitCode.CHECK_FAILED
    if job.state in (RedriveState.FAILED, RedriveState.CANCELLED):
        return ExitCode.FAILED
    return ExitCode.PARTLY if job.skipped else None


def _nap(app: App, job: RedriveJob) -> None:
    if job.state is RedriveState.RUNNING:
        due_in_s = (job.next_at - app.store.now()).total_seconds()
        time.sleep(max(0.0, min(due_in_s, _LONGEST_NAP_S)))


@contextmanager
def _bar(cli: Session, job: RedriveJob) -> Generator[Show]:
    """A bar on a terminal; elsewhere nobody watches."""
    if cli.quiet or not cli.printer.for_people or not sys.stderr.isatty():
        yield lambda job: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False, markup=False, no_color=not cli.printer.colored)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"job {job.id}", total=job.total.n or None)

        def show(job: RedriveJob) -> None:
            words = f"job {job.id}: {job_state(job).text}"
            progress.update(task, description=words, completed=job.redriven + job.skipped)

        show(job)
        yield show
