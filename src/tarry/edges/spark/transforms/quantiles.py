# pyright: basic
"""Percentiles: exact for small groups, approximate and marked as such for large ones."""

from collections.abc import Sequence

EXACT_UP_TO = 100_000
"""Events per group. `percentile` keeps every distinct value of a group in memory; below this it is a few megabytes."""
ACCURACY = 10_000
"""Above the limit: `percentile_approx`, whose rank error is at most one in this many: p99 lies within p98.99–p99.01."""
POINTS = (0.5, 0.95, 0.99)
NAMES = ("p50", "p95", "p99")


def marked(events: str, group: Sequence[str], exact_up_to: int | None = EXACT_UP_TO) -> str:
    """The rows of a query with `exact`: whether the group of the row is small enough. None: all groups are known to be.

    Large groups are few, so they are broadcast.
    """
    if exact_up_to is None:
        return f"select *, true as exact from ({events})"  # noqa: S608
    columns = ", ".join(group)
    large = f"select {columns}, count(*) as n from ({events}) group by {columns} having count(*) > {exact_up_to}"  # noqa: S608
    return (
        f"select /*+ broadcast(large) */ event.*, large.n is null as exact from ({events}) event "  # noqa: S608
        f"left join ({large}) large using ({columns})"
    )


def quantiles(micros: str) -> str:
    """An aggregate: p50, p95 and p99 in seconds, interpolated like `percentile_cont` in SQL."""
    points = f"array{POINTS}"
    exactly = f"percentile(if(exact, {micros}, null), {points})"
    roughly = f"percentile_approx(if(exact, null, {micros}), {points}, {ACCURACY})"
    return f"transform(coalesce({exactly}, cast({roughly} as array<double>)), us -> round(us) / 1000000D)"
