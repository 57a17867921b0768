"""Verify job: re-derive the live table from archive and journal and compare them as sets at one instant. Read-only.

Four independent checks. The files match the manifest. Events that are archived and not pruned are unchanged in the
journal. The events are a possible sequence, each once. They fold to exactly the live messages and dead letters that
exist.
"""

# pyright: basic
from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from datetime import time as midnight
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from tarry.core.pipeline import Batch, LakeFile, by_day
from tarry.core.windows import BEGINNING, Digest, Picture
from tarry.edges.spark.lake import Lake, measure_files, read_files
from tarry.edges.spark.sizing import ON_DISK
from tarry.edges.spark.transforms import folding

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tarry.app import App

JOB = "verify"
MOST_SAMPLES = 5
_BEYOND = "beyond"
_EVENT = (
    "id long, kind string, queue_id int, key string, version long, attempt int, priority int, due_at timestamp, "
    "from_version long, journal string"
)
_LIVE = (
    "queue_id int, key string, version long, attempt int, priority int, due_at timestamp, created_at timestamp, "
    "max_attempts int"
)
_DEAD = "queue_id int, key string, version long, died_at timestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyArgs:
    lake: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    what: str
    """A sentence that begins with the number of cases."""
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySummary:
    ok: bool
    lake: str
    events: int
    live: int
    dead: int
    batches: int
    files: int
    skipped: tuple[str, ...]
    """Queues without a journal, now or for some time: their state cannot be derived."""
    beyond_retention: int
    """Messages whose whole history is older than the lake's retention of their queue."""
    problems: tuple[Problem, ...]
    seconds: float

    def line(self) -> str:
        apart = f"; without journal: {', '.join(self.skipped)}" if self.skipped else ""
        if self.beyond_retention:
            apart += f"; {self.beyond_retention:,} messages are older than what the lake keeps"
        if not self.ok:
            return f"verify: FAILED, {'; '.join(problem.what for problem in self.problems)}{apart}"
        return (
            f"verify: ok, {self.events:,} events fold to {self.live:,} live messages and {self.dead:,} dead letters, as the "
            f"tables have them; {self.batches} batches, {self.files} files checked in {self.seconds:.1f} s{apart}"
        )


def run(spark: SparkSession, app: App, args: VerifyArgs) -> VerifySummary:
    started = time.monotonic()
    lake = Lake.at(args.lake)
    pipeline = app.pipeline
    with pipeline.manifest.run(JOB, alone_at=f"lake {lake.root}", lake=lake.root) as noted:
        batches = pipeline.manifest.batches(lake.root)
        edge = batches[-1].end if batches else BEGINNING
        if batches:
            pipeline.windows.check(edge, batches[-1].system_id)
        files = [file for batch in batches for file in batch.files]
        measured = measure_files(spark, lake, files)
        picture = pipeline.windows.picture(edge)
        problems = [*_chain(batches), *_files(files, measured), *_accounts(app, lake, batches)]
        there = [file for file in files if file.path in measured]
        facts = _Facts(spark, lake, picture, there, pipeline.manifest.horizons(lake.root))
        try:
            problems += [*facts.doubled(), *facts.impossible(), *facts.live(), *facts.dead()]
        finally:
            facts.close()
        events = sum(digest.rows for digest in measured.values()) + picture.tail.num_rows
        summary = VerifySummary(
            ok=not problems,
            lake=lake.root,
            events=events,
            live=picture.live.num_rows,
            dead=picture.dead.num_rows,
            batches=len(batches),
            files=len(files),
            skipped=facts.skipped,
            beyond_retention=facts.beyond_retention,
            problems=tuple(problems),
            seconds=time.monotonic() - started,
        )
        noted.summary = {"ok": summary.ok, "events": events, "problems": [problem.what for problem in problems]}
    return summary


