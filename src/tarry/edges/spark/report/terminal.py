"""The report in a terminal: tables, and sparklines instead of charts."""

from collections.abc import Iterator, Sequence
from typing import Any

from tarry.core.analytics.anomalies import Severity
from tarry.edges.cli.output.printer import Cell, Printer, TableColumn, Value
from tarry.edges.formats import instant, plural
from tarry.edges.spark.report.values import AnomalyLine, ConsumerLine, QueueReport, Report
from tarry.edges.spark.report.words import count, seconds, span, sparkline

MOST_FINDINGS = 12
_WIDTH = 16
"""Width of a sparkline."""
_SEVERITY = {Severity.CRITICAL: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


def print_report(printer: Printer, report: Report) -> None:
    printer.lines([Cell(f"Pipeline report, {instant(report.since)} to {instant(report.until)}", "bold")])
    printer.lines([Cell(note, "dim") for note in report.notes])
    if report.queues:
        printer.lines([""])
        _queues(printer, report.queues)
    elif report.runs:  # otherwise unknown
        printer.lines([Cell("no queue had any traffic in this time", "dim")])
    for queue in report.queues:
        if queue.consumers:
            printer.lines(["", Cell(f"Consumers of {queue.queue}", "bold")])
            _consumers(printer, queue.consumers)
    findings = report.findings
    nothing = "No anomalies" if report.looked_for_anomalies else "Anomalies: the job has not run yet"
    printer.lines(["", Cell(plural(len(findings), "anomaly", "anomalies") if findings else nothing, "bold")])
    _findings(printer, findings)
    printer.lines(list(_forecasts(report.queues)))


def _red(n: int) -> Cell:
    return Cell(count(n), "red" if n else "")


def _columns(*titles: str, words: int = 1, spare: bool = False) -> list[TableColumn[Any]]:
    """Columns: the first `words` are text, the others numbers."""
    return [TableColumn(title, right=index >= words, spare=spare) for index, title in enumerate(titles)]


def _queues(printer: Printer, queues: Sequence[QueueReport]) -> None:
    columns = _columns("queue", "offered", "acked", "failed", "live", "dead", "lag p99")
    columns += _columns("p95", "p50", "processing p95", words=0, spare=True)
    columns += _columns(f"acked per {span(queues[0].step)}", "lag p99", words=2, spare=True)
    rows: list[list[Value]] = []
    for queue in queues:
        counts = [count(queue.total("offered")), count(queue.total("acked")), _red(queue.total("failed"))]
        lags = [seconds(getattr(queue.lag, point, None)) for point in ("p99", "p95", "p50")]
        processing = seconds(queue.processing and queue.processing.p95)
        acked = Cell(sparkline([bucket.acked for bucket in queue.buckets], _WIDTH), "green")
        lag = Cell(sparkline(queue.lags("p99"), _WIDTH), "blue")
        name = Cell(queue.queue, "bold")
        rows.append([name, *counts, count(queue.depth), _red(queue.dead), *lags, processing, acked, lag])
    printer.table(columns, rows)


def _consumers(printer: Printer, lines: Sequence[ConsumerLine]) -> None:
    rows: list[list[Value]] = []
    for line in lines:
        *cells, success, p95 = line.cells
        bad = line.success_rate is not None and line.success_rate < 0.9
        rows.append([*cells, Cell(success, "red" if bad else ""), p95])
    printer.table(_columns("consumer", "leased", "share", "acked", "failed", "expired", "success", "p95"), rows)


def _findings(printer: Printer, findings: Sequence[AnomalyLine]) -> None:
    rows: list[list[Value]] = []
    for finding in findings[:MOST_FINDINGS]:
        anomaly, times = finding
        severity = Cell(anomaly.severity.value, _SEVERITY[anomaly.severity])
        subject = [Cell(anomaly.detector, "bold"), anomaly.queue, instant(anomaly.window_from)]
        rows.append(
            [severity, *subject, f"×{times:,}" if times > 1 else "", anomaly.sentence, ", ".join(finding.facts)]
        )
    titles = ("severity", "detector", "queue", "at (UTC)", "times", "explanation", "facts")
    printer.table(_columns(*titles, words=len(titles)), rows)
    if len(findings) > MOST_FINDINGS:
        printer.lines([Cell(f"and {len(findings) - MOST_FINDINGS:,} more: tarry anomaly list", "dim")])


def _forecasts(queues: Sequence[QueueReport]) -> Iterator[Value]:
    with_forecast = [(queue.forecast, queue.planned) for queue in queues if queue.forecast is not None]
    if with_forecast:
        yield from ("", Cell("Forecast", "bold"))
    for forecast, planned in with_forecast:
        yield f"  {forecast.sentence}  {sparkline([bucket.planned for bucket in planned], 24)}"
