"""Tables for people, JSON for everything else."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.contenders import ORIGINALS
from benchmarks.plan import Plan
from benchmarks.results import Results
from benchmarks.scenarios.measures import HELD
from benchmarks.server import Server
from benchmarks.targets import Status, Verdict, held_windows

_COLOURS = {Status.MET: "green", Status.MISSED: "red", Status.VOID: "yellow", Status.NOT_MEASURED: "yellow"}


def environment(server: Server, plan: Plan) -> dict[str, Any]:
    """Where and on what: without it the figures mean nothing."""
    return {
        "plan": asdict(plan),
        "commit": commit(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": list(os.getloadavg()),
        "own_server": server.own,
        "server": server.settings(),
    }


def print_environment(console: Console, facts: dict[str, Any], *, sees_server: bool) -> None:
    server = facts["server"]
    console.print(
        f"[bold]Tarry benchmarks[/], {facts['plan']['name']} run of {facts['commit']} on Python {facts['python']}, "
        f"{facts['cores']} cores, load {facts['load'][0]:.1f}",
        highlight=False,
    )
    console.print("PostgreSQL " + ", ".join(f"{name} {value}" for name, value in server.items()), highlight=False)
    if busy(facts):
        console.print("[yellow]The machine is busy: trust ratios, and CPU per message, before rates.[/]")
    if not sees_server:
        console.print("[yellow]The server's processes cannot be seen from here: no server CPU.[/]")


def busy(facts: dict[str, Any]) -> str:
    """Whether other programs kept the machine busy when the run began, in words."""
    return f"busy machine, load {facts['load'][0]:.1f}" if facts["load"][0] > 0.3 * (facts["cores"] or 1) else ""


def print_results(console: Console, results: Results) -> None:
    names = [*results.samples, *(name for name in results.skipped if name not in results.samples)]
    for measure in names:
        console.print(_table(measure, results))
        for name, reason in results.skipped.get(measure, {}).items():
            console.print(f"[yellow]{name} did not take part to the end: {reason}[/]", highlight=False)
    if HELD in results.samples:
        console.print(_held(results))
    if late := results.facts.get("lateness"):
        for when in ("idle", "under load"):
            console.print(_late(when, late[when]))
        for name, rate in late["statements_per_s"].items():
            console.print(f"{late['consumers']} idle consumers, {name}: {rate:.3f} statements/s", highlight=False)
    for name, share in results.facts.get("hot", {}).items():
        console.print(f"HOT updates of {name}: {share:.1f} %", highlight=False)
    for name, lost in results.facts.get("lost", {}).items():
        console.print(
            f"[yellow]{name} leased {lost:,} messages more than its polls requested, and returned them to no consumer.[/]",
            highlight=False,
        )


def _table(measure: str, results: Results) -> Table:
    table = Table(title=measure, title_justify="left", title_style="bold", min_width=110)
    table.add_column("contender", min_width=24)
    columns = ("messages/s", "× originals", "client µs", "backend µs", "background µs", "WAL B", "commits")
    for column in columns:
        table.add_column(column, justify="right")
    for name in results.samples.get(measure, {}):
        ratio = results.ratio((measure, name), (measure, ORIGINALS))
        table.add_row(
            name,
            _figure(results.median(measure, name, lambda s: s.rate), ",.0f"),
            _figure(ratio, ".2f"),
            _figure(results.median(measure, name, lambda s: s.client_us), ",.1f"),
            _figure(results.median(measure, name, lambda s: s.backend_us), ",.1f"),
            _figure(results.median(measure, name, lambda s: s.background_us), ",.1f"),
            _figure(results.median(measure, name, lambda s: s.wal_per_message), ",.0f"),
            _figure(results.median(measure, name, lambda s: s.commits_per_message), ".3f"),
        )
    return table


def _held(results: Results) -> Table:
    table = Table(title="Decay under a held snapshot", title_justify="left", title_style="bold", min_width=110)
    table.add_column("contender", min_width=24)
    for column in ("messages", "backend µs, start", "end", "end ÷ start", "dead rows", "autovacuums", "autoanalyzes"):
        table.add_column(column, justify="right")
    for name, facts in results.facts.get("held", {}).items():
        windows = held_windows(results, name)
        start, end = windows or (None, None)
        table.add_row(
            name,
            f"{sum(sample.n for sample in results.of(HELD, name)):,}",
            _figure(start, ".1f"),
            _figure(end, ".1f"),
            _figure(end / start if start and end else None, ".2f"),
            f"{facts['dead_rows']:,}",
            str(facts["autovacuums"]),
            str(facts["autoanalyzes"]),
        )
    return table


def _late(when: str, by_name: dict[str, dict[str, float]]) -> Table:
    title = f"Lateness, {when}: from due and committed to leased"
    table = Table(title=title, title_justify="left", title_style="bold", min_width=110)
    table.add_column("consumer", min_width=24)
    for column in ("messages", "p50 ms", "p99 ms", "max ms"):
        table.add_column(column, justify="right")
    for name, figures in by_name.items():
        table.add_row(
            name, f"{figures['n']:,}", *(_figure(figures.get(each), ",.1f") for each in ("p50", "p99", "max"))
        )
    return table


def print_targets(console: Console, checks: list[Verdict]) -> None:
    table = Table(
        title="Targets (ratios inside this run; journal on unless noted)", title_justify="left", title_style="bold"
    )
    for column in ("", "formula"):
        table.add_column(column)
    for column in ("target", "measured"):
        table.add_column(column, justify="right")
    table.add_column("")
    for check in checks:
        sign = "≥" if check.at_least else "≤"
        reason = check.unfit or (check.collapsed or check.note)
        status = f"[{_COLOURS[check.status]}]{check.status.value}[/]" + (f" ({reason})" if reason else "")
        if check.unfit and check.note:
            status += f" {check.note}"
        table.add_row(
            check.target, check.formula, f"{sign} {check.limit:g} {check.unit}", _measured(check), status
        )  # fmt: skip
    console.print(table)
    missed = sorted({check.target for check in checks if check.status is Status.MISSED})
    console.print(
        f"Missed: {', '.join(missed)}" if missed else "Nothing that was measured was missed.", highlight=False
    )


def write_json(path: Path, facts: dict[str, Any], results: Results, checks: list[Verdict]) -> None:
    document = {
        "environment": facts,
        "samples": {
            measure: {name: [asdict(sample) for sample in samples] for name, samples in by_name.items()}
            for measure, by_name in results.samples.items()
        },
        "skipped": results.skipped,
        "facts": results.facts,
        "targets": [check.to_dict() for check in checks],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def _measured(check: Verdict) -> str:
    return "–" if check.measured is None else f"{check.measured:,.{0 if check.measured >= 100 else 2}f} {check.unit}"


def _figure(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def commit() -> str:
    result = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=10"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stdout.strip() or "an unknown commit"
