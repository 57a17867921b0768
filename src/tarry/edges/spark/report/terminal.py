"""The report in a terminal: tables, and sparklines instead of charts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tarry.edges.cli.text import plural, shown
from tarry.edges.spark.report.values import Finding, QueueReport, Report
from tarry.edges.spark.report.words import count, instant, seconds, share, span, sparkline

MOST_FINDINGS = 12
WIDE = 118
_SEVERITY = {"critical": "bold red", "warning": "yellow", "info": "cyan"}


def rendered(report: Report, width: int = 120) -> Group:
    """The report for a rich console. Text from messages is sanitized here and never interpreted as markup."""
    parts: list[RenderableType] = [
        Text(f"Pipeline report, {instant(report.since)} – {instant(report.until)} UTC", style="bold")
    ]
    parts += [Text(shown(note), style="dim") for note in report.notes]
    if not report.queues:
        parts.append(Text("no queue had any traffic in this time", style="dim"))
    else:
        parts += [Text(), _queues(report.queues, wide=width >= WIDE)]
    for queue in report.queues:
        if queue.consumers:
            parts += [Text(), Text(f"Consumers of {shown(queue.queue)}", style="bold"), _consumers(queue)]
    parts += [Text(), *_findings(report.findings)]
    parts += list(_forecasts(report.queues))
    return Group(*parts)


def _table(*columns: str, words: int = 1) -> Table:
    """A table whose first `words` columns are text and the others numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for place, column in enumerate(columns):
        table.add_column(
            Text(column), justify="left" if place < words else "right", overflow="fold", no_wrap=place >= words
        )
    return table


def _queues(queues: Sequence[QueueReport], *, wide: bool) -> Table:
    """The table of queues. A narrow terminal omits the middle lag percentiles and their sparklines."""
    lags = ("lag p50", "p95", "p99", "processing p95") if wide else ("lag p50", "p99")
    table = _table("queue", "offered", "acked", "failed", "live", "dead", *lags)
    table.columns[0].min_width = min(20, max(len(queue.queue) for queue in queues))
    table.add_column(Text(f"acked per {span(queues[0].step)}" if wide else "acked"), no_wrap=True)
    if wide:
        table.add_column(Text("lag p99"), no_wrap=True)
    for queue in queues:
        lag, failed = queue.lag, queue.total("failed")
        told = (lag.p50, lag.p95, lag.p99) if lag else (None, None, None)
        rest: list[str | Text] = [seconds(value) for value in (told if wide else (told[0], told[2]))]
        if wide:
            rest.append(seconds(queue.processing.p95 if queue.processing else None))
        rest.append(Text(sparkline([bucket.acked for bucket in queue.buckets], 24 if wide else 12), style="green"))
        if wide:
            rest.append(Text(sparkline([bucket.lag and bucket.lag.p99 for bucket in queue.buckets], 24), style="blue"))
        table.add_row(
            Text(shown(queue.queue), style="bold"),
            count(queue.total("offered")),
            count(queue.total("acked")),
            Text(count(failed), style="red" if failed else ""),
            count(queue.depth),
            Text(count(queue.dead), style="red" if queue.dead else ""),
            *rest,
        )
    return table


def _consumers(queue: QueueReport) -> Table:
    table = _table("consumer", "leased", "share", "acked", "failed", "expired", "success", "p95")
    for one in queue.consumers:
        bad = one.success_rate is not None and one.success_rate < 0.9
        table.add_row(
            Text(shown(one.consumer)),
            count(one.leased),
            share(one.share),
            count(one.acked),
            count(one.failed),
            count(one.expired),
            Text(share(one.success_rate), style="red" if bad else ""),
            seconds(one.slowest_p95_s),
        )
    return table


def _findings(findings: Sequence[Finding]) -> Iterator[RenderableType]:
    yield Text(plural(len(findings), "anomaly", "anomalies") if findings else "No anomalies", style="bold")
    for found in findings[:MOST_FINDINGS]:
        head = Text("  ")
        head.append(f"{shown(found.severity):<8}", style=_SEVERITY.get(found.severity, ""))
        head.append(f"  {shown(found.detector)}", style="bold")
        queue = f"  {shown(found.queue)}" if found.queue else ""
        times = f"  ×{found.times:,}" if found.times > 1 else ""
        head.append(f"{queue}  {instant(found.at)}{times}", style="dim")
        yield head
        yield Padding(Text(shown(found.sentence)), (0, 0, 0, 12))
        facts = [f"observed {found.observed}"] if found.observed else []
        facts += [f"expected {found.expected}"] if found.expected else []
        if facts:
            yield Padding(Text(shown(", ".join(facts)), style="dim"), (0, 0, 0, 12))
    if len(findings) > MOST_FINDINGS:
        yield Text(f"  and {len(findings) - MOST_FINDINGS:,} more: tarry anomaly list", style="dim")


def _forecasts(queues: Sequence[QueueReport]) -> Iterator[RenderableType]:
    told = [queue for queue in queues if queue.forecast is not None]
    if told:
        yield Text()
        yield Text("Forecast", style="bold")
    for queue in told:
        assert queue.forecast is not None  # noqa: S101
        blocks = sparkline([bucket.planned for bucket in queue.planned], 24) if queue.planned else ""
        yield Text(f"  {shown(queue.forecast.sentence)}").append(f"  {blocks}" if blocks else "", style="blue")
