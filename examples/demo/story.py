"""First part of the demo, and its order: a delayed queue with a killed consumer, workers in an outage, the pipeline."""

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
from pathlib import Path
from statistics import quantiles
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import tarry
from examples.demo.pipeline import show_pipeline
from examples.demo.roles import DOOMED, LEASE_FOR, QUEUE, Acked, Delivered, Doomed, Offered, consume, produce
from examples.demo.workers import show_workers
from tarry.app import connect_embedded
from tarry.core.limits import PURGE_CONFIRMATION
from tarry.core.messages.outcomes import Outcome, Settled

PRODUCERS = 3
CONSUMERS = 3
MESSAGES = 420
SECONDS = 8.0


@dataclass(slots=True)
class Totals:
    """Reports of the processes, and the totals."""

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
        """By the database's clock, first deliveries only: a redelivery waits until the lease expires."""
        return sorted((d.leased_at - d.due_at).total_seconds() * 1000 for d in self.deliveries if d.attempt == 1)


def run(seconds: float | None = None) -> int:
    """Run the demo and print its results. 0 if nothing was lost, doubled or early."""
    seconds = seconds or SECONDS
    console = Console()
    console.print("Starting an embedded PostgreSQL (the first time takes a few seconds) …", style="dim")
    with connect_embedded() as app:
        app.queues.create(QUEUE, exist_ok=True)
        app.queue(QUEUE).purge(PURGE_CONFIRMATION)
        app.queue(QUEUE).dead_letters.discard()
        began_at = app.store.run(app.store.queues.now())
        totals = Totals()
        with _progress(console) as progress:
            _play(app, seconds, totals, progress)
        left = app.queues.counts(QUEUE)
        _show(console, app, totals)
        whole = not (totals.lost or totals.doubled or totals.early or left.ready.n or left.delayed.n or left.leased.n)
        whole = whole and left.dead.n == DOOMED
        console.print(
            "[bold green]Nothing lost, nothing doubled, nothing early.[/]"
            if whole
            else "[bold red]Something is wrong.[/]"
        )
        worked = show_workers(console, app)
        measured = show_pipeline(console, app, began_at)
    tarry_ = "tarry" if shutil.which("tarry") else str(Path(sys.executable).with_name("tarry"))
    console.print(
        f"Look around: [bold]{tarry_} queue list[/], [bold]{tarry_} message timeline demo KEY[/], "
        f"[bold]{tarry_} anomaly list[/]",
        style="dim",
    )
    return 0 if whole and worked and measured else 1


def _play(app: tarry.App, seconds: float, totals: Totals, progress: Progress) -> None:
    dsn = app.dsn
    offered = progress.add_task("offered", total=MESSAGES)
    acked = progress.add_task("acknowledged", total=MESSAGES)
    tag = time.strftime("%H%M%S")  # new keys for each run, so that timelines have no older events
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
    while time.monotonic() < deadline and not _is_over(app, totals):
        for pipe in wait(pipes, timeout=0.1):
            assert isinstance(pipe, Connection)
            try:
                totals.note(pipe.recv())
            except (EOFError, OSError):
                pipes.remove(pipe)
        progress.update(offered, completed=len(totals.keys))
        progress.update(acked, completed=len(totals.acks))
        if totals.killed is None and _has_leases("consumer-1", totals):
            consumers["consumer-1"][0].kill()
            totals.killed = "consumer-1"
            progress.console.print(
                "  kill -9 of consumer-1, which has leases: its messages return when these expire",
                style="yellow",
            )
    for name, (process, pipe) in consumers.items():
        if name != totals.killed:
            pipe.send("stop")
        process.join(timeout=10)


def _is_over(app: tarry.App, totals: Totals) -> bool:
    if len(totals.keys) < MESSAGES or len(totals.acks) < MESSAGES:
        return False
    return app.queues.counts(QUEUE).dead.n >= DOOMED


def _has_leases(consumer: str, totals: Totals) -> bool:
    """Not at once: the consumer is killed after it has worked for a while."""
    return len(totals.acks) > MESSAGES // 10 and any(d.consumer == consumer for d in totals.deliveries)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("  {task.description:<13}"),
        BarColumn(40),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def _show(console: Console, app: tarry.App, totals: Totals) -> None:
    table = Table(title="What happened", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    late = totals.lateness_ms()
    cuts = quantiles(late, n=100) if len(late) > 1 else [0.0] * 99
    rows = [
        (
            "messages offered",
            len(totals.keys),
            f"{totals.offers[Outcome.UPDATED]} of them changed once more before due",
        ),
        ("acknowledged", len(totals.acks), f"by {CONSUMERS} consumers, one of them killed with -9"),
        ("redelivered", len(totals.redelivered), "leased by the killed consumer, after its leases expired"),
        ("dead letters", DOOMED, "orders that cannot be paid: dead after 3 attempts each"),
        ("lost", totals.lost, "offered, and never acknowledged"),
        ("doubled", totals.doubled, "acknowledged twice"),
        ("early", totals.early, "delivered before due, by the database's clock"),
        ("late, p50", f"{cuts[49]:.1f} ms", "due → leased, first deliveries"),
        ("late, p99", f"{cuts[98]:.1f} ms", ""),
    ]
    for what, number, why in rows:
        table.add_row(what, str(number), why)
    console.print(table)
    if totals.redelivered:
        _show_timeline(console, app, totals.redelivered[0].key)


def _show_timeline(console: Console, app: tarry.App, key: str) -> None:
    console.print(f"The life of [bold]{key}[/], from the journal:")
    events = app.store.run(app.store.journal.timeline(QUEUE, key, limit=20))
    for event in events:
        since = (event.at - events[0].at).total_seconds()
        console.print(f"  {since:8.3f} s  {event.kind:<9} attempt {event.attempt or 0}  {event.consumer or ''}")
