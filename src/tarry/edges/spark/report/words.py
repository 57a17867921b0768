"""Formats of numbers, durations and instants in reports, and sparklines for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

_BLOCKS = "▁▂▃▄▅▆▇█"
_SCALES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def count(n: float) -> str:
    return f"{n:,.0f}"


def short_count(n: float) -> str:
    """A number on an axis: 12k rather than 12,000."""
    for size, letter in _SCALES:
        if abs(n) >= size:
            return f"{n / size:.3g}{letter}"
    return f"{n:.3g}"


def seconds(value: float | None) -> str:
    """Two or three digits, in the unit that fits: 3.2 ms, 1.50 s, 12 min, 3.4 h."""
    if value is None:
        return "–"
    for limit, size, unit in ((1.0, 1e-3, "ms"), (120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172_800.0, 3600.0, "h")):
        if abs(value) < limit:
            return f"{_digits(value / size)} {unit}"
    return f"{_digits(value / 86_400)} d"


def _digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}".replace(".0%", "%")


def span(step: timedelta) -> str:
    minutes = int(step.total_seconds() // 60)
    if minutes % 1440 == 0:
        return "day" if minutes == 1440 else f"{minutes // 1440} days"
    if minutes % 60 == 0:
        return "hour" if minutes == 60 else f"{minutes // 60} hours"
    return "minute" if minutes == 1 else f"{minutes} minutes"


def instant(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def tick(at: datetime, whole: timedelta) -> str:
    """A label on an axis that covers `whole`."""
    at = at.astimezone(UTC)
    if whole <= timedelta(hours=30):
        return at.strftime("%H:%M")
    return at.strftime("%d %b") if whole > timedelta(days=5) else at.strftime("%d %b %H:%M")


def sparkline(values: Sequence[float | None], width: int = 32) -> str:
    """A sparkline of at most `width` blocks, each the maximum of its span; a space where no value is known."""
    if not values:
        return ""
    pieces = min(width, len(values))
    cuts = [round(n * len(values) / pieces) for n in range(pieces + 1)]
    merged = [
        max((value for value in values[start:end] if value is not None), default=None) for start, end in pairwise(cuts)
    ]
    top = max((value for value in merged if value is not None), default=0)
    return "".join(" " if value is None else _block(value, top) for value in merged)


def _block(value: float, top: float) -> str:
    if top <= 0 or value <= 0:
        return _BLOCKS[0]
    return _BLOCKS[min(1 + int(value / top * (len(_BLOCKS) - 1.001)), len(_BLOCKS) - 1)]
