"""The charts of a queue, as inline SVG and as tables. A chart is a value; its colours are CSS classes, for light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape
from itertools import groupby
from typing import Literal

from tarry.edges.spark.report.values import QueueReport
from tarry.edges.spark.report.words import count, instant, seconds, short_count, span, tick

MOST_BARS = 30
"""With more bars than this, the chart uses lines."""
WIDTH, HEIGHT = 560, 190
LEFT, RIGHT, TOP, BOTTOM = 48, 10, 12, 24
_INNER_W, _INNER_H = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
_TICKS = 6


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    style: str
    """The CSS class that colours it: s1, s2, …, bad."""
    values: Sequence[float | None]
    mark: Literal["area", "bars", "line", "table"] = "line"
    """`table`: only in the table of the chart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    title: str
    series: Sequence[Series]
    starts: Sequence[datetime]
    step: timedelta
    durations: bool = False
    """The values are seconds, not counts."""
    limit: tuple[str, float] | None = None
    """A reference line: its label and its value."""

    @property
    def drawn_series(self) -> list[Series]:
        return [series for series in self.series if series.mark != "table"]

    def label(self, value: float) -> str:
        return seconds(value) if self.durations else short_count(value)

    def table(self) -> list[list[str]]:
        """The same numbers as rows of text; the first row is the header. Spans without values are left out."""
        form = seconds if self.durations else count
        rows = [
            [instant(start), *("–" if value is None else form(value) for value in values)]
            for start, *values in zip(self.starts, *(series.values for series in self.series), strict=True)
            if any(values)
        ]
        return [["from (UTC)", *(series.name for series in self.series)], *rows]


def charts_of(queue: QueueReport) -> list[Chart]:
    past = queue.buckets
    flow: Literal["bars", "line"] = "bars" if len(past) <= MOST_BARS else "line"
    # A line that ends in an incomplete span would look like a decline.
    whole = [None if flow == "line" and bucket.partial else bucket for bucket in past]
    lags = [bucket.lag for bucket in past]
    per = f"per {span(queue.step)}"
    contents = {
        f"Offered and acknowledged, {per}": [
            Series("offered", "s1", [bucket and bucket.offered for bucket in whole], flow),
            Series("acknowledged", "s2", [bucket and bucket.acked for bucket in whole], flow),
        ],
        "Delivery lag: from due to leased": [
            Series("p50", "r1", [lag and lag.p50 for lag in lags]),
            Series("p95", "r2", [lag and lag.p95 for lag in lags]),
            Series("p99", "r3", [lag and lag.p99 for lag in lags]),
        ],
        f"Failures, {per}": [
            Series("nacked", "s3", [bucket.nacked for bucket in past], "bars"),
            Series("lease expired", "s4", [bucket.expired for bucket in past], "bars"),
            Series("buried", "bad", [bucket.buried for bucket in past], "bars"),
        ],
        "Live messages": [Series("depth", "s1", [bucket.depth for bucket in past], "area")],
    }
    starts = [bucket.start for bucket in past]
    charts = [
        Chart(title=title, series=series, starts=starts, step=queue.step, durations=title.startswith("Delivery lag"))
        for title, series in contents.items()
    ]
    return [*charts, _planned(queue)] if any(bucket.planned or bucket.backlog for bucket in queue.planned) else charts


def _planned(queue: QueueReport) -> Chart:
    capacity = queue.forecast.capacity if queue.forecast else None
    minutes = queue.planned_step.total_seconds() / 60
    return Chart(
        title=f"Planned load of the next days, per {span(queue.planned_step)}",
        series=[
            Series("planned", "s1", [bucket.planned for bucket in queue.planned], "bars"),
            Series("of these retries", "", [bucket.retries for bucket in queue.planned], "table"),
            Series("expected backlog", "s3", [bucket.backlog for bucket in queue.planned]),
        ],
        starts=[bucket.start for bucket in queue.planned],
        step=queue.planned_step,
        limit=None if capacity is None else ("recent capacity", capacity * minutes),
    )


def nice(highest: float) -> float:
    """The next round number: 1, 2, 4, 5, 8 or 10 times a power of ten."""
    if not highest > 0 or not math.isfinite(highest):
        return 1.0
    size = 10.0 ** math.floor(math.log10(highest))
    return next(step * size for step in (1, 2, 4, 5, 8, 10) if step * size >= highest * 0.999999)


def drawn(chart: Chart, name: str) -> str:
    """The chart as SVG. `name` makes its ids unique on the page."""
    canvas = _Canvas(chart)
    in_order = sorted(chart.drawn_series, key=lambda series: series.mark)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escape(chart.title)}</title><desc id="{name}-d">{escape(_description(chart))}</desc>'
        f"{canvas.grid()}{canvas.time_axis()}{''.join(map(canvas.series, in_order))}{canvas.limit()}{canvas.tooltips()}"
        "</svg>"
    )


