"""Geometry of the inline drawings: the macros of `templates/charts.html` only print it. Time series are drawn by uPlot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from markupsafe import Markup

SHADES = 6
"""Steps of the one hue of a heat map; 0 is nothing."""


class Spark(NamedTuple):
    line: str
    area: str
    width: int
    height: int
    last: tuple[float, float] | None


def spark(values: Sequence[float], width: int = 96, height: int = 24) -> Spark:
    """A line through all values from left to right; zero is the bottom."""
    top = max(values, default=0) or 1
    step = (width - 2) / max(1, len(values) - 1)
    points = [
        (round(1 + at * step, 1), round(height - 2 - value / top * (height - 4), 1)) for at, value in enumerate(values)
    ]
    line = " ".join(f"{x},{y}" for x, y in points)
    base = height - 1
    area = f"1,{base} {line} {points[-1][0]},{base}" if points else ""
    return Spark(line, area, width, height, points[-1] if points else None)


class Segment(NamedTuple):
    name: str
    count: Any
    x: float
    width: float


def segments(counts: Mapping[str, Any], width: float = 100.0) -> list[Segment]:
    """Parts of a bar, in proportion, each wide enough to be seen."""
    numbers = {name: float(getattr(count, "n", count)) for name, count in counts.items()}
    seen = {name: number for name, number in numbers.items() if number > 0}
    least = width * 0.03
    free, total = width - least * len(seen), sum(seen.values())
    x, parts = 0.0, list[Segment]()
    for name, number in seen.items():
        wide = least + free * number / total
        parts.append(Segment(name, counts[name], round(x, 2), round(wide, 2)))
        x += wide
    return parts


def data_rows(starts: Sequence[datetime], series: Sequence[tuple[str, str, Sequence[float | None]]]) -> Markup:
    """The body of the table that a time series is drawn from. A page has thousands of its cells, and a template took most of
    the time of a page."""
    pattern = "%d %H:%M" if (starts[-1] - starts[0]).days else "%H:%M:%S"
    columns = [["" if value is None else f"{value:.4g}" for value in values] for _, _, values in series]
    rows = zip((f"{start:{pattern}}" for start in starts), *columns, strict=True)
    return Markup("".join(f'<tr><th scope="row">{"<td>".join(row)}' for row in rows))  # noqa: S704 - numbers


def shade(value: float, most: float) -> int:
    """The step of a heat map for a value: by its square root, so that few are seen beside many."""
    if value <= 0 or most <= 0:
        return 0
    return min(SHADES - 1, max(1, math.ceil(math.sqrt(value / most) * (SHADES - 1))))


class HeatCell(NamedTuple):
    column: int
    row: int
    shade: int
    title: str
    href: str | None = None


def cells(values: Mapping[tuple[int, int], float], titles: Mapping[tuple[int, int], str]) -> list[HeatCell]:
    """The cells of a heat map that are not empty, by column and row."""
    most = max(values.values(), default=0.0)
    return [
        HeatCell(column, row, shade(value, most), titles[column, row])
        for (column, row), value in sorted(values.items())
        if value
    ]
