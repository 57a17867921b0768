"""`tarry demo`: a delayed queue with a consumer killed in the middle, workers through an outage, the data pipeline."""

from __future__ import annotations

import multiprocessing
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from statistics import quantiles
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import tarry
from tarry.app import connect_embedded
from tarry.core.limits import DROP_ALL_CONFIRMATION
from tarry.core.outcomes import Outcome, Settled
from tarry.edges.cli.demo_pipeline import show_pipeline
from tarry.edges.cli.demo_roles import DOOMED, LEASE_FOR, QUEUE, Acked, Delivered, Doomed, Offered, consume, produce
from tarry.edges.cli.demo_workers import show_workers

PRODUCERS = 3
CONSUMERS = 3
MESSAGES = 420
SECONDS = 8.0


@dataclass(slots=True)
class Tally:
    """What the processes reported, and what follows from it."""

    offers: Counter[Outcome] = field(default_factory=Counter[Outcome])
    keys: set[str] = field(default_factory=set[str])
    doomed: set[str] = field(default_factory=set[str])
    deliveries: list[Delivered] = field(default_factory=list[Delivered])
    acks: Counter[str] = field(default_factory=Counter[str])
    killed: str | None = None

    def note(self, report: object) -> None:
        match report:
            case Offered(key, outcome):
                self.keys.add(key)
                self.offers[outcome] += 1
            case Doomed(key):
                self.doomed.add(key)
            case Delivered():
                self.deliveries.append(report)
            case Acked(key, Settled.DONE):
                self.acks[key] += 1
            case _:
                pass

    @property
    def lost(self) -> int:
        return len(self.keys - self.acks.keys())

    @property
    def doubled(self) -> int:
        return sum(n > 1 for n in self.acks.values())

    @property
    def early(self) -> int:
        return sum(d.leased_at < d.due_at for d in self.deliveries)

    @property
    def redelivered(self) -> list[Delivered]:
        return [d for d in self.deliveries if d.attempt > 1 and d.key not in self.doomed]

    def lateness_ms(self) -> list[float]:
        """By the database's clock, first deliveries only: a redelivery waits for a lease to run out, as it should."""
        return sorted((d.leased_at - d.due_at).total_seconds() * 1000 for d in self.deliveries if d.attempt == 1)


def run(seconds: float | None = None) -> int:
    """Play the demo and print what happened. 0 if nothing was lost, doubled or early."""
    seconds = seconds or SECONDS
    console = Console()
    console.print("Starting an embedded PostgreSQL (the first time takes a few seconds) …", style="dim")
    with connect_embedded() as app:
        app.queues.create(QUEUE, exist_ok=True)
        app.queue(QUEUE).drop_all(DROP_ALL_CONFIRMATION)
        app.queue(QUEUE).dead_letters.purge()
        began_at = app.store.now()
        tally = Tally()
        with _progress(console) as progress:
            _play(app, seconds, tally, progress)
        left = app.queues.counts(QUEUE)
        _show(console, app, tally)
        whole = not (tally.lost or tally.doubled or tally.early or left.ready.n or left.delayed.n or left.leased.n)
        whole = whole and left.dead.n == DOOMED
        console.print(
            "[bold green]Nothing lost, nothing doubled, nothing early.[/]"
            if whole
            else "[bold red]Something is wrong.[/]"
        )
        worked = show_workers(console, app)
        measured = show_pipeline(console, app, began_at)
    # As it was called, where it is not on the PATH: after `make demo` that is .venv/bin/tarry.
    tarry_ = "tarry" if shutil.which("tarry") else sys.argv[0]
    console.print(
        f"Look around: [bold]{tarry_} queue list[/], [bold]{tarry_} message timeline demo KEY[/], "
        f"[bold]{tarry_} anomaly list[/]",
        style="dim",
    )
    return 0 if whole and worked and measured else 1