def _description(chart: Chart) -> str:
    """A text description of the chart, for screen readers."""
    known = {series.name: [value for value in series.values if value is not None] for series in chart.drawn_series}
    highest = (f"{name}: highest {chart.label(max(values))}" for name, values in known.items() if values)
    return "; ".join(highest) or "nothing to show"


class _Canvas:
    """The coordinates of a chart, and its parts as SVG."""

    def __init__(self, chart: Chart) -> None:
        self._chart = chart
        self._slot = _INNER_W / max(len(chart.starts), 1)
        highest = max((value for series in chart.drawn_series for value in series.values if value), default=0.0)
        if chart.limit is not None and chart.limit[1] < 4 * highest:
            highest = max(highest, chart.limit[1])
        self._top = nice(highest)

    def _x(self, index: float) -> float:
        return LEFT + self._slot * index

    def _y(self, value: float) -> float:
        return TOP + _INNER_H * (1 - min(value / self._top, 1.0))

    def _rule(self, value: float, style: str) -> str:
        y = self._y(value)
        return f'<line class="{style}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'

    def grid(self) -> str:
        values = [self._top * n / 4 for n in range(5)]
        if not self._chart.durations and self._top < 4:
            values = [value for value in values if value == int(value)]
        return "".join(
            self._rule(value, "grid" if value else "base")
            + _text(LEFT - 6, self._y(value) + 3.5, "end", self._chart.label(value) if value else "0")
            for value in values
        )

    def time_axis(self) -> str:
        starts = self._chart.starts
        every = max(1, math.ceil(len(starts) / _TICKS))
        whole = starts[-1] - starts[0] + self._chart.step if starts else self._chart.step
        return "".join(
            _text(self._x(index + 0.5), HEIGHT - 7, "middle", tick(start, whole))
            for index, start in enumerate(starts)
            if index % every == every // 2
        )

    def series(self, series: Series) -> str:
        if series.mark == "bars":
            return self._bars(series)
        runs = self._runs(series)
        line = "".join("M" + _points(run) for run in runs if len(run) > 1)
        marks = [f'<path class="line {series.style}" d="{line}"/>'] if line else []
        marks += [
            f'<circle class="dot {series.style}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
            for ((x, y), *others) in runs
            if not others
        ]
        if series.mark == "area":
            floor = self._y(0)
            area = "".join(f"M{_points([(run[0][0], floor), *run, (run[-1][0], floor)])}Z" for run in runs)
            marks.insert(0, f'<path class="area {series.style}" d="{area}"/>')
        return "".join(marks)

    def _runs(self, series: Series) -> list[list[tuple[float, float]]]:
        """Consecutive points without a gap: no line is drawn across missing values."""
        pieces = groupby(enumerate(series.values), key=lambda point: point[1] is None)
        return [
            [(self._x(index + 0.5), self._y(value)) for index, value in piece if value is not None]
            for is_gap, piece in pieces
            if not is_gap
        ]

    def _bars(self, series: Series) -> str:
        """The bars of one series; bars of several series are drawn side by side."""
        siblings = [other for other in self._chart.series if other.mark == "bars"]
        width = min(self._slot * 0.8 / len(siblings), 22.0)
        shift = (siblings.index(series) - len(siblings) / 2) * width
        floor = self._y(0)
        shape = "".join(
            f"M{self._x(index + 0.5) + shift:.1f},{floor:.1f}V{self._y(value):.1f}h{max(width - 0.6, 0.8):.1f}V{floor:.1f}Z"
            for index, value in enumerate(series.values)
            if value
        )
        return f'<path class="bars {series.style}" d="{shape}"/>' if shape else ""

    def limit(self) -> str:
        if self._chart.limit is None or self._chart.limit[1] > self._top:
            return ""
        name, value = self._chart.limit
        return self._rule(value, "limit") + _text(WIDTH - RIGHT - 4, self._y(value) - 4, "end", name)

    def tooltips(self) -> str:
        """Tooltips by SVG titles, without a script."""
        columns: list[str] = []
        for index, start in enumerate(self._chart.starts):
            known = [(series.name, series.values[index]) for series in self._chart.drawn_series]
            lines = [f"{name}: {self._chart.label(value)}" for name, value in known if value is not None]
            if lines:
                columns.append(
                    f'<rect class="hover" x="{self._x(index):.1f}" y="{TOP}" width="{self._slot:.1f}" height="{_INNER_H}">'
                    f"<title>{escape(chr(10).join([f'{instant(start)} UTC', *lines]))}</title></rect>"
                )
        return "".join(columns)


def _text(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text class="tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _points(points: Sequence[tuple[float, float]]) -> str:
    return "L".join(f"{x:.1f},{y:.1f}" for x, y in points)
