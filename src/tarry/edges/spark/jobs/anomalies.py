# pyright: basic
"""Anomalies job: run the detectors of a registry over new data and publish their findings to the lake and PostgreSQL.

Events are judged once, with the history added by the rounds. Minutes are judged from the hour of the first new event or of
the last run, whichever is earlier: a queue that falls silent causes no events, and its silence must be detected. The usual
values of a date are computed once, from tallies of the four weeks before: small histograms per date, computed after the date
has passed. An anomaly that is found again keeps its identity.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tarry.app import App
from tarry.core.analytics.anomalies import ContinuableAnomaly, Published, Severity
from tarry.core.analytics.calendar import Calendar
from tarry.core.analytics.manifest import Run
from tarry.core.analytics.metrics import Table
from tarry.core.analytics.rounds import Round
from tarry.core.durations import floored
from tarry.core.errors import InvalidInput
from tarry.edges.spark.jobs.archive import JOB as ARCHIVE
from tarry.edges.spark.lake import rounds
from tarry.edges.spark.lake.derived import json_rows, rows_of_run
from tarry.edges.spark.lake.lake import Lake, own_lake
from tarry.edges.spark.lake.tables import LakeTable, TableFile
from tarry.edges.spark.schemas import EVENTS
from tarry.edges.spark.session import own_session
from tarry.edges.spark.sizing import FrameLayout, Keep, local_frame, sized_for
from tarry.edges.spark.transforms import consumers, facts, metrics
from tarry.edges.spark.transforms import history as tracing
from tarry.edges.spark.transforms.anomalies import baselines, profiles
from tarry.edges.spark.transforms.anomalies.builtin import BUILT_IN
from tarry.edges.spark.transforms.anomalies.context import BANDS, CONTINUABLE, PROFILES, QUEUES, RAISED, DetectorContext
from tarry.edges.spark.transforms.anomalies.findings import FINDINGS
from tarry.edges.spark.transforms.anomalies.registry import Registry, detected
from tarry.edges.spark.transforms.query import dated, query, sql

JOB = "anomalies"
EVENTS_BACK = timedelta(minutes=1)
"""Events of the last run that are judged again: a burst may continue."""
MINUTES_BACK = timedelta(hours=5)
"""Additional minutes before the judged ones: three hours for sums and levels, and two for the start of incidents. Longer
incidents keep their published start.
"""
_HOUR = timedelta(hours=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_VALUES = 100
"""Approximate number of different values in the sketches of a minute or an hour."""
_TALLIES, _PROFILES, _BANDS, _ANOMALIES = "baselines", "profiles", "bands", "anomalies"


@dataclass(frozen=True, kw_only=True)
class AnomaliesArgs:
    lake: str | None = None
    """A directory, or a URI that Spark can read and write. None: next to the embedded data."""
    registry: Registry = BUILT_IN
    until: datetime | None = None
    """Treat this instant as now: minutes before it are complete. Messages count as idle at most up to the start of the last
    archive run, since later events are unknown.
    """

    def __post_init__(self) -> None:
        if self.until is not None and self.until.tzinfo is None:
            raise InvalidInput("`until` needs a time zone")


@dataclass(frozen=True, kw_only=True)
class AnomaliesSummary:
    lake: str
    days: tuple[date, ...]
    """The judged dates."""
    anomalies: int
    by_detector: Mapping[str, int]
    by_severity: Mapping[str, int]
    raised: int
    """Anomalies that this run has found first."""
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


@own_session
def run(spark: SparkSession, app: App, args: AnomaliesArgs) -> AnomaliesSummary:
    lake = own_lake(spark, app, args.lake)
    rounds.advance(spark, app, lake)
    manifest, anomalies = app.pipeline.manifest, app.pipeline.anomalies
    with manifest.run(JOB, lake=lake.root) as noted:
        head = app.pipeline.rounds.head(lake.root)
        if head is None:
            return _summary(lake, (), [], Published(0, 0, 0, 0))
        work = _Judgement(spark, app, lake, head, noted, args.until)
        work.prepare(args.registry.calendar)
        work.find_idle()
        with sized_for(spark, work.size) as layout, layout.keeping() as kept:
            context = work.context(layout, kept, args.registry)
            findings = kept(detected(context, args.registry, kept))
            rows = list(json_rows(findings, "*"))
            by_minute = [detector.name for detector in args.registry if detector.by_minute]
            published = anomalies.publish(
                rows, detectors=by_minute, since=context.minutes_since, until=work.until, run_id=noted.id
            )
            work.store(layout, findings, by_minute, context.minutes_since)
            summary = _summary(lake, work.days, [json.loads(row) for row in rows], published)
        noted.summary = {**asdict(summary), **work.position}
    return summary


class _Judgement:
    """The frames of one run, and the state for the next run."""

    def __init__(
        self,
        spark: SparkSession,
        app: App,
        lake: Lake,
        head: Round,
        noted: Run,
        until_given: datetime | None,
    ) -> None:
        self._spark, self._app, self._lake, self._head, self._run = spark, app, lake, head, noted
        last, archived = (app.pipeline.manifest.last_run(job, lake.root) for job in (JOB, ARCHIVE))
        past: Mapping[str, Any] = {} if last is None else last.summary
        self.until = until = (until_given or noted.started_at).astimezone(UTC)
        self._known_until = until if archived is None else min(until, archived.started_at)
        self._complete_until = until_given or self._known_until
        self._judged: int = past.get("round", 0)
        seen_until = datetime.fromisoformat(past["seen_until"]) if past.get("seen_until") else None
        self._tail_from = None if seen_until is None else seen_until - EVENTS_BACK
        files = self._table("trace").files()
        self._files = [
            file
            for file in files
            if file.high["round"] > self._judged or (self._tail_from and file.high["at"] >= self._tail_from)
        ]
        newest = max((file.high["at"] for file in files), default=seen_until)
        first = min((file.low["at"] for file in self._files if file.high["round"] > self._judged), default=until)
        begun = [datetime.fromisoformat(past["until"])] if past.get("until") else []
        self._minutes_since = floored(min(first, until, *begun).astimezone(UTC), _HOUR)
        last_day = (until - timedelta(microseconds=1)).date()
        self.days = _dates(self._minutes_since.date(), last_day)
        archived = [day.day for day in app.pipeline.manifest.days(lake.root)]
        archived_from = min(archived, default=self._minutes_since.date())
        self._begin = max(_midnight(archived_from), self._minutes_since - MINUTES_BACK)
        self._judged_dates = _dates(self._begin.date(), last_day)
        self._queues = app.pipeline.anomalies.queues()
        minutes = int((until - self._begin) / timedelta(minutes=1))
        self.size = sum(file.rows for file in self._files) + len(self._queues) * minutes * len(baselines.METRICS)
        self.position = {
            "round": head.number,
            "until": until.isoformat(),
            "seen_until": None if newest is None else newest.isoformat(),
            "prepared": dict(past.get("prepared", {})),
            "calendar": past.get("calendar", "") if past else None,
        }

    def context(self, layout: FrameLayout, kept: Keep, registry: Registry) -> DetectorContext:
        spark, anomalies = self._spark, self._app.pipeline.anomalies
        queues = layout.read(local_frame(spark, self._queues, QUEUES))
        is_new = f"round > {self._judged}"
        is_tail = "false" if self._tail_from is None else f"at >= timestamp '{self._tail_from.isoformat()}'"
        trace = self._table("trace").read(spark, self._files)
        events = kept((_empty_trace(spark) if trace is None else layout.read(trace)).where(f"{is_new} or {is_tail}"))
        kinds, first = query(sql("kinds"), {"judged": self._judged}, events=events).collect()[0]
        since = self.until if first is None else _EPOCH + timedelta(microseconds=first)
        judged = self._judged_dates
        per_minute = self._rows(layout, "metrics", "minute", self._begin, metrics.MINUTES)
        end = self._complete_until.astimezone(UTC).replace(second=0, microsecond=0)
        series = kept(baselines.series(per_minute, queues, self._begin, end, registry.calendar))
        names = {
            by_minute: [each.name for each in registry if each.by_minute is by_minute] for by_minute in (True, False)
        }
        continuable = [
            *anomalies.continuable(detectors=names[True], since=self._minutes_since, frames_from=self._begin),
            *anomalies.continuable(detectors=names[False], since=since, frames_from=self._tail_from or since),
        ]
        raised = anomalies.raised(detectors=names[False], since=floored(since, _HOUR))
        return DetectorContext(
            events=events.drop("round", "date"),
            idle=kept(layout.read(self._idle)),
            metrics=per_minute,
            series=series,
            queues=queues,
            profiles=kept(self._of_dates(layout, _PROFILES, judged, PROFILES)),
            bands=kept(self._of_dates(layout, _BANDS, judged, BANDS)),
            since=since,
            until=self.until,
            minutes_since=self._minutes_since,
            complete_until=self._known_until,
            kinds=frozenset(kinds),
            published=_by_detector(spark, continuable),
            raised=local_frame(spark, raised, RAISED) if raised else None,
        )

    def find_idle(self) -> None:
        """Find leases of open versions that may be idle. A separate step, because it reads all open versions for these few:
        with them the other frames would be too large for one partition. Only the keys of candidates are resolved to their
        latest state.
        """
        files = self._table("open").files()
        with sized_for(self._spark, sum(file.rows for file in files)) as layout:
            stored = self._read(layout, "open", files, facts.OPEN)
            latest = facts.latest(facts.touched(stored, stored.where(facts.IDLE)))
            self._idle = facts.idle(facts.still_open(latest)).localCheckpoint()

    def prepare(self, calendar: Calendar) -> None:
        """Compute the missing usual values of the judged dates, after the tallies of the preceding dates. If the calendar has
        changed, compute all of them again.
        """
        judged = self._judged_dates
        window = _dates(judged[0] - timedelta(days=profiles.DAYS), judged[-1] - timedelta(days=1))
        table, made_from = self._table(_TALLIES), (self._table("metrics"), self._table("consumers"))
        sources, tallied = (
            _rounds([file for of in tables for file in of.files(window)]) for tables in (made_from, (table,))
        )
        if self.position["calendar"] not in (None, calendar.text()):
            tallied, self.position["prepared"] = {}, {}
        self.position["calendar"] = calendar.text()
        missing = [day for day in window if sources.get(day, 0) > tallied.get(day, 0)]
        tallied |= dict.fromkeys(missing, self._head.number)
        prepared: dict[str, int] = self.position["prepared"]
        newest = {
            day: max((of for other, of in tallied.items() if 0 < (day - other).days <= profiles.DAYS), default=0)
            for day in judged
        }
        due = [day for day in judged if newest[day] > prepared.get(day.isoformat(), 0)]
        self.position["prepared"] = {day.isoformat(): newest[day] for day in judged}
        if not missing and not due:
            return
        rows = sum(file.rows for of in made_from for file in of.files(missing))
        size = rows * _VALUES + sum(file.rows for file in table.files(window))
        with sized_for(self._spark, size) as layout, layout.keeping() as kept:
            queues = layout.read(local_frame(self._spark, self._queues, QUEUES))
            if missing:
                table.replace_days(
                    layout.by(self._tallies(layout, queues, missing, calendar), "date"), missing, self._run.id
                )
            tallies = self._of_dates(layout, _TALLIES, window, profiles.TALLIES)
            if due:
                bands = baselines.bands(tallies, due, calendar, kept=kept)
                for name, frame in ((_PROFILES, profiles.profiles(tallies, due)), (_BANDS, bands)):
                    self._table(name).replace_days(layout.by(frame, "date"), due, self._run.id)
            shown_after = self.until.date() - timedelta(days=7)
            bands = baselines.published_bands(
                self._of_dates(layout, _BANDS, due, BANDS), queues, due, shown_after, calendar
            )
            self._app.pipeline.analytics.put(Table.BANDS, rows_of_run(bands, bands.columns, self._run))

    def _tallies(self, layout: FrameLayout, queues: DataFrame, days: Sequence[date], calendar: Calendar) -> DataFrame:
        """The tallies of these dates, from all of their minutes and hours."""
        begin, end = _midnight(days[0]) - baselines.BEFORE, _midnight(days[-1] + timedelta(days=1))
        minutes = self._rows(layout, "metrics", "minute", begin, metrics.MINUTES)
        hours = self._rows(layout, "consumers", "hour", begin, consumers.HOURS)
        of_series = baselines.tallied_series(baselines.series(minutes, queues, begin, end, calendar))
        dates = ", ".join(f"date '{day}'" for day in days)
        tallies = profiles.tallied(minutes, hours).unionByName(of_series).where(f"date in ({dates})")
        return tallies.selectExpr(f"{self._head.number}L as round", "*")

    def store(self, layout: FrameLayout, findings: DataFrame, by_minute: Sequence[str], since: datetime) -> None:
        """Store the findings in the lake by their start date, and remove those that are no longer found."""
        rows = findings.selectExpr(*FINDINGS.names, f"{dated('window_from')} as date")
        dates = {row.date for row in rows.select("date").distinct().collect()} | set(self.days)
        table = self._table(_ANOMALIES)
        files = table.files(dates)
        if files:
            stored = self._read(layout, _ANOMALIES, files, FINDINGS)
            args = {"by_minute": ",".join(by_minute), "since": since, "until": self.until}
            rows = rows.unionByName(query(sql("anomalies/still_found"), args, findings=rows, stored=stored))
        if files or not findings.isEmpty():
            table.commit(layout.by(rows, "date"), files, self._run.id)

    def _rows(self, layout: FrameLayout, name: str, column: str, since: datetime, schema: StructType) -> DataFrame:
        files = [file for file in self._table(name).files() if file.high[column] >= since]
        return self._read(layout, name, files, schema).where(f"{column} >= timestamp '{since.isoformat()}'")

    def _of_dates(self, layout: FrameLayout, name: str, dates: Sequence[date], schema: StructType) -> DataFrame:
        return self._read(layout, name, self._table(name).files(dates), schema).select(*schema.names)

    def _read(self, layout: FrameLayout, name: str, files: Sequence[TableFile], schema: StructType) -> DataFrame:
        """The rows of these files; an empty frame of this schema without files."""
        frame = self._table(name).read(self._spark, files)
        return local_frame(self._spark, [], schema) if frame is None else layout.read(frame)

    def _table(self, name: str) -> LakeTable:
        return LakeTable(self._lake, name)


def _empty_trace(spark: SparkSession) -> DataFrame:
    no_events = local_frame(spark, [], EVENTS).drop("payload", "payload_hash")
    empty = tracing.with_history(no_events, tracing.sequenced(no_events))
    return empty.selectExpr("0L as round", "*")


def _rounds(files: Sequence[TableFile]) -> dict[date, int]:
    """The last round that changed each date."""
    newest: dict[date, int] = {}
    for file in files:
        if file.date is not None:
            newest[file.date] = max(newest.get(file.date, 0), file.high["round"])
    return newest


def _dates(first: date, last: date) -> tuple[date, ...]:
    """All dates, both ends inclusive."""
    return tuple(first + timedelta(days=n) for n in range((last - first).days + 1))


def _by_detector(spark: SparkSession, known: Sequence[ContinuableAnomaly]) -> dict[str, DataFrame]:
    rows: dict[str, list[ContinuableAnomaly]] = defaultdict(list)
    for anomaly in known:
        rows[anomaly.detector].append(anomaly)
    return {detector: local_frame(spark, of_detector, CONTINUABLE) for detector, of_detector in rows.items()}


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _summary(lake: Lake, days: tuple[date, ...], rows: list[dict], published: Published) -> AnomaliesSummary:
    detectors, severities = (Counter(row[name] for row in rows) for name in ("detector", "severity"))
    return AnomaliesSummary(
        lake=lake.root,
        days=days,
        anomalies=len(rows),
        by_detector=dict(sorted(detectors.items())),
        by_severity={severity.value: severities[severity.value] for severity in reversed(Severity)},
        **asdict(published),
    )
