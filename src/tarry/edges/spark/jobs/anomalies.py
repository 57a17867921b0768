# pyright: basic
"""Anomalies job: run the detectors of a registry over the archive and publish what they find to the lake and
PostgreSQL.

It judges the dates that the archive has changed since the last run, and always today: a queue that falls silent changes
nothing, and its silence must be detected. Expected values come from tallies in the lake, small histograms per date.
Judging a date again finds the same anomalies, which are raised only once; an anomaly that began earlier keeps its
identity.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

from tarry.app import App
from tarry.core.analytics.anomalies import ContinuableAnomaly, Published, Severity
from tarry.core.analytics.manifest import readable_files
from tarry.core.analytics.metrics import Table
from tarry.core.errors import InvalidInput
from tarry.edges.spark.jobs.archive import JOB as ARCHIVE
from tarry.edges.spark.lake.derived import Rows, json_rows, overwritten
from tarry.edges.spark.lake.lake import Lake, read_files
from tarry.edges.spark.schemas import EVENTS
from tarry.edges.spark.sizing import FrameLayout, Keep, local_frame, sized_for
from tarry.edges.spark.transforms import history as tracing
from tarry.edges.spark.transforms import metrics
from tarry.edges.spark.transforms.anomalies import baselines, profiles
from tarry.edges.spark.transforms.anomalies.builtin import BUILT_IN
from tarry.edges.spark.transforms.anomalies.context import CONTINUABLE, QUEUES, DetectorContext
from tarry.edges.spark.transforms.anomalies.registry import Registry, detected
from tarry.edges.spark.transforms.quantiles import EXACT_UP_TO
from tarry.edges.spark.transforms.query import dated

JOB = "anomalies"
_TALLIES = "baselines"
_ANOMALIES = "anomalies"


@dataclass(frozen=True, kw_only=True)
class AnomaliesArgs:
    lake: str | None = None
    """A directory, or a URI that Spark can read and write. None: beside the embedded data."""
    registry: Registry = BUILT_IN
    since: datetime | None = None
    """Judge everything again from the day of this instant. None: only new data."""
    until: datetime | None = None
    """Treat this instant as now. Silence counts only up to the start of the last archive run."""

    def __post_init__(self) -> None:
        if any(at is not None and at.tzinfo is None for at in (self.since, self.until)):
            raise InvalidInput("`since` and `until` need a time zone")


@dataclass(frozen=True, kw_only=True)
class AnomaliesSummary:
    lake: str
    days: tuple[date, ...]
    """The dates that were judged."""
    anomalies: int
    by_detector: Mapping[str, int]
    by_severity: Mapping[str, int]
    raised: int
    """Not known before this run."""
    changed: int
    muted: int
    withdrawn: int

    def line(self) -> str:
        if not self.days:
            return f"anomalies: nothing is archived in {self.lake} yet"
        span = f"{self.days[0]}" if len(self.days) == 1 else f"{self.days[0]} to {self.days[-1]}"
        worst = ", ".join(f"{n} {name}" for name, n in self.by_severity.items() if n)
        total = f"{self.anomalies} ({worst})" if self.anomalies else "none"
        muted = f", {self.muted} muted" if self.muted else ""
        return f"anomalies: {total} on {span}, {self.raised} of them new{muted}"


def run(spark: SparkSession, app: App, args: AnomaliesArgs) -> AnomaliesSummary:
    lake = Lake.at(args.lake)
    manifest, anomalies = app.pipeline.manifest, app.pipeline.anomalies
    with manifest.run(JOB, lake=lake.root) as noted:
        last = manifest.last_run(JOB, lake.root)
        past = {} if last is None else last.summary
        touched, batch = manifest.days_since(lake.root, past.get("batch", 0))
        until = (args.until or noted.started_at).astimezone(UTC)
        archived = manifest.last_run(ARCHIVE, lake.root)
        complete_until = args.until or (until if archived is None else archived.started_at)
        days = _days(touched, past.get("until"), args.since, until) if batch > 0 else ()
        if not days:
            return _summary(lake, (), [], Published(0, 0, 0, 0))
        # An anomaly found on the first judged date may have begun on the day before.
        day_before = days[0] - timedelta(days=1)
        files = list(readable_files(manifest.batches(lake.root), since=day_before))
        queues = anomalies.queues()
        # Events, plus the minutes of the series, which exist even when nothing happened.
        minutes = len(queues) * (len(days) + 1) * 24 * 60 * len(baselines.METRICS)
        with sized_for(spark, sum(file.rows for file in files) + minutes) as layout, layout.keeping() as kept:
            events = layout.read(read_files(spark, lake, [file.path for file in files]))
            first = min(day.day for day in manifest.days(lake.root))
            of_queues = local_frame(spark, queues, QUEUES)
            context = _context(kept, layout, lake, events, of_queues, (first, *days), until, complete_until)
            continuable = anomalies.continuable(
                detectors=args.registry.names, since=context.since, frames_from=_midnight(day_before)
            )
            context = replace(context, published=_by_detector(spark, continuable))
            findings = kept(detected(context, args.registry))
            rows = list(json_rows(findings, "*"))
            published = anomalies.publish(
                rows, detectors=args.registry.names, since=context.since, until=until, run_id=noted.id
            )
            _write_anomalies(spark, layout, findings, lake, days)
            bands = baselines.published_bands(context.bands, context.queues, until.date() - timedelta(days=7))
            app.pipeline.analytics.put(Table.BANDS, Rows(bands, bands.columns, noted))
        summary = _summary(lake, days, [json.loads(row) for row in rows], published)
        noted.summary = {**asdict(summary), "batch": batch, "until": until.isoformat()}
    return summary


def _days(touched: set[date], past: str | None, since: datetime | None, until: datetime) -> tuple[date, ...]:
    """The dates from the first changed one to the last, without gaps: a lease may end on any of them."""
    last = (until - timedelta(microseconds=1)).date()
    begun = [datetime.fromisoformat(past)] if past else []
    begun += [since.astimezone(UTC)] if since else []
    first = min([*touched, last, *(at.date() for at in begun)])
    return tuple(first + timedelta(days=n) for n in range((max([*touched, last]) - first).days + 1))


def _by_detector(spark: SparkSession, known: Sequence[ContinuableAnomaly]) -> dict[str, DataFrame]:
    rows: dict[str, list[ContinuableAnomaly]] = defaultdict(list)
    for anomaly in known:
        rows[anomaly.detector].append(anomaly)
    return {detector: local_frame(spark, of_detector, CONTINUABLE) for detector, of_detector in rows.items()}


def _context(
    kept: Keep,
    layout: FrameLayout,
    lake: Lake,
    archived: DataFrame,
    queues: DataFrame,
    days: tuple[date, ...],
    until: datetime,
    complete_until: datetime,
) -> DetectorContext:
    """`days`: the first day in the archive, followed by the days to judge."""
    first, *days_judged = days
    judged = (days_judged[0] - timedelta(days=1), *days_judged)
    since = _midnight(days_judged[0])
    events = kept(archived.select(*(name for name in EVENTS.names if name not in ("payload", "payload_hash"))))
    sequence = kept(tracing.sequenced(events))
    per_minute = metrics.measured(tracing.traced(sequence), None if layout.in_one_piece else EXACT_UP_TO)
    begin = max(_midnight(first), since - timedelta(days=1))
    queues = layout.read(queues)
    end = complete_until.astimezone(UTC).replace(second=0, microsecond=0)
    series = kept(baselines.series(per_minute, queues, begin, end))
    # The tallies of each judged date as a whole; the last job to judge a date overwrites them.
    tallied = profiles.tallied_events(events, sequence).unionByName(baselines.tallied_series(series))
    of_days = tallied.where(f"date between '{days_judged[0]}' and '{days_judged[-1]}'")
    overwritten(layout.by(of_days, "date"), lake, _TALLIES)
    tallies = events.sparkSession.read.schema(profiles.TALLIES).parquet(lake.uri(_TALLIES))
    recent = layout.read(tallies.where(f"date >= '{judged[0] - timedelta(days=profiles.DAYS)}'"))
    kinds = events.select("kind").distinct().collect() if layout.in_one_piece else None
    return DetectorContext(
        events=events,
        sequence=sequence,
        metrics=per_minute,
        series=series,
        queues=queues,
        profiles=kept(profiles.profiles(recent, judged)),
        bands=kept(baselines.bands(recent, judged)),
        since=since,
        until=until,
        complete_until=complete_until,
        kinds=None if kinds is None else frozenset(row.kind for row in kinds),
    )


def _write_anomalies(
    spark: SparkSession, layout: FrameLayout, findings: DataFrame, lake: Lake, days: tuple[date, ...]
) -> None:
    """Replace what was found on these days. Partitioned by the start date, or the first judged day if that is later."""
    dates = findings.selectExpr("*", f"greatest({dated('window_from')}, date '{days[0]}') as date")
    for day in days:
        lake.remove(spark, f"{_ANOMALIES}/date={day.isoformat()}")
    overwritten(layout.by(dates, "date"), lake, _ANOMALIES)


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _summary(lake: Lake, days: tuple[date, ...], rows: list[dict], published: Published) -> AnomaliesSummary:
    detectors = sorted({row["detector"] for row in rows})
    return AnomaliesSummary(
        lake=lake.root,
        days=days,
        anomalies=len(rows),
        by_detector={name: sum(row["detector"] == name for row in rows) for name in detectors},
        by_severity={
            severity.value: sum(row["severity"] == severity.value for row in rows) for severity in reversed(Severity)
        },
        **asdict(published),
    )
