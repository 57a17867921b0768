"""`make bench-timers`: CPU, lateness and cost per timer, for 100, 10,000 and 1,000,000 of them and every strategy."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.timers.chart import drawn
from benchmarks.timers.contenders import CONTENDERS, MOST
from benchmarks.timers.measuring import Figures, Plan, measured

CHART = Path(__file__).parents[2] / "docs" / "images" / "timers.svg"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.timers", description=__doc__)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=Plan().sizes, help="how many timers (default: %(default)s)"
    )
    parser.add_argument("--only", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS), metavar="CONTENDER")
    parser.add_argument("--seconds", type=int, default=130, help="begin nothing after this (default: %(default)s)")
    parser.add_argument("--chart", type=Path, help="write the plot there (the docs' own: docs/images/timers.svg)")
    options = parser.parse_args(arguments)
    plan = Plan(sizes=tuple(options.sizes))
    console = Console(width=None if Console().is_terminal else 140)
    machine_line, started = machine(), time.monotonic()
    figures = run(plan, options.only, console, until=started + options.seconds)
    console.print(f"{machine_line}; took {time.monotonic() - started:.0f} s")
    if options.chart is not None:
        options.chart.write_text(drawn(figures, machine_line), encoding="utf-8")
    return 0


def run(plan: Plan, names: Sequence[str], console: Console, *, until: float) -> list[Figures]:
    figures: list[Figures] = []
    # Spawned, not forked: a process that has measured nothing yet.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        for size in plan.sizes:
            of_size: list[Figures] = []
            for name in names:
                if size > MOST.get(name, size):
                    continue
                if time.monotonic() > until:
                    console.print(f"left out, for want of time: {name} with {size:,} timers")
                    continue
                of_size.append(processes.apply(measured, (name, size, plan)))
            console.print(table(size, of_size))
            figures += of_size
    return figures


def table(size: int, figures: Sequence[Figures]) -> Table:
    made = Table(title=f"{size:,} timers", title_justify="left")
    made.add_column("")
    for column in (
        "start µs",
        "cancel µs",
        "fire µs",
        "bytes",
        "idle CPU %",
        "firing CPU %",
        "late p50",
        "p99",
        "max µs",
    ):
        made.add_column(column, justify="right")
    for f in figures:
        costs = (f.start_us, f.cancel_us, f.fire_us)
        shares = (f.idle_percent, f.busy_percent)
        late = (f.late_p50_us, f.late_p99_us, f.late_max_us)
        made.add_row(
            f.contender,
            *(f"{value:,.1f}" for value in costs),
            f"{f.bytes:,.0f}",
            *(f"{value:.1f}" for value in shares),
            *(f"{value:,.0f}" for value in late),
        )
    return made


def machine() -> str:
    where = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return f"{time.strftime('%Y-%m-%d')}, {where}, load {os.getloadavg()[0]:.1f} at the start"


if __name__ == "__main__":
    sys.exit(main())
