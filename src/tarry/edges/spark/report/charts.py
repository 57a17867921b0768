"""The charts of a queue, and the same numbers as tables."""

from __future__ import annotations

from collections.abc import Sequence

from tarry.edges.spark.report.svg import Chart, Mark, Series
from tarry.edges.spark.report.values import Bucket, QueueReport
from tarry.edges.spark.report.words import count, instant, seconds, span

Row = list[str]
MOST_BARS = 30
"""With more bars than this, the chart uses lines."""


def charts_of(queue: QueueReport) -> list[tuple[Chart, list[Row]]]:
    """Each chart with the rows of its table; the first row is the header."""
    found = [flow(queue), lag(queue), failures(queue), depth(queue)]
    if queue.planned and any(bucket.planned or bucket.backlog for bucket in queue.planned):
        found.append(planned(queue))
    return found


def flow(queue: QueueReport) -> tuple[Chart, list[Row]]:
    mark = Mark.BARS if len(queue.buckets) <= MOST_BARS else Mark.LINE
    shown = [None if mark is Mark.LINE and bucket.partial else bucket for bucket in queue.buckets]
    return _past(
        queue,
        f"Offered and acknowledged, per {span(queue.step)}",
        [
            Series("offered", "s1", [bucket and bucket.offered for bucket in shown], mark),
            Series("acknowledged", "s2", [bucket and bucket.acked for bucket in shown], mark),
        ],
    )


def lag(queue: QueueReport) -> tuple[Chart, list[Row]]:
    lags = [bucket.lag for bucket in queue.buckets]
    series = [
        Series("p50", "r1", [one and one.p50 for one in lags]),
        Series("p95", "r2", [one and one.p95 for one in lags]),
        Series("p99", "r3", [one and one.p99 for one in lags]),
    ]
    chart = Chart(
        title="Delivery lag: from due to leased",
        series=series,
        starts=[bucket.start for bucket in queue.buckets],
        step=queue.step,
        form=seconds,
    )
    return chart, _table(queue.buckets, series, chart)


def failures(queue: QueueReport) -> tuple[Chart, list[Row]]:
    return _past(
        queue,
        f"Failures, per {span(queue.step)}",
        [
            Series("nacked", "s3", [bucket.nacked for bucket in queue.buckets], Mark.BARS),
            Series("lease expired", "s4", [bucket.expired for bucket in queue.buckets], Mark.BARS),
            Series("buried", "bad", [bucket.buried for bucket in queue.buckets], Mark.BARS),
        ],
    )


def depth(queue: QueueReport) -> tuple[Chart, list[Row]]:
    return _past(queue, "Live messages", [Series("depth", "s1", [bucket.depth for bucket in queue.buckets], Mark.AREA)])


def planned(queue: QueueReport) -> tuple[Chart, list[Row]]:
    series = [
        Series("planned", "s1", [bucket.planned for bucket in queue.planned], Mark.BARS),
        Series("expected backlog", "s3", [bucket.backlog for bucket in queue.planned]),
    ]
    capacity = queue.forecast.capacity if queue.forecast else None
    minutes = queue.planned_step.total_seconds() / 60
    chart = Chart(
        title=f"Planned load of the next days, per {span(queue.planned_step)}",
        series=series,
        starts=[bucket.start for bucket in queue.planned],
        step=queue.planned_step,
        limit=None if capacity is None else ("recent capacity", capacity * minutes),
    )
    titles = ["from (UTC)", "planned", "of these retries", "expected backlog"]
    rows = [
        [instant(bucket.start), count(bucket.planned), count(bucket.retries), count(bucket.backlog)]
        for bucket in queue.planned
        if bucket.planned or bucket.backlog
    ]
    return chart, [titles, *rows]


def _past(queue: QueueReport, title: str, series: Sequence[Series]) -> tuple[Chart, list[Row]]:
    starts = [bucket.start for bucket in queue.buckets]
    chart = Chart(title=title, series=series, starts=starts, step=queue.step)
    return chart, _table(queue.buckets, series, chart)


def _table(buckets: Sequence[Bucket], series: Sequence[Series], chart: Chart) -> list[Row]:
    form = seconds if chart.form is seconds else count
    rows = [
        [instant(bucket.start), *("–" if value is None else form(value) for value in values)]
        for bucket, *values in zip(buckets, *(one.values for one in series), strict=True)
        if any(value for value in values)
    ]
    return [["from (UTC)", *(one.name for one in series)], *rows]
