"""Second part of the demo: workers, an outage of a dependency, retries, dead letters and a redrive."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import tarry
from examples.demo.provider import Provider
from examples.demo.worker import QUEUE, Charge, charge
from tarry.core.dead_letters.redrive import RedriveState
from tarry.core.limits import PURGE_CONFIRMATION

ROOT = Path(__file__).parents[2]
CHARGES = 90
DUE_WITHIN_S = 6.0
DOWN_FROM_S, DOWN_UNTIL_S = 1.5, 4.5
CANARIES = 3
LONGEST_S = 60.0


def show_workers(console: Console, app: tarry.App) -> bool:
    """Whether every order was charged exactly once in the end."""
    console.print()
    console.print("Workers, and a payment provider that is down for a while:", style="bold")
    app.queues.create(QUEUE, exist_ok=True)
    app.queue(QUEUE).purge(PURGE_CONFIRMATION)
    app.queue(QUEUE).dead_letters.discard()
    with (
        Provider().running() as provider,
        Progress(
            TextColumn("  {task.description:<13}"),
            BarColumn(40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        ) as progress,
    ):
        died = _play(app, provider, progress)
        redriven = _redrive(app, provider, progress) if died else 0
    doubled = sum(n > 1 for n in provider.charges.values())
    _show(console, provider, died, redriven, doubled)
    whole = len(provider.charges) == CHARGES and not doubled
    console.print(
        "[bold green]Every order charged, none of them twice.[/]" if whole else "[bold red]Something is wrong.[/]"
    )
    return whole


def _play(app: tarry.App, provider: Provider, progress: Progress) -> int:
    """Charges are due over a few seconds, in the middle of which the provider is down. Returns the dead letters."""
    charged = progress.add_task("charged", total=CHARGES)
    started = float("inf")

    def turn() -> bool:
        provider.up = not DOWN_FROM_S <= time.monotonic() - started < DOWN_UNTIL_S
        progress.update(charged, completed=len(provider.charges))
        return not _live(app)

    with _worker(app) as first, _worker(app):
        _offer(app, range(1), provider)
        _until(turn)  # the workers have started
        _offer(app, range(1, CHARGES), provider)
        started = time.monotonic()
        _until(lambda: turn() or not provider.up)
        progress.console.print("  the provider is down: charges are tried again, later and later", style="yellow")
        _until(lambda: turn() or provider.up)
        progress.console.print(
            "  it is back. A deploy meanwhile: one worker gets SIGTERM, releases unstarted messages, another starts",
            style="yellow",
        )
        first.terminate()
        with _worker(app):
            _until(turn)
    provider.up = True
    progress.remove_task(charged)
    return app.queues.counts(QUEUE).dead.n


def _offer(app: tarry.App, orders: range, provider: Provider) -> None:
    app.queue(QUEUE, Charge).offer_many(
        tarry.Message(
            key=f"charge-{order:03}",
            payload=Charge(order, provider.port),
            after=timedelta(seconds=DUE_WITHIN_S * order / CHARGES),
        )
        for order in orders
    )


def _redrive(app: tarry.App, provider: Provider, progress: Progress) -> int:
    dead = app.queue(QUEUE).dead_letters
    for group in dead.groups():
        progress.console.print(f"  {group.count} dead letters of one kind: [bold]{group.pattern}[/]", style="red")
    progress.console.print(f"  redrive: {CANARIES} first, the rest when these succeeded", style="yellow")
    redriven = progress.add_task("redriven", total=dead.count().letters.n)
    charged = progress.add_task("charged", total=CHARGES)
    job = dead.start_redrive(canary=CANARIES)
    with _worker(app):

        def turn() -> bool:
            seen = job.advance()
            progress.update(redriven, completed=seen.redriven)
            progress.update(charged, completed=len(provider.charges))
            return seen.state is not RedriveState.RUNNING and not _live(app)

        _until(turn)
    return job.refresh().redriven


def _live(app: tarry.App) -> bool:
    counts = app.queues.counts(QUEUE)
    return bool(counts.delayed.n or counts.ready.n or counts.leased.n)


def _until(over: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not over() and time.monotonic() < deadline:
        time.sleep(0.05)


@contextmanager
def _worker(app: tarry.App) -> Generator[subprocess.Popen[bytes]]:
    """`tarry worker` as a process, stopped with SIGTERM at the end, as by a deploy."""
    command = [sys.executable, "-m", "tarry", "worker", f"{charge.__module__}:worker", "-c", "4"]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "TARRY_DSN": app.dsn or ""},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=LONGEST_S)


def _show(console: Console, provider: Provider, died: int, redriven: int, doubled: int) -> None:
    table = Table(title="What the workers did", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    rows = [
        (
            "charges",
            CHARGES,
            f"due over {DUE_WITHIN_S:.0f} s, with the provider down for {DOWN_UNTIL_S - DOWN_FROM_S:.0f}",
        ),
        ("refused", provider.refusals, "attempts while it was down: each waited, then was tried again"),
        ("dead letters", died, "used up their 3 attempts during the outage"),
        ("redriven", redriven, f"from the first attempt again, {CANARIES} of them as canaries"),
        ("charged", len(provider.charges), "by 2 workers, one of them replaced by a deploy"),
        ("charged twice", doubled, ""),
    ]
    for what, number, why in rows:
        table.add_row(what, str(number), why)
    console.print(table)
