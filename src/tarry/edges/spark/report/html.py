"""The report as one HTML file: no script, no external resource, every chart with its table, all text escaped."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape
from importlib.resources import files
from string import Template

from tarry.core.analytics.manifest import PastRun
from tarry.edges.spark.report.charts import Chart, charts_of, drawn
from tarry.edges.spark.report.gather import summary_line
from tarry.edges.spark.report.values import SEVERITIES, AnomalyLine, ConsumerLine, QueueReport, Report
from tarry.edges.spark.report.words import count, instant, seconds, share

MOST_FINDINGS = 200


class _Html(str):
    """Text that is already HTML; `_table` escapes all other text."""

    __slots__ = ()


def page(report: Report, title: str = "Tarry pipeline report") -> str:
    queues = "".join(_queue(queue, number) for number, queue in enumerate(report.queues))
    package = files("tarry.edges.spark.report")
    return Template(package.joinpath("report.html").read_text("utf-8")).substitute(
        title=escape(title),
        style=package.joinpath("report.css").read_text("utf-8"),
        since=instant(report.since),
        until=instant(report.until),
        fresh=f" · data of {instant(report.fresh_at)}" if report.fresh_at else "",
        tiles=_tiles(report),
        notes="".join(_note(note) for note in report.notes),
        findings=_findings(report.findings),
        queues=queues or _note("No queue had any traffic in this time."),
        runs=_runs(report.runs),
    )


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def _tiles(report: Report) -> str:
    severities = [finding.severity for finding in report.findings if not finding.acknowledged]
    by_severity = ", ".join(f"{n} {severity}" for severity in SEVERITIES if (n := severities.count(severity)))
    tiles = [
        ("Queues", len(report.queues), ""),
        ("Offered", report.total("offered"), ""),
        ("Acknowledged", report.total("acked"), ""),
        ("Failures", report.total("failed"), "nacked, or lease expired"),
        ("Live now", sum(queue.depth for queue in report.queues), ""),
        ("Dead letters", sum(queue.dead for queue in report.queues), ""),
        ("Anomalies", len(severities), by_severity),
    ]
    return "".join(
        f'<div class="tile"><dt>{name}</dt><dd>{count(value)} <small>{more}</small></dd></div>'
        for name, value, more in tiles
    )


def _findings(findings: Sequence[AnomalyLine]) -> str:
    if not findings:
        return _note("None in this time.")
    items = "".join(_finding(finding) for finding in findings[:MOST_FINDINGS])
    more = len(findings) - MOST_FINDINGS
    rest = _note(f"and {count(more)} more: tarry anomaly list") if more > 0 else ""
    return f'<ul class="findings">{items}</ul>{rest}'


def _finding(finding: AnomalyLine) -> str:
    kind = finding.severity if finding.severity in SEVERITIES else "info"
    parts = [
        finding.detector,
        instant(finding.at),
        f"queue {finding.queue}" if finding.queue else "",
        f"{count(finding.times)} times" if finding.times > 1 else "",
        "acknowledged" if finding.acknowledged else "",
    ]
    band = f'<p class="meta">{escape(" · ".join(finding.facts))}</p>' if finding.facts else ""
    evidence = f"<pre>{escape(finding.evidence)}</pre>" if finding.evidence else ""
    details = f"<details><summary>Evidence</summary>{evidence}</details>" if evidence else ""
    return (
        f'<li class="card finding {kind}"><p class="meta"><span class="badge {kind}">{escape(finding.severity)}</span> '
        f"{escape(' · '.join(filter(None, parts)))}</p><p>{escape(finding.sentence)}</p>{band}{details}</li>"
    )


def _queue(queue: QueueReport, number: int) -> str:
    figures = "".join(_figure(chart, f"q{number}c{index}") for index, chart in enumerate(charts_of(queue)))
    forecast = f'<p class="note gap"><b>Forecast.</b> {escape(queue.forecast.sentence)}</p>' if queue.forecast else ""
    return (
        f"<section><h2>Queue {escape(queue.queue)}</h2>{_queue_line(queue)}"
        f'<div class="charts">{figures}</div>{forecast}{_consumers(queue.consumers)}</section>'
    )


def _queue_line(queue: QueueReport) -> str:
    parts = [f"<b>{count(queue.total('offered'))}</b> offered", f"<b>{count(queue.total('acked'))}</b> acknowledged"]
    for name, points in (("lag", queue.lag), ("processing", queue.processing)):
        if points:
            parts.append(f"{name} p50 <b>{seconds(points.p50)}</b>, p99 <b>{seconds(points.p99)}</b>")
    parts += [f"<b>{count(queue.depth)}</b> live", f"<b>{count(queue.dead)}</b> dead"]
    return f'<p class="summary">{" · ".join(parts)}</p>'


def _figure(chart: Chart, name: str) -> str:
    legend = "".join(f'<li><i class="{series.style}"></i>{escape(series.name)}</li>' for series in chart.drawn_series)
    return (
        f'<figure class="card"><figcaption><h3>{escape(chart.title)}</h3></figcaption><ul class="legend">{legend}</ul>'
        f"{drawn(chart, name)}<details><summary>As a table</summary>"
        f'<div class="scroll">{_table(chart.table())}</div></details></figure>'
    )


def _table(rows: Sequence[Sequence[str]], *, words: Collection[int] = (0,)) -> str:
    """A table. `words` are the columns that are not numeric."""
    head, *body = rows

    def line(row: Sequence[str], tag: str) -> str:
        starts = (tag if column in words else f'{tag} class="n"' for column in range(len(row)))
        texts = (text if isinstance(text, _Html) else escape(text) for text in row)
        cells = (f"<{start}>{text}</{tag}>" for start, text in zip(starts, texts, strict=True))
        return f"<tr>{''.join(cells)}</tr>"

    lines = "".join(line(row, "td") for row in body) or f'<tr><td colspan="{len(head)}">nothing</td></tr>'
    return f"<table><thead>{line(head, 'th')}</thead><tbody>{lines}</tbody></table>"


def _consumers(consumers: Sequence[ConsumerLine]) -> str:
    if not consumers:
        return ""
    titles = ["Consumer", "Leased", "Share", "Acked", "Failed", "Lease expired", "Success", "Processing p95"]
    rows = [[*line.cells[:6], _rate(line.success_rate), line.cells[7]] for line in consumers]
    return f'<div class="card gap scroll">{_table([titles, *rows], words=(0, 6))}</div>'


def _rate(rate: float | None) -> _Html:
    bar = "" if rate is None else f'<span class="rate"><b style="width:{rate:.0%}"></b></span>'
    return _Html(bar + share(rate))


def _runs(runs: Sequence[PastRun]) -> str:
    if not runs:
        return ""
    several = len({run.lake for run in runs if run.lake is not None}) > 1
    rows = [
        [
            f"{run.job}, {run.lake}" if several and run.lake is not None else run.job,
            run.state,
            instant(run.started_at),
            seconds((run.ended_at - run.started_at).total_seconds() if run.ended_at else None),
            summary_line(run),
        ]
        for run in runs
    ]
    table = _table([["Job", "State", "Started", "Took", "Result"], *rows], words=(0, 1, 2, 4))
    return f'<section><h2>Last runs</h2><div class="card runs">{table}</div></section>'