def _play(app: tarry.App, seconds: float, tally: Tally, progress: Progress) -> None:
    dsn = app.dsn
    offered = progress.add_task("offered", total=MESSAGES)
    acked = progress.add_task("acknowledged", total=MESSAGES)
    tag = time.strftime("%H%M%S")  # keys of this run only, so that timelines do not tell of an earlier one
    spawn = multiprocessing.get_context("spawn")
    pipes: list[Connection[Any, Any]] = []
    consumers: dict[str, tuple[SpawnProcess, Connection[Any, Any]]] = {}

    def start(role: Callable[..., None], *args: Any) -> tuple[SpawnProcess, Connection[Any, Any]]:
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=role, args=(dsn, *args, theirs), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        return process, ours

    for i in range(CONSUMERS):
        consumers[f"consumer-{i + 1}"] = start(consume, f"consumer-{i + 1}", i == 0)
    for i in range(PRODUCERS):
        start(produce, "abc"[i], tag, MESSAGES // PRODUCERS, seconds)

    deadline = time.monotonic() + seconds + 30 * LEASE_FOR.total_seconds()
    while time.monotonic() < deadline and not _is_over(app, tally):
        for pipe in wait(pipes, timeout=0.1):
            assert isinstance(pipe, Connection)  # noqa: S101
            try:
                tally.note(pipe.recv())
            except (EOFError, OSError):
                pipes.remove(pipe)
        progress.update(offered, completed=len(tally.keys))
        progress.update(acked, completed=len(tally.acks))
        if tally.killed is None and _holds_something("consumer-1", tally):
            consumers["consumer-1"][0].kill()
            tally.killed = "consumer-1"
            progress.console.print(
                "  kill -9 of consumer-1, with messages in its hands: they come back when the lease runs out",
                style="yellow",
            )
    for name, (process, pipe) in consumers.items():
        if name != tally.killed:
            pipe.send("stop")
        process.join(timeout=10)


def _is_over(app: tarry.App, tally: Tally) -> bool:
    if len(tally.keys) < MESSAGES or len(tally.acks) < MESSAGES:
        return False
    return app.queues.counts(QUEUE).dead.n >= DOOMED


def _holds_something(consumer: str, tally: Tally) -> bool:
    """Not at once: the killed consumer should look like one that has been at work for a while."""
    return len(tally.acks) > MESSAGES // 10 and any(d.consumer == consumer for d in tally.deliveries)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("  {task.description:<13}"),
        BarColumn(40),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def _show(console: Console, app: tarry.App, tally: Tally) -> None:
    table = Table(title="What happened", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    late = tally.lateness_ms()
    cuts = quantiles(late, n=100) if len(late) > 1 else [0.0] * 99
    rows = [
        ("messages offered", len(tally.keys), f"{tally.offers[Outcome.UPDATED]} of them changed once more before due"),
        ("acknowledged", len(tally.acks), f"by {CONSUMERS} consumers, one of them killed with -9"),
        ("redelivered", len(tally.redelivered), "what the killed consumer held, after its lease ran out"),
        ("dead letters", DOOMED, "orders that cannot be paid: given up after 3 attempts each"),
        ("lost", tally.lost, "offered, and never acknowledged"),
        ("doubled", tally.doubled, "acknowledged twice"),
        ("early", tally.early, "delivered before due, by the database's clock"),
        ("late, p50", f"{cuts[49]:.1f} ms", "due → leased, first deliveries"),
        ("late, p99", f"{cuts[98]:.1f} ms", ""),
    ]
    for what, number, why in rows:
        table.add_row(what, str(number), why)
    console.print(table)
    if tally.redelivered:
        _show_timeline(console, app, tally.redelivered[0].key)


def _show_timeline(console: Console, app: tarry.App, key: str) -> None:
    console.print(f"The life of [bold]{key}[/], from the journal:")
    events = app.store.timeline(QUEUE, key, limit=20)
    for event in events:
        since = (event.at - events[0].at).total_seconds()
        console.print(f"  {since:8.3f} s  {event.kind:<9} attempt {event.attempt or 0}  {event.consumer or ''}")