def _chain(batches: Sequence[Batch]) -> list[Problem]:
    links = [BEGINNING, *(batch.end for batch in batches)]
    broken = [batch for batch, before in zip(batches, links, strict=False) if batch.start != before]
    if not broken:
        return []
    return [Problem(what=f"{len(broken)} batches do not begin where the one before ends", samples=_names(broken))]


def _files(files: Sequence[LakeFile], measured: dict[str, Digest]) -> list[Problem]:
    missing = [file for file in files if file.path not in measured]
    changed = [file for file in files if file.path in measured and measured[file.path] != file.digest]
    problems: list[Problem] = []
    if missing:
        problems.append(Problem(what=f"{len(missing)} files of the lake are gone", samples=_paths(missing)))
    if changed:
        samples = tuple(
            f"{f.path}: {measured[f.path].rows} rows, {f.rows} were written" for f in changed[:MOST_SAMPLES]
        )
        problems.append(Problem(what=f"{len(changed)} files of the lake are not as they were written", samples=samples))
    return problems


def _accounts(app: App, lake: Lake, batches: Sequence[Batch]) -> list[Problem]:
    """Per day: the manifest is consistent, and the journal has what was archived and not pruned."""
    edge = batches[-1].end if batches else BEGINNING
    listed = by_day([file for batch in batches for file in batch.files])
    manifest: list[str] = []
    journal: list[str] = []
    for day in app.pipeline.manifest.days(lake.root):
        if listed.get(day.day, Digest()) != day.archived - day.retired:
            manifest.append(f"{day.day}")
        there, _ = app.pipeline.windows.day_digest(edge, day.day)
        kept = day.archived - day.pruned
        if there != kept:
            journal.append(f"{day.day}: {there.rows:,} rows, {kept.rows:,} were archived and not pruned")
    problems: list[Problem] = []
    if manifest:
        what = f"{len(manifest)} days have other files in the manifest than were archived"
        problems.append(Problem(what=what, samples=tuple(manifest[:MOST_SAMPLES])))
    if journal:
        what = f"{len(journal)} days of the journal are not as they were archived"
        problems.append(Problem(what=what, samples=tuple(journal[:MOST_SAMPLES])))
    return problems


