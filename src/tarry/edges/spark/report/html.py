"""The report as one HTML file, with the dashboard's templates and charts.

It loads nothing, only the two chart scripts may run, and every chart has a table.
"""

from base64 import b64encode
from importlib.resources import files

from tarry.core.analytics.anomalies import Severity
from tarry.edges.dashboard.assets import assets
from tarry.edges.dashboard.rendering import environment
from tarry.edges.spark.report.gather import summary_line
from tarry.edges.spark.report.values import Report
from tarry.edges.spark.report.words import seconds, span

MOST_FINDINGS = 200


def page(report: Report, title: str = "Tarry pipeline report") -> str:
    static = assets()
    uplot, chart = static["vendor/uPlot.iife.min.js"], static["chart.js"]
    text = files("tarry.edges.spark.report").joinpath("report.html").read_text("utf-8")
    template = environment().from_string(text)
    return template.render(
        report=report,
        title=title,
        most_findings=MOST_FINDINGS,
        severities=[severity.value for severity in reversed(Severity)],
        seconds=seconds,
        span=span,
        summary_line=summary_line,
        styles=[static[name].content.decode() for name in ("tokens.css", "dashboard.css")],
        uplot=uplot.content.decode(),
        chart=chart.content.decode(),
        trusted=f"'{uplot.integrity}' '{chart.integrity}'",
        chart_css=f"data:text/css;base64,{b64encode(static['vendor/uPlot.min.css'].content).decode()}",
    )
