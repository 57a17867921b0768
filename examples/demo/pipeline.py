"""The last part of `tarry demo`: the data pipeline over what just happened, its report, and an anomaly explained."""

from __future__ import annotations

from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from tarry.app import App, default_lake
from tarry.core.errors import TarryError
from tarry.edges.cli.demo_roles import QUEUE
from tarry.edges.cli.pipeline_jobs import IN_ORDER, arguments, load
from tarry.edges.cli.pipeline_report import write_html
from tarry.edges.cli.pipeline_spark import noise_in_a_file

if TYPE_CHECKING:
    from tarry.edges.spark.report.values import Report

PAGE = "demo-report.html"
# A second of data in many small queries: compiling them costs more than it saves.
SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def show_pipeline(console: Console, app: App, since: datetime) -> bool:
    """Whether all went well; also if there is no Spark here, which is said in one sentence."""
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
    _tell(console, app, since)
    return done


def _run(console: Console, app: App) -> bool:
    from tarry.edges.spark.session import session

    console.print("The data pipeline, on what just happened:", style="bold")
    with console.status("starting Spark …"), noise_in_a_file() as log:
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
    """Detectors wait until a minute is over. The demo does not: its last minute is judged as if it were."""
    return {"until": app.store.now() + timedelta(minutes=1)} if name == "anomalies" else {}


def _tell(console: Console, app: App, since: datetime) -> None:
    from tarry.edges.spark.report.gather import gathered
    from tarry.edges.spark.report.terminal import rendered

    # Metrics are by the minute: the one in which the demo began counts.
    found: Report = gathered(app, queue=QUEUE, since=since.replace(second=0, microsecond=0), until=app.store.now())
    console.print()
    console.print(rendered(found, console.width))
    page = Path(default_lake()).with_name(PAGE)
    write_html(found, page)
    console.print()
    console.print(Text("The same with plots, in one file: ").append(str(page), style="bold"))