class _Facts:
    """Events and tables as frames, and the checks on them."""

    def __init__(
        self, spark: SparkSession, lake: Lake, picture: Picture, files: Sequence[LakeFile], horizons: dict[int, date]
    ) -> None:
        self._horizons = horizons
        archived = read_files(spark, lake, [file.path for file in files], lenient=True).withColumns(
            {
                "from_version": F.get_json_object("detail", "$.from_version").cast("long"),
                "journal": F.get_json_object("detail", "$.journal"),
            }
        )
        names = [*folding.COLUMNS, "journal"]
        self.events = archived.select(*names).unionByName(spark.createDataFrame(picture.tail, _EVENT).select(*names))
        silent = self._silent(picture)
        self.skipped = tuple(sorted(queue.name for queue in picture.queues if queue.id in silent))
        self.beyond_retention = 0
        heard = ~F.col("queue_id").isin(*silent)
        self._told = self.events.where(heard)
        self._live = spark.createDataFrame(picture.live, _LIVE).where(heard)
        self._dead = spark.createDataFrame(picture.dead, _DEAD).where(heard)
        self._sequence = folding.in_sequence(self._told).persist(ON_DISK)

    def close(self) -> None:
        self._sequence.unpersist()

    def _silent(self, picture: Picture) -> list[int]:
        """Queues whose journal is off, or was off for some time."""
        edited = self.events.where(F.col("kind").isin("queue_created", "queue_edited") & (F.col("journal") == "off"))
        once = {row[0] for row in edited.select("queue_id").distinct().collect()}
        return sorted(once | {queue.id for queue in picture.queues if queue.journal == "off"})

    def doubled(self) -> list[Problem]:
        return _problem(folding.doubled(self.events), "events are there more than once", "id {id}, {times} times")

    def impossible(self) -> list[Problem]:
        return _problem(
            folding.impossible(self._sequence, sorted(self._horizons)),
            "events cannot follow the one before them: something is missing or doubled between",
            "{kind} (id {id}, version {version}) after {before} (version {version_before}), queue {queue_id}, key {key}",
        )

    def live(self) -> list[Problem]:
        keys = ("queue_id", "key")
        found = self._live.select(*folding.STATE)
        differ = folding.compared(folding.folded(self._sequence), found, keys).join(
            self._live.select(*keys, "created_at", "max_attempts").dropDuplicates(list(keys)), list(keys), "left"
        )
        # A poll counts an attempt beyond the last one without an event; the message is buried immediately afterwards.
        most = F.coalesce("max_attempts", F.lit(2**31 - 1))
        clipped = [F.least(F.col(f"{side}.attempt"), most) for side in ("expected", "found")]
        same = (clipped[0] == clipped[1]) & (F.coalesce("times", F.lit(1)) == 1)
        for name in ("version", "priority", "due_at"):
            same &= F.col(f"expected.{name}").eqNullSafe(F.col(f"found.{name}"))
        return self._judged(differ.where(~F.coalesce(same, F.lit(False))), "created_at", "messages")

    def dead(self) -> list[Problem]:
        keys = ("queue_id", "key", "version")
        expected = folding.folded_dead(self._told).withColumn("there", F.lit(True))
        differ = folding.compared(expected, self._dead.select(*keys).withColumn("there", F.lit(True)), keys)
        return self._judged(differ.join(self._dead, list(keys), "left"), "died_at", "dead letters")

    def _judged(self, differ: DataFrame, since: str, what: str) -> list[Problem]:
        """Count the differences in one pass: there are almost never any. Only if there are, collect a few samples of
        each kind, because there may be as many differences as messages.
        """
        old = F.lit(False)
        for queue, before in self._horizons.items():
            begun = datetime.combine(before, midnight(), UTC)
            old |= (F.col("queue_id") == queue) & (F.col(since) < F.lit(begun))
        verdict = (
            F.when(F.col("found").isNull(), f"{what} are gone that must be there")
            .when(F.col("expected").isNotNull(), f"{what} are not as their events say")
            .when(F.coalesce(old, F.lit(False)), _BEYOND)
            .otherwise(f"{what} are there that no event tells of")
        )
        shown = F.struct("queue_id", "key", "expected", "found", "times").alias("sample")
        judged = differ.select(verdict.alias("verdict"), shown)
        problems: list[Problem] = []
        text = "queue {queue_id}, key {key}: expected {expected}, found {found}"
        for row in judged.groupBy("verdict").agg(F.count("*").alias("n")).orderBy("verdict").collect():
            if row.verdict == _BEYOND:
                self.beyond_retention += row.n
            else:
                some = judged.where(F.col("verdict") == row.verdict).select("sample.*").limit(MOST_SAMPLES).collect()
                problems.append(
                    Problem(what=f"{row.n:,} {row.verdict}", samples=tuple(_shown(text, one) for one in some))
                )
        return problems


def _problem(frame: DataFrame, what: str, shown: str) -> list[Problem]:
    wrong = frame.limit(MOST_SAMPLES).collect()
    if not wrong:
        return []
    count = len(wrong) if len(wrong) < MOST_SAMPLES else frame.count()
    return [Problem(what=f"{count:,} {what}", samples=tuple(_shown(shown, row) for row in wrong))]


def _shown(text: str, row: Any) -> str:
    return text.format(**{name: "nothing" if value is None else _plain(value) for name, value in row.asDict().items()})


def _plain(value: Any) -> str:
    if not hasattr(value, "asDict"):
        return str(value)
    return ", ".join(f"{name} {said}" for name, said in value.asDict().items())


def _names(batches: Sequence[Batch]) -> tuple[str, ...]:
    return tuple(f"batch {batch.number}" for batch in batches[:MOST_SAMPLES])


def _paths(files: Sequence[LakeFile]) -> tuple[str, ...]:
    return tuple(file.path for file in files[:MOST_SAMPLES])
