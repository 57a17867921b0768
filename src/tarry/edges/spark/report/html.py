"""The report as one HTML file: no script, no external resource, every chart with its table, all text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from tarry.core.pipeline import PastRun
from tarry.edges.spark.report.charts import charts_of
from tarry.edges.spark.report.gather import told
from tarry.edges.spark.report.style import CSS
from tarry.edges.spark.report.svg import Chart, drawn
from tarry.edges.spark.report.values import SEVERITIES, ConsumerLine, Finding, QueueReport, Report
from tarry.edges.spark.report.words import count, instant, seconds, share

MOST_FINDINGS = 200
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src 'none'; base-uri 'none'; form-action 'none'"


def page(report: Report, title: str = "Tarry pipeline report") -> str:
    queues = [_queue(queue, number) for number, queue in enumerate(report.queues)]
    body = [
        _header(report, title),
        _tiles(report),
        *(f'<p class="note">{escape(note)}</p>' for note in report.notes),
        _findings(report.findings),
        *(queues or ['<p class="note">No queue had any traffic in this time.</p>']),
        _runs(report.runs),
        "<footer>Times are UTC. Of several minutes, p50 is the typical one and p95 and p99 are those of the worst minute: "
        "percentiles cannot be merged.</footer>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head>\n<body><main>\n"
        + "\n".join(body)
        + "\n</main></body></html>\n"
    )


def _header(report: Report, title: str) -> str:
    fresh = f" · data of {instant(report.fresh_at)}" if report.fresh_at else ""
    covered = f"{instant(report.since)} – {instant(report.until)} UTC"
    return f"<header><h1>{escape(title)}</h1><p>{covered}{fresh}</p></header>"


def _tiles(report: Report) -> str:
    open_findings = [found for found in report.findings if not found.acknowledged]
    by_severity = ", ".join(
        f"{n} {severity}"
        for severity in SEVERITIES
        if (n := sum(found.severity == severity for found in open_findings))
    )
    failed = report.total("failed")
    tiles = [
        ("Queues", count(len(report.queues)), ""),
        ("Offered", count(report.total("offered")), ""),
        ("Acknowledged", count(report.total("acked")), ""),
        ("Failures", count(failed), "nacked, or lease expired"),
        ("Live now", count(sum(queue.depth for queue in report.queues)), ""),
        ("Dead letters", count(sum(queue.dead for queue in report.queues)), ""),
        ("Anomalies", count(len(open_findings)), by_severity),
    ]
    shown = "".join(
        f'<div class="tile"><dt>{escape(name)}</dt><dd>{escape(value)} <small>{escape(more)}</small></dd></div>'
        for name, value, more in tiles
    )
    return f'<dl class="tiles">{shown}</dl>'


def _findings(findings: Sequence[Finding]) -> str:
    if not findings:
        return '<h2>Anomalies</h2><p class="note">None in this time.</p>'
    items = "".join(_finding(found) for found in findings[:MOST_FINDINGS])
    more = len(findings) - MOST_FINDINGS
    rest = f'<p class="note">and {count(more)} more: tarry anomaly list</p>' if more > 0 else ""
    return f'<h2>Anomalies</h2><ul class="findings">{items}</ul>{rest}'


def _finding(found: Finding) -> str:
    kind = found.severity if found.severity in SEVERITIES else "info"
    said = [found.detector, instant(found.at)]
    said += [f"queue {found.queue}"] if found.queue else []
    said += [f"{count(found.times)} times"] if found.times > 1 else []
    said += ["acknowledged"] if found.acknowledged else []
    facts = [f"observed {found.observed}"] if found.observed else []
    facts += [f"expected {found.expected}"] if found.expected else []
    band = f'<p class="meta">{escape(" · ".join(facts))}</p>' if facts else ""
    evidence = (
        f"<details><summary>Evidence</summary><pre>{escape(found.evidence)}</pre></details>" if found.evidence else ""
    )
    return (
        f'<li class="card finding {kind}"><p class="meta"><span class="badge {kind}">{escape(found.severity)}</span> '
        f"{escape(' · '.join(said))}</p><p>{escape(found.sentence)}</p>{band}{evidence}</li>"
    )


def _queue(queue: QueueReport, number: int) -> str:
    figures = "".join(
        _figure(chart, rows, f"q{number}c{place}") for place, (chart, rows) in enumerate(charts_of(queue))
    )
    parts = [
        f"<section><h2>Queue {escape(queue.queue)}</h2>",
        _queue_line(queue),
        f'<div class="charts">{figures}</div>',
    ]
    if queue.forecast:
        parts.append(f'<p class="note gap"><b>Forecast.</b> {escape(queue.forecast.sentence)}</p>')
    if queue.consumers:
        parts.append(_consumers(queue.consumers))
    return "".join([*parts, "</section>"])


def _queue_line(queue: QueueReport) -> str:
    said = [f"<b>{count(queue.total('offered'))}</b> offered", f"<b>{count(queue.total('acked'))}</b> acknowledged"]
    if queue.lag:
        said.append(f"lag p50 <b>{seconds(queue.lag.p50)}</b>, p99 <b>{seconds(queue.lag.p99)}</b>")
    if queue.processing:
        said.append(
            f"processing p50 <b>{seconds(queue.processing.p50)}</b>, p99 <b>{seconds(queue.processing.p99)}</b>"
        )
    said += [f"<b>{count(queue.depth)}</b> live", f"<b>{count(queue.dead)}</b> dead"]
    return f'<p class="summary">{" · ".join(said)}</p>'


def _figure(chart: Chart, rows: Sequence[Sequence[str]], name: str) -> str:
    legend = "".join(f'<li><i class="{series.style}"></i>{escape(series.name)}</li>' for series in chart.series)
    return (
        f'<figure class="card"><figcaption><h3>{escape(chart.title)}</h3></figcaption><ul class="legend">{legend}</ul>'
        f"{drawn(chart, name)}<details><summary>As a table</summary>"
        f'<div class="scroll">{_table(rows)}</div></details></figure>'
    )


def _table(rows: Sequence[Sequence[str]], *, words: Iterable[int] = (0,)) -> str:
    """A table of plain text. `words` are the columns that are not numeric."""
    head, *body = rows
    left = set(words)

    def cells(row: Sequence[str], tag: str) -> str:
        kinds = ("" if place in left else ' class="n"' for place in range(len(row)))
        return "".join(f"<{tag}{kind}>{escape(text)}</{tag}>" for kind, text in zip(kinds, row, strict=True))

    lines = (
        "".join(f"<tr>{cells(row, 'td')}</tr>" for row in body) or f'<tr><td colspan="{len(head)}">nothing</td></tr>'
    )
    return f"<table><thead><tr>{cells(head, 'th')}</tr></thead><tbody>{lines}</tbody></table>"


def _consumers(consumers: Sequence[ConsumerLine]) -> str:
    lines = "".join(
        f'<tr><td>{escape(one.consumer)}</td><td class="n">{count(one.leased)}</td><td class="n">{share(one.share)}</td>'
        f'<td class="n">{count(one.acked)}</td><td class="n">{count(one.failed)}</td><td class="n">{count(one.expired)}</td>'
        f"<td>{_rate(one.success_rate)}</td>"
        f'<td class="n">{seconds(one.slowest_p95_s)}</td></tr>'
        for one in consumers
    )
    head = (
        '<th>Consumer</th><th class="n">Leased</th><th class="n">Share</th><th class="n">Acked</th><th class="n">Failed</th>'
        '<th class="n">Lease expired</th><th>Success</th><th class="n">Processing p95</th>'
    )
    return f'<div class="card gap scroll"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def _rate(rate: float | None) -> str:
    bar = "" if rate is None else f'<span class="rate"><b style="width:{rate:.0%}"></b></span>'
    return bar + share(rate)


def _runs(runs: Sequence[PastRun]) -> str:
    if not runs:
        return ""
    several = len({run.lake for run in runs if run.lake is not None}) > 1
    rows = [
        [
            f"{run.job}, {run.lake}" if several and run.lake is not None else run.job,
            run.state,
            instant(run.started_at),
            seconds(_took(run)),
            told(run),
        ]
        for run in runs
    ]
    table = _table([["Job", "State", "Started", "Took", "Said"], *rows], words=(0, 1, 2, 4))
    return f'<section><h2>Last runs</h2><div class="card runs">{table}</div></section>'


def _took(run: PastRun) -> float | None:
    return (run.ended_at - run.started_at).total_seconds() if run.ended_at else None
