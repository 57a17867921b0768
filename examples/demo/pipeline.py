"""Third part of the demo: the data pipeline on the events of the first two, and its report."""

from __future__ import annotations

from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from examples.demo.roles import QUEUE
from tarry.app import App, default_lake
from tarry.core.errors import TarryError
from tarry.edges.cli.commands.pipeline_report import write_html
from tarry.edges.cli.pipeline.jobs import IN_ORDER, arguments, load
from tarry.edges.cli.pipeline.spark import jvm_log_in_file

if TYPE_CHECKING:
    from tarry.edges.spark.report.values import Report

PAGE = "demo-report.html"
# Many small queries on little data: compiling them costs more than it saves.
SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def show_pipeline(console: Console, app: App, since: datetime) -> bool:
    """Whether all jobs succeeded, or Spark is not installed."""
    console.print()
    if find_spec("pyspark") is None:
        console.print(
            "The data pipeline runs on Spark, which is not installed: pip install 'tarry\\[spark]'", style="dim"
        )
        return True
    try:
        done = _run(console, app)
    except TarryError as error:
        console.print(Text(f"The data pipeline did not run: {error}. {error.hint or ''}", style="yellow"))
        return True
    _show(console, app, since)
    return done


def _run(console: Console, app: App) -> bool:
    from tarry.edges.spark.session import session

    console.print("The data pipeline, on these events:", style="bold")
    with console.status("starting Spark …"), jvm_log_in_file() as log:
        spark = session(config=SMALL)
    failed = False
    try:
        for name in IN_ORDER:
            try:
                module: Any = load(name)
                with console.status(f"{name} …"):
                    summary = module.run(spark, app, arguments(module, _given(app, name)))
                console.print(Text(f"  {summary.line()}"))
            except Exception as error:
                failed = True
                console.print(Text(f"  {name}: {' '.join(str(error).split())[:300]} (Spark's log: {log})", style="red"))
    finally:
        spark.stop()
    return not failed


def _given(app: App, name: str) -> dict[str, Any]:
    """Detectors wait until a minute is over. The demo does not wait: its last minute counts as complete."""
    return {"until": app.store.run(app.store.queues.now()) + timedelta(minutes=1)} if name == "anomalies" else {}


def _show(console: Console, app: App, since: datetime) -> None:
    from tarry.edges.spark.report.gather import gathered
    from tarry.edges.spark.report.terminal import rendered

    # Metrics are per minute: include the minute in which the demo began.
    results: Report = gathered(
        app, queue=QUEUE, since=since.replace(second=0, microsecond=0), until=app.store.run(app.store.queues.now())
    )
    console.print()
    console.print(rendered(results, console.width))
    page = Path(default_lake()).with_name(PAGE)
    write_html(results, page)
    console.print()
    console.print(Text("The same with plots, in one file: ").append(str(page), style="bold"))
