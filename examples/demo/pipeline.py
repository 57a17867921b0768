"""The data pipeline of the demo, as a process of its own: rounds of all jobs, and a report after the last one."""

from __future__ import annotations

import select
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

import tarry
from tarry.core.errors import TarryError
from tarry.edges.cli.commands.pipeline_report import write_html
from tarry.edges.cli.output.printer import Output, Printer
from tarry.edges.cli.pipeline.jobs import IN_ORDER, arguments, load
from tarry.edges.cli.pipeline.spark import jvm_log
from tarry.edges.env import worker_parent_from

PAUSE_S = 5.0
# Many small queries on little data: compiling them costs more than it saves.
SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def main(since: str, page: str) -> int:
    """Run rounds until the demo closes its pipe, then the last one, and print the report. 1 if a job of it failed."""
    console, parent = Console(), worker_parent_from()
    try:
        from tarry.edges.spark.session import session

        with tarry.connect() as app:
            with jvm_log.recording():
                spark = session(config=SMALL)
            lines, failed, is_last, pause_s = list[str](), False, False, 0.0
            try:
                while not is_last:
                    is_last = _is_closed(parent, pause_s)  # before the round, which then has all events
                    lines, failed = _round(spark, app)
                    pause_s = PAUSE_S
            finally:
                spark.stop()
            console.print(
                "\n[bold]The data pipeline, on all events:[/]", *(Text(f"  {line}") for line in lines), sep="\n"
            )
            _show(console, app, datetime.fromisoformat(since), Path(page))
            return int(failed)
    except TarryError as error:
        console.print(Text(f"The data pipeline did not run: {error}. {error.hint or ''}", style="yellow"))
        return 0


def _is_closed(parent: int | None, wait_s: float) -> bool:
    return parent is None or bool(select.select([parent], [], [], wait_s)[0])


def _round(spark: Any, app: tarry.App) -> tuple[list[str], bool]:
    lines, failed = list[str](), False
    for name in IN_ORDER:
        module: Any = load(name)
        # Detectors wait until a minute is over. The demo does not wait: its last minute counts as complete.
        until = app.store.run(app.store.queues.now()) + timedelta(minutes=1)
        try:
            summary = module.run(spark, app, arguments(module, {"until": until} if name == "anomalies" else {}))
            lines.append(summary.line())
        except Exception as error:
            failed = True
            lines.append(f"{name}: {' '.join(str(error).split())[:300]} (Spark's log: {jvm_log.copy()})")
    return lines, failed


def _show(console: Console, app: tarry.App, since: datetime, page: Path) -> None:
    from tarry.edges.spark.report.gather import gathered
    from tarry.edges.spark.report.terminal import print_report

    # Metrics are per minute: include the minute in which the demo began.
    now = app.store.run(app.store.queues.now())
    results = gathered(app, queue=None, since=since.replace(second=0, microsecond=0), until=now)
    console.print()
    print_report(Printer(Output.TABLE), results)
    page.parent.mkdir(parents=True, exist_ok=True)
    write_html(results, page)
    console.print(Text("\nThe same with plots, in one file: ").append(str(page), style="bold"))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
