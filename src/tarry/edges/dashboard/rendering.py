"""Templates, and how values are written in them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tarry.core.dead_letters.fingerprints import headline
from tarry.core.messages.model import Counted
from tarry.edges.dashboard import charts
from tarry.edges.dashboard.assets import assets
from tarry.edges.dashboard.commands import message_path, path
from tarry.edges.formats import instant, length, relative, roughly

_JOINT = re.compile(r"(?<=\w[._])(?=\w)")
_SHORT = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))


def environment() -> Environment:
    made: Any = Environment(
        loader=PackageLoader("tarry.edges.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters: dict[str, Callable[..., Any]] = {
        "duration": duration, "exact": length, "instant": instant, "number": number, "short": short, "rate": rate,
        "percent": percent, "plural": plural, "size": size, "headline": headline, "breakable": breakable,
    }  # fmt: skip
    made.filters.update(filters)
    made.globals.update(
        asset=asset_link, integrity=_integrity, when=when, path=path, message_path=message_path,
        spark=charts.spark, segments=charts.segments, shade=charts.shade, heat_cells=charts.cells,
        data_rows=charts.data_rows,
    )  # fmt: skip
    return made


def _integrity(file: str) -> str:
    return assets()[file].integrity


def asset_link(file: str) -> str:
    """The address of a static file below the dashboard's prefix."""
    return f"/static/{file}?v={assets()[file].version}"


def breakable(text: str) -> Markup:
    """A text that a narrow column may break after the dots and underscores of a name."""
    return Markup("<wbr>").join(_JOINT.split(text))


def when(at: datetime | None, now: datetime) -> Markup:
    """An instant: how far away it is, with the time itself on hover; scripts keep it current and change its zone."""
    if at is None:
        return Markup("–")
    exact = at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    title = f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}" title="{}" data-when>{}</time>').format(exact, title, relative(at, now))


def duration(value: timedelta | float | None) -> str:
    """Seconds or a duration, in its two leading units."""
    if value is None:
        return "–"
    return roughly(value if isinstance(value, timedelta) else timedelta(seconds=value))


def number(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, Counted):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def short(value: float | Counted | None) -> str:
    """A count in few characters: 12.4k."""
    if value is None:
        return "–"
    if isinstance(value, Counted):
        return f"{short(value.n)}{'+' if value.capped else ''}"
    for size, unit in _SHORT:
        if abs(value) >= size * 10 or (abs(value) >= size and unit != "k"):
            return f"{value / size:.3g}{unit}"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.2g}"


def size(count: int | None) -> str:
    """Bytes in binary units: 41 MiB."""
    if count is None:
        return "–"
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"


def rate(per_second: float | None) -> str:
    if per_second is None:
        return "–"
    if per_second == 0:
        return "0/s"
    if per_second < 1:
        return f"{per_second * 60:.3g}/min"
    return f"{short(round(per_second, 1))}/s"


def percent(share: float | None) -> str:
    if share is None:
        return "–"
    return f"{share * 100:.0f} %" if share == 0 or share >= 0.1 else f"{share * 100:.2g} %"


def plural(count: int | Counted, noun: str, many: str | None = None) -> str:
    n = count.n if isinstance(count, Counted) else count
    return f"{number(count)} {noun if n == 1 and str(count) == '1' else many or f'{noun}s'}"
