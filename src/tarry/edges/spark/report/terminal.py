"""The report in a terminal: tables, and sparklines instead of charts."""

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tarry.core.analytics.anomalies import Severity
from tarry.edges.cli.output.text import plural, shown
from tarry.edges.formats import instant
from tarry.edges.spark.report.values import QueueReport, Report
from tarry.edges.spark.report.words import count, seconds, span, sparkline

MOST_FINDINGS = 12
WIDE = 138
"""Columns that the wide table of queues takes beside a name of 20 characters."""
NARROW_NAME = 20
_SEVERITY = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


def rendered(report: Report, width: int = 120) -> Group:
    """The report for a rich console. Text from messages is sanitized here and never interpreted as markup."""
    parts: list[RenderableType] = [
        Text(f"Pipeline report, {instant(report.since)} to {instant(report.until)}", style="bold")
    ]
    parts += [Text(shown(note), style="dim") for note in report.notes]
    if not report.queues:
        parts.append(Text("no queue had any traffic in this time", style="dim"))
    else:
        parts += [Text(), _queues(report.queues, width)]
    for queue in report.queues:
        if queue.consumers:
            parts += [Text(), Text(f"Consumers of {shown(queue.queue)}", style="bold"), _consumers(queue)]
    parts += [Text(), *_findings(report)]
    parts += list(_forecasts(report.queues))
    return Group(*parts)


def _table(*columns: str, words: int = 1) -> Table:
    """A table whose first `words` columns are text and the others numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, column in enumerate(columns):
        table.add_column(
            Text(column), justify="left" if index < words else "right", overflow="fold", no_wrap=index >= words
        )
    return table


def width_for(report: Report) -> int:
    """The width at which nothing is folded or omitted, for output that is not read on a terminal."""
    return WIDE + max([NARROW_NAME, *(len(queue.queue) for queue in report.queues)]) - NARROW_NAME


def _queues(queues: Sequence[QueueReport], width: int) -> Table:
    """The table of queues. A narrow terminal omits the middle lag percentiles and their sparklines, and folds names."""
    wide = width >= WIDE
    lags = ("lag p50", "p95", "p99", "processing p95") if wide else ("lag p50", "p99")
    table = _table("queue", "offered", "acked", "failed", "live", "dead", *lags)
    longest = max(len(queue.queue) for queue in queues)
    table.columns[0].min_width = min(longest, max(NARROW_NAME, NARROW_NAME + width - WIDE))
    table.add_column(Text(f"acked per {span(queues[0].step)}" if wide else "acked"), no_wrap=True)
    if wide:
        table.add_column(Text("lag p99"), no_wrap=True)
    for queue in queues:
        lag, failed = queue.lag, queue.total("failed")
        p50, p95, p99 = (lag.p50, lag.p95, lag.p99) if lag else (None, None, None)
        processing = queue.processing.p95 if queue.processing else None
        rest = [Text(sparkline([bucket.acked for bucket in queue.buckets], 24 if wide else 12), style="green")]
        if wide:
            rest.append(Text(sparkline([bucket.lag and bucket.lag.p99 for bucket in queue.buckets], 24), style="blue"))
        table.add_row(
            Text(shown(queue.queue), style="bold"),
            count(queue.total("offered")),
            count(queue.total("acked")),
            Text(count(failed), style="red" if failed else ""),
            count(queue.depth),
            Text(count(queue.dead), style="red" if queue.dead else ""),
            *map(seconds, (p50, p95, p99, processing) if wide else (p50, p99)),
            *rest,
        )
    return table


def _consumers(queue: QueueReport) -> Table:
    table = _table("consumer", "leased", "share", "acked", "failed", "expired", "success", "p95")
    for line in queue.consumers:
        consumer, *counts, success, p95 = line.cells
        bad = line.success_rate is not None and line.success_rate < 0.9
        table.add_row(Text(shown(consumer)), *counts, Text(success, style="red" if bad else ""), p95)
    return table


def _findings(report: Report) -> Iterator[RenderableType]:
    findings = report.findings
    nothing = "No anomalies" if report.looked_for_anomalies else "Anomalies: the job has not run yet"
    yield Text(plural(len(findings), "anomaly", "anomalies") if findings else nothing, style="bold")
    for finding in findings[:MOST_FINDINGS]:
        head = Text("  ")
        anomaly = finding.anomaly
        head.append(f"{anomaly.severity.value:<8}", style=_SEVERITY[anomaly.severity])
        head.append(f"  {shown(anomaly.detector)}", style="bold")
        times = f"  ×{finding.times:,}" if finding.times > 1 else ""
        head.append(f"  {shown(anomaly.queue)}  {instant(anomaly.window_from)}{times}", style="dim")
        yield head
        yield Padding(Text(shown(anomaly.sentence)), (0, 0, 0, 12))
        if finding.facts:
            yield Padding(Text(shown(", ".join(finding.facts)), style="dim"), (0, 0, 0, 12))
    if len(findings) > MOST_FINDINGS:
        yield Text(f"  and {len(findings) - MOST_FINDINGS:,} more: tarry anomaly list", style="dim")


def _forecasts(queues: Sequence[QueueReport]) -> Iterator[RenderableType]:
    with_forecast = [(queue.forecast, queue.planned) for queue in queues if queue.forecast is not None]
    if with_forecast:
        yield Text("\nForecast", style="bold")
    for forecast, planned in with_forecast:
        line = Text(f"  {shown(forecast.sentence)}")
        yield line.append(f"  {sparkline([bucket.planned for bucket in planned], 24)}" if planned else "", style="blue")
