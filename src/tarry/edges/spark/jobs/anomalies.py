# pyright: basic
"""Anomalies job: run the detectors of a registry over the archive and publish what they find to the lake and
PostgreSQL.

It judges the dates that the archive has changed since the last run, and always today: a queue that falls silent changes
nothing, and its silence must be detected. Expected values come from tallies in the lake, small histograms per date.
Judging a date again finds the same anomalies, which are raised only once; an anomaly that began earlier keeps its
identity.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from tarry.core.anomalies import Severity
from tarry.core.errors import InvalidInput
from tarry.core.pipeline import LakeFile, PastRun, readable_files
from tarry.edges.spark.derived import overwritten
from tarry.edges.spark.jobs.archive import JOB as ARCHIVE
from tarry.edges.spark.lake import Lake, read_files
from tarry.edges.spark.schemas import EVENTS
from tarry.edges.spark.sizing import Keep, Layout, local_frame, sized_for
from tarry.edges.spark.transforms import metrics, tracing
from tarry.edges.spark.transforms.anomalies import baselines, profiles
from tarry.edges.spark.transforms.anomalies.builtin import BUILT_IN
from tarry.edges.spark.transforms.anomalies.continuing import TOLD
from tarry.edges.spark.transforms.anomalies.registry import Registry, detected
from tarry.edges.spark.transforms.anomalies.seen import QUEUES, Seen
from tarry.edges.spark.transforms.instants import dated
from tarry.edges.spark.transforms.quantiles import EXACT_UP_TO

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tarry.app import App
    from tarry.core.anomalies import JudgedQueue, Told

JOB = "anomalies"
_TALLIES = "baselines"
_FOUND = "anomalies"
_MINUTES = 24 * 60
_JSON = {"timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


@dataclass(frozen=True, kw_only=True)
class AnomaliesArgs:
    lake: str | None = None
    """A directory, or a URI that Spark can read and write. None: beside the embedded data."""
    registry: Registry = BUILT_IN
    since: datetime | None = None
    """Judge everything again from the day of this instant. None: only new data."""
    until: datetime | None = None
    """Treat this instant as now. None: now. Silence counts only while the archive is complete: until its last run
    began.
    """

    def __post_init__(self) -> None:
        if any(at is not None and at.tzinfo is None for at in (self.since, self.until)):
            raise InvalidInput("`since` and `until` need a time zone")


@dataclass(frozen=True, kw_only=True)
class AnomaliesSummary:
    lake: str
    days: tuple[date, ...]
    """The dates that were judged."""
    found: int
    by_detector: Mapping[str, int]
    by_severity: Mapping[str, int]
    raised: int
    """Not known before this run."""
    changed: int
    muted: int
    withdrawn: int
    seconds: float

    def line(self) -> str:
        if not self.days:
            return f"anomalies: nothing is archived in {self.lake} yet"
        span = f"{self.days[0]}" if len(self.days) == 1 else f"{self.days[0]} to {self.days[-1]}"
        worst = ", ".join(f"{n} {name}" for name, n in self.by_severity.items() if n)
        told = f"{self.found} ({worst})" if self.found else "none"
        muted = f", {self.muted} muted" if self.muted else ""
        return f"anomalies: {told} on {span}, {self.raised} of them new{muted}, in {self.seconds:.1f} s"


def run(spark: SparkSession, app: App, args: AnomaliesArgs) -> AnomaliesSummary:
    started = time.monotonic()
    lake = Lake.at(args.lake)
    manifest, alerts = app.pipeline.manifest, app.pipeline.alerts
    with manifest.run(JOB, lake=lake.root) as noted:
        past = _past(manifest.last_run(JOB, lake.root))
        touched, batch = manifest.days_since(lake.root, past["batch"])
        until = (args.until or noted.started_at).astimezone(UTC)
        archived = manifest.last_run(ARCHIVE, lake.root)
        complete_until = args.until or (until if archived is None else archived.started_at)
        days = _days(touched, past["until"], args.since, until, has_archive=batch > 0)
        if not days:
            return _summary(lake, (), [], (0, 0, 0, 0), started)
        files = list(readable_files(manifest.batches(lake.root), since=_day_before(days)))
        queues = alerts.queues()
        with sized_for(spark, _size(files, len(queues), len(days))) as layout, layout.keeping() as kept:
            events = layout.read(read_files(spark, lake, [file.path for file in files]))
            first = min(day.day for day in manifest.days(lake.root))
            seen = _seen(kept, layout, lake, events, _frame(spark, queues), (first, *days), until, complete_until)
            told = alerts.told(detectors=args.registry.names, since=seen.since, reach=_midnight(_day_before(days)))
            seen = replace(seen, published=_by_detector(spark, told))
            found = kept(detected(seen, args.registry))
            rows = [row.json for row in found.select(F.to_json(F.struct("*"), _JSON).alias("json")).collect()]
            published = alerts.publish(
                rows,
                detectors=args.registry.names,
                since=seen.since,
                until=until,
                run_id=noted.id,
            )
            _write_found(spark, layout, found, lake, days)
            alerts.put_bands(_band_rows(seen, noted.id, noted.started_at))
        counts = (published.raised, published.changed, published.muted, published.withdrawn)
        summary = _summary(lake, days, [json.loads(row) for row in rows], counts, started)
        noted.summary = {**asdict(summary), "batch": batch, "until": until.isoformat()}
    return summary


def _past(last: PastRun | None) -> dict:
    """The batch and the instant that the last run reached."""
    said = {} if last is None else last.summary
    until = said.get("until")
    return {"batch": said.get("batch", 0), "until": datetime.fromisoformat(until) if until else None}


def _whole_minute(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(second=0, microsecond=0)


def _days(
    touched: set[date], past: datetime | None, since: datetime | None, until: datetime, *, has_archive: bool
) -> tuple[date, ...]:
    """The dates from the first changed one to the last, without gaps: a lease may end on any of them."""
    if not has_archive:
        return ()
    last = (until - timedelta(microseconds=1)).date()
    first = min([*touched, last] if past is None else [*touched, past.date(), last])
    if since is not None:
        first = min(first, since.astimezone(UTC).date())
    return tuple(first + timedelta(days=n) for n in range((max([*touched, last]) - first).days + 1))


def _day_before(days: tuple[date, ...]) -> date:
    """The day before the first judged date: an anomaly found on that date may have begun here."""
    return days[0] - timedelta(days=1)


def _size(files: Sequence[LakeFile], queues: int, days: int) -> int:
    """Events, plus the minutes of the series, which exist even when nothing happened."""
    return sum(file.rows for file in files) + queues * (days + 1) * _MINUTES * len(baselines.metrics())


def _frame(spark: SparkSession, queues: Sequence[JudgedQueue]) -> DataFrame:
    return local_frame(spark, [[asdict(queue)[name] for name in QUEUES.names] for queue in queues], QUEUES)


def _by_detector(spark: SparkSession, told: Sequence[Told]) -> dict[str, DataFrame]:
    return {
        name: local_frame(
            spark, [[asdict(one)[column] for column in TOLD.names] for one in told if one.detector == name], TOLD
        )
        for name in {one.detector for one in told}
    }


def _seen(
    kept: Keep,
    layout: Layout,
    lake: Lake,
    archived: DataFrame,
    queues: DataFrame,
    days: tuple[date, ...],
    until: datetime,
    complete_until: datetime,
) -> Seen:
    """`days`: the first day in the archive, followed by the days to judge."""
    first, *days_judged = days
    judged = (days_judged[0] - timedelta(days=1), *days_judged)
    since = _midnight(days_judged[0])
    events = kept(archived.select(*(name for name in EVENTS.names if name not in ("payload", "payload_hash"))))
    sequence = kept(tracing.sequenced(events))
    per_minute = metrics.measured(tracing.traced(sequence), None if layout.in_one_piece else EXACT_UP_TO)
    begin = max(_midnight(first), since - timedelta(days=1))
    queues = layout.read(queues)
    series = kept(baselines.series(per_minute, queues, begin, _whole_minute(complete_until)))
    _write_tallies(layout, profiles.tallied_events(events, sequence), series, lake, tuple(days_judged))
    tallies = events.sparkSession.read.schema(profiles.TALLIES).parquet(lake.uri(_TALLIES))
    recent = layout.read(tallies.where(F.col("date") >= F.lit(judged[0] - timedelta(days=profiles.DAYS))))
    kinds = events.select("kind").distinct().collect() if layout.in_one_piece else None
    return Seen(
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


def _write_tallies(layout: Layout, of_events: DataFrame, series: DataFrame, lake: Lake, days: tuple[date, ...]) -> None:
    """Write the tallies of each judged date as a whole; the last job to judge a date overwrites them."""
    told = of_events.unionByName(baselines.tallied_series(series))
    judged = told.where((F.col("date") >= F.lit(days[0])) & (F.col("date") <= F.lit(days[-1])))
    overwritten(layout.by(judged, "date"), lake, _TALLIES)


def _write_found(spark: SparkSession, layout: Layout, found: DataFrame, lake: Lake, days: tuple[date, ...]) -> None:
    """Replace what was found on these days. Partitioned by the start date, or the first judged day if that is later."""
    dates = found.withColumn("date", F.greatest(dated(F.col("window_from")), F.lit(days[0])))
    for day in days:
        lake.remove(spark, f"{_FOUND}/date={day.isoformat()}")
    overwritten(layout.by(dates, "date"), lake, _FOUND)


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _band_rows(seen: Seen, run_id: int, fresh_at: datetime) -> list[str]:
    """Expected bands of the last seven days, hour by hour: each hour of the week is published once a week."""
    metric = F.col("metric")
    at_scale = seen.bands.where((F.col("scale") == 1) & (F.col("date") > F.lit(seen.until.date() - timedelta(days=7))))
    width = F.col("sigma") * 3.5
    told = at_scale.join(F.broadcast(seen.queues.select("queue_id", "queue")), "queue_id").select(
        "queue_id",
        "queue",
        "metric",
        (F.weekday("date") * 24 + F.col("hour")).alias("hour_of_week"),
        baselines.unscaled(metric, F.least(F.col("median") - width, F.col("p01"))).alias("low"),
        baselines.unscaled(metric, F.col("median")).alias("middle"),
        baselines.unscaled(metric, F.greatest(F.col("median") + width, F.col("p99"))).alias("high"),
        F.col("n").alias("minutes"),
        "date",
    )
    latest = told.groupBy("queue_id", "metric", "hour_of_week").agg(
        *(F.max_by(name, "date").alias(name) for name in ("queue", "low", "middle", "high", "minutes"))
    )
    stamp = {"run_id": run_id, "fresh_at": fresh_at.isoformat()}
    return [json.dumps({**row.asDict(), **stamp}) for row in latest.collect()]


def _summary(
    lake: Lake, days: tuple[date, ...], rows: list[dict], counts: tuple[int, int, int, int], started: float
) -> AnomaliesSummary:
    detectors = sorted({row["detector"] for row in rows})
    raised, changed, muted, withdrawn = counts
    return AnomaliesSummary(
        lake=lake.root,
        days=days,
        found=len(rows),
        by_detector={name: sum(row["detector"] == name for row in rows) for name in detectors},
        by_severity={
            severity.value: sum(row["severity"] == severity.value for row in rows) for severity in reversed(Severity)
        },
        raised=raised,
        changed=changed,
        muted=muted,
        withdrawn=withdrawn,
        seconds=time.monotonic() - started,
    )
