"""The plot in the docs: drawn by hand, so that it needs no library, loads nothing, and can be read on light and on dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

from benchmarks.timers.measuring import Figures

# Colours of Okabe and Ito, in the order of the legend: distinguishable for most readers, on white and on black.
COLOURS = ("#d55e00", "#0072b2", "#56b4e9", "#009e73", "#cc79a7", "#e69f00", "#8c8c8c")
WIDTH, PANEL_W, PANEL_H, TOP, LEFT, GAP = 940, 240, 220, 60, 60, 62
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 14px; font-weight: 600 }
  .quiet { fill: #57606a }
  .grid { stroke: #d0d7de; stroke-width: 1 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .quiet { fill: #9198a1 } .grid { stroke: #3d444d }
  }
"""


def _time(us: float) -> str:
    if us >= 1e6:
        return f"{us / 1e6:g} s"
    return f"{us / 1e3:g} ms" if us >= 1e3 else f"{us:g} µs"


PANELS: tuple[tuple[str, Callable[[Figures], float], tuple[int, int], Callable[[float], str]], ...] = (
    ("lateness, median", lambda f: f.late_p50_us, (1, 5), _time),
    ("CPU to start one", lambda f: f.start_us, (-1, 3), _time),
    ("CPU to cancel one", lambda f: f.cancel_us, (-1, 6), _time),
)


def drawn(figures: Sequence[Figures], subtitle: str) -> str:
    names = list(dict.fromkeys(f.contender for f in figures))
    colours = dict(zip(names, COLOURS, strict=False))
    sizes = sorted({f.timers for f in figures})
    parts = [f'<text class="title" x="{LEFT}" y="24">What a timer costs, by how many wait</text>']
    parts.append(f'<text class="quiet" x="{LEFT}" y="42">{escape(subtitle)}</text>')
    for number, (title, value, decades, shown) in enumerate(PANELS):
        left = LEFT + number * (PANEL_W + GAP)
        parts += _frame(left, title, decades, shown, sizes)
        for name in names:
            points = [(f.timers, value(f)) for f in figures if f.contender == name]
            parts += _line([(_x(left, n, sizes), _y(v, decades)) for n, v in points], colours[name])
    parts += _legend(names, colours)
    height = TOP + PANEL_H + 90
    body = "\n".join(f"  {part}" for part in parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="Lateness and cost of timers for {len(names)} ways to keep them">\n'
        f"  <style>{STYLE}  </style>\n{body}\n</svg>\n"
    )


def _frame(
    left: float, title: str, decades: tuple[int, int], shown: Callable[[float], str], sizes: Sequence[int]
) -> list[str]:
    parts = [f'<text class="title" x="{left}" y="{TOP + 14}">{escape(title)}</text>']
    for decade in range(decades[0], decades[1] + 1):
        y = _y(10.0**decade, decades)
        parts.append(f'<line class="grid" x1="{left}" x2="{left + PANEL_W}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="quiet" x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(shown(10.0**decade))}</text>'
        )
    for size in sizes:
        x, y = _x(left, size, sizes), TOP + PANEL_H + 22
        parts.append(f'<text class="quiet" x="{x:.1f}" y="{y}" text-anchor="middle">{size:,}</text>')
    return parts


def _line(points: Sequence[tuple[float, float]], colour: str) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'] if len(points) > 1 else []
    return parts + [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]


def _legend(names: Sequence[str], colours: Mapping[str, str]) -> list[str]:
    parts: list[str] = []
    x, y = float(LEFT), TOP + PANEL_H + 58
    for name in names:
        parts.append(f'<circle cx="{x:.1f}" cy="{y - 4}" r="5" fill="{colours[name]}"/>')
        parts.append(f'<text x="{x + 10:.1f}" y="{y}">{escape(name)}</text>')
        x += 36 + 6.6 * len(name)
    return parts


def _x(left: float, size: int, sizes: Sequence[int]) -> float:
    return left + PANEL_W * (sizes.index(size) + 0.5) / len(sizes)


def _y(value: float, decades: tuple[int, int]) -> float:
    low, high = decades
    share = (math.log10(max(value, 10.0**low)) - low) / (high - low)
    return TOP + PANEL_H - (PANEL_H - 30) * min(share, 1.0)
