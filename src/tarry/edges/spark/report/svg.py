"""Charts as inline SVG. A chart is a value, drawing is a function. Colours are CSS classes, for light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from html import escape

from tarry.edges.spark.report.words import instant, short_count, tick

WIDTH, HEIGHT = 560, 190
LEFT, RIGHT, TOP, BOTTOM = 48, 10, 12, 24
_INNER_W, _INNER_H = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
_TICKS = 6


class Mark(StrEnum):
    LINE = "line"
    AREA = "area"
    BARS = "bars"


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    style: str
    """The CSS class that colours it: s1, s2, …, bad."""
    values: Sequence[float | None]
    mark: Mark = Mark.LINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    title: str
    series: Sequence[Series]
    starts: Sequence[datetime]
    step: timedelta
    form: Callable[[float], str] = short_count
    limit: tuple[str, float] | None = None
    """A reference line: its label and its value."""

    @property
    def top(self) -> float:
        highest = max((value for one in self.series for value in one.values if value is not None), default=0.0)
        if self.limit is not None and self.limit[1] < 4 * highest:
            highest = max(highest, self.limit[1])
        return nice(highest)

    @property
    def whole(self) -> timedelta:
        return self.starts[-1] - self.starts[0] + self.step if self.starts else self.step


def nice(highest: float) -> float:
    """The next round number: 1, 2, 4, 5, 8 or 10 times a power of ten."""
    if not highest > 0 or not math.isfinite(highest):
        return 1.0
    size = 10.0 ** math.floor(math.log10(highest))
    return next(step * size for step in (1, 2, 4, 5, 8, 10) if step * size >= highest * 0.999999)


def drawn(chart: Chart, name: str) -> str:
    """The chart as SVG. `name` makes its ids unique on the page."""
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{escape(name)}-t {escape(name)}-d">',
        f'<title id="{escape(name)}-t">{escape(chart.title)}</title>',
        f'<desc id="{escape(name)}-d">{escape(described(chart))}</desc>',
        *_grid(chart),
        *_time_axis(chart),
    ]
    for mark in (Mark.AREA, Mark.BARS, Mark.LINE):
        parts += [_one(chart, series) for series in chart.series if series.mark is mark]
    parts += _level(chart)
    parts += _hovers(chart)
    return "".join([*parts, "</svg>"])


def described(chart: Chart) -> str:
    """A text description of the chart, for screen readers."""
    said = [f"{series.name}: highest {chart.form(max(known))}" for series in chart.series if (known := _known(series))]
    return "; ".join(said) or "nothing to show"


def _known(series: Series) -> list[float]:
    return [value for value in series.values if value is not None]


def _x(chart: Chart, place: float) -> float:
    return LEFT + _INNER_W * place / max(len(chart.starts), 1)


def _y(chart: Chart, value: float) -> float:
    return TOP + _INNER_H * (1 - min(value / chart.top, 1.0))


def _grid(chart: Chart) -> list[str]:
    lines: list[str] = []
    for n in range(5):
        value = chart.top * n / 4
        if chart.form is short_count and chart.top < 4 and value != int(value):
            continue
        y = _y(chart, value)
        kind, label = ("grid", escape(chart.form(value))) if n else ("base", "0")
        lines += [
            f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>',
            f'<text class="tick" x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{label}</text>',
        ]
    return lines


def _time_axis(chart: Chart) -> list[str]:
    every = max(1, math.ceil(len(chart.starts) / _TICKS))
    return [
        f'<text class="tick" x="{_x(chart, place + 0.5):.1f}" y="{HEIGHT - 7}" text-anchor="middle">'
        f"{escape(tick(start, chart.whole))}</text>"
        for place, start in enumerate(chart.starts)
        if place % every == every // 2
    ]


def _one(chart: Chart, series: Series) -> str:
    if series.mark is Mark.BARS:
        return _bars(chart, series)
    runs = _runs(chart, series)
    if series.mark is Mark.AREA:
        floor = _y(chart, 0)
        shapes = [
            f"M{run[0][0]:.1f},{floor:.1f}"
            + "".join(f"L{x:.1f},{y:.1f}" for x, y in run)
            + f"L{run[-1][0]:.1f},{floor:.1f}Z"
            for run in runs
        ]
        edge = _path(runs, series)
        shape = "".join(shapes)
        return f'<path class="area {series.style}" d="{shape}"/>{edge}'
    return _path(runs, series)


def _path(runs: list[list[tuple[float, float]]], series: Series) -> str:
    line = "".join("M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in run) for run in runs if len(run) > 1)
    dots = "".join(
        f'<circle class="dot {series.style}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
        for run in runs
        if len(run) == 1
        for x, y in run
    )
    return (f'<path class="line {series.style}" d="{line}"/>' if line else "") + dots


def _runs(chart: Chart, series: Series) -> list[list[tuple[float, float]]]:
    """Consecutive points without a gap: no line is drawn across missing values."""
    runs: list[list[tuple[float, float]]] = [[]]
    for place, value in enumerate(series.values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((_x(chart, place + 0.5), _y(chart, value)))
    return [run for run in runs if run]


def _bars(chart: Chart, series: Series) -> str:
    """The bars of one series; bars of several series are drawn side by side."""
    siblings = [other for other in chart.series if other.mark is Mark.BARS]
    slot = _INNER_W / max(len(chart.starts), 1)
    width = min(slot * 0.8 / len(siblings), 22.0)
    shift = (siblings.index(series) - len(siblings) / 2) * width
    floor = _y(chart, 0)
    shape = "".join(
        f"M{_x(chart, place + 0.5) + shift:.1f},{floor:.1f}V{_y(chart, value):.1f}h{max(width - 0.6, 0.8):.1f}V{floor:.1f}Z"
        for place, value in enumerate(series.values)
        if value
    )
    return f'<path class="bars {series.style}" d="{shape}"/>' if shape else ""


def _level(chart: Chart) -> list[str]:
    if chart.limit is None or chart.limit[1] > chart.top:
        return []
    name, value = chart.limit
    y = _y(chart, value)
    return [
        f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>',
        f'<text class="tick" x="{WIDTH - RIGHT - 4}" y="{y - 4:.1f}" text-anchor="end">{escape(name)}</text>',
    ]


def _hovers(chart: Chart) -> list[str]:
    """Tooltips by SVG titles, without a script."""
    slot = _INNER_W / max(len(chart.starts), 1)
    found: list[str] = []
    for place, start in enumerate(chart.starts):
        values = [
            f"{series.name}: {chart.form(value)}"
            for series in chart.series
            if (value := series.values[place]) is not None
        ]
        if values:
            said = escape("\n".join([f"{instant(start)} UTC", *values]))
            found.append(
                f'<rect class="hover" x="{_x(chart, place):.1f}" y="{TOP}" width="{slot:.1f}" height="{_INNER_H}">'
                f"<title>{said}</title></rect>"
            )
    return found
