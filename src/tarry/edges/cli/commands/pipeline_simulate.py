"""tarry pipeline simulate: recorded messages, with other workers, retries or load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tarry.edges.cli.context import CommandSession, command
from tarry.edges.cli.exit_codes import ExitCode, Usage
from tarry.edges.cli.help import option
from tarry.edges.cli.options import Lake, Master, RetryOptions, instant_of, parsed
from tarry.edges.cli.output.printer import Cell, Columns, Printer, TableColumn
from tarry.edges.cli.pipeline.jobs import arguments, load
from tarry.edges.cli.pipeline.spark import progress_bar, spark_for
from tarry.edges.formats import duration
from tarry.wire.base import data_of

if TYPE_CHECKING:
    from tarry.edges.spark.jobs.simulate import SimulatedQueue


@dataclass(frozen=True)
class SimulateOptions:
    queue: Annotated[list[str] | None, option("--queue QUEUE", "A queue; may be repeated.")] = None
    workers: Annotated[str | None, option("--workers N", "Leases held at the same time; x2: twice as many.")] = None
    rate: Annotated[str, option("--rate X", "Load as a multiple of the recorded one: x2, x0.5.")] = "x1"
    max_attempts: Annotated[int | None, option("--max-attempts N", "Attempts before a dead letter.", min=1)] = None
    last: Annotated[str, option("--last DURATION", "How much of the record to use.")] = "24h"
    until: Annotated[str | None, option("--until TIME", "The end of the record; default: now.")] = None
    seeds: Annotated[int, option("--seeds N", "Runs with other random numbers.", min=1, max=100)] = 1
    lake: Lake = None


@command(
    "pipeline simulate",
    "tarry pipeline simulate --queue orders --workers 8",
    "tarry pipeline simulate --queue orders --rate x2 --workers x2 --seeds 5",
    "tarry pipeline simulate --max-attempts 5 --retry-initial 30s -o json",
)
def simulate(
    cli: CommandSession, options: SimulateOptions, retries: RetryOptions, master: Master = None
) -> ExitCode | None:
    """Simulate a queue with other workers, retries or load.

    Recorded arrivals and processing times go through a model of the queue, which must first reproduce the recording: its
    error is shown, and the exit code is 7 if it is too large to trust the result. Reads the facts of the lake and changes
    nothing.
    """
    if not options.queue:
        raise Usage("simulate needs a queue", hint="tarry pipeline simulate --queue orders --workers 8")
    module = load("simulate")
    workers = options.workers
    given = {
        "queues": tuple(dict.fromkeys(options.queue)),
        "lake": options.lake,
        "until": parsed(instant_of, options.until, "--until"),
        "back_for": duration(options.last, "--last"),
        "workers": int(workers) if workers is not None and workers.isdecimal() else None,
        "workers_factor": None if workers is None or workers.isdecimal() else _multiple(workers, "--workers"),
        "rate": _multiple(options.rate, "--rate"),
        "retry": retries.retry(),
        "max_attempts": options.max_attempts,
        "seeds": options.seeds,
    }
    with cli.open() as app, spark_for(cli, app, master) as spark, progress_bar(cli, spark, "simulate"):
        summary = module.run(spark, app, arguments(module, given))
    if cli.printer.for_people:
        for queue in summary.queues:
            show_queue(cli.printer, queue)
    else:
        cli.printer.record("tarry.pipeline.simulate/1", {**data_of(summary), "ok": summary.ok}, ())
    return None if summary.ok else ExitCode.CHECK_FAILED


def _multiple(text: str, name: str) -> float:
    """A multiple: x2, ×2 or 2."""
    try:
        factor = float(text.lstrip("x×"))
    except ValueError:
        factor = 0.0
    if not 0 < factor <= 1000:
        raise Usage(f"{name} must be a multiple such as x2 or x0.5, got {text!r:.80}")
    return factor


def show_queue(printer: Printer, queue: SimulatedQueue) -> None:
    from tarry.edges.spark.report.words import count, seconds, share, sparkline

    scenario, median = queue.scenario, queue.median
    printer.lines(
        [
            f"{queue.queue}: {count(queue.recorded.messages)} messages until {queue.until:%Y-%m-%d %H:%M} UTC, "
            f"processed in {seconds(queue.service_s)} on average by {queue.workers} at the same time"
        ]
    )
    courses = (queue.recorded, queue.reproduced, median)
    numbers = (
        ("messages", [count(of.messages) for of in courses]),
        ("lag p50", [seconds(of.lag.p50) for of in courses]),
        ("lag p95", [seconds(of.lag.p95) for of in courses]),
        ("lag p99", [seconds(of.lag.p99) for of in courses]),
        ("longest lag", [seconds(of.longest_lag_s) for of in courses]),
        ("drain time", [seconds(of.drain_s) for of in courses]),
        ("done", [count(of.done) for of in courses]),
        ("dead", [count(of.dead) for of in courses]),
        ("workers busy", [share(of.busy) for of in courses]),
        ("waiting", [sparkline(of.waiting, 20) for of in courses]),
    )
    changes = f"{scenario.workers} workers, rate x{scenario.rate:g}"
    columns: Columns = [TableColumn(title, right=bool(title)) for title in ("", "recorded", "reproduced", changes)]
    printer.table(columns, [[name, *values] for name, values in numbers])
    if len(queue.simulated) > 1:
        tails = sorted(run.lag.p95 for run in queue.simulated)
        printer.lines([f"lag p95 in {len(tails)} runs: {seconds(tails[0])} to {seconds(tails[-1])}"])
    verdict = f"largest difference of the reproduction: {share(queue.error)}, of the {queue.error_of}"
    if queue.is_reproduced:
        printer.lines([verdict])
    else:
        printer.lines([Cell(f"NOT REPRODUCED, so the last column is not to be trusted: {verdict}", "red")])
        printer.lines(["choose a time in which the workers were always the same: --last 1h --until TIME"])
