"""Formats of numbers, durations and instants in reports, and sparklines for the terminal."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise

_BLOCKS = "▁▂▃▄▅▆▇█"


def count(n: float) -> str:
    return f"{n:,.0f}"


def seconds(value: float | None) -> str:
    """Two or three digits, in the unit that fits: 3.2 ms, 1.50 s, 12 min, 3.4 h."""
    if value is None:
        return "–"
    limits = ((1.0, 1e-3, "ms"), (120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172_800.0, 3600.0, "h"))
    size, unit = next(((size, unit) for limit, size, unit in limits if abs(value) < limit), (86_400.0, "d"))
    number = value / size
    return f"{number:.0f} {unit}" if abs(number) >= 100 else f"{number:.3g} {unit}"


def share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}".replace(".0%", "%")


def span(step: timedelta) -> str:
    minutes = int(step.total_seconds() // 60)
    size, unit = next(
        (size, unit) for size, unit in ((1440, "day"), (60, "hour"), (1, "minute")) if minutes % size == 0
    )
    return unit if minutes == size else f"{minutes // size} {unit}s"


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
    scale = (len(_BLOCKS) - 1.001) / top if top > 0 else 0.0
    return "".join(
        " " if value is None else _BLOCKS[1 + int(value * scale)] if value > 0 else _BLOCKS[0] for value in merged
    )
