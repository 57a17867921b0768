# pyright: basic
"""Replay job: offer archived messages again, under new keys, through the sink.

`dry_run` only counts. The write id is derived from the arguments, so a repeated replay, for example after a crash, offers the
messages only once; set `write_id` to replay again on purpose.
"""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tarry.app import App
from tarry.core import limits
from tarry.core.codecs import BYTES, TEXT
from tarry.core.errors import InvalidState
from tarry.edges.formats import plural
from tarry.edges.spark.lake.lake import Lake, read_events
from tarry.edges.spark.session import own_session
from tarry.edges.spark.sink import writer as sink
from tarry.edges.spark.sink.options import PayloadFormat
from tarry.edges.spark.sizing import FrameLayout
from tarry.edges.spark.source.reader import register
from tarry.edges.spark.transforms.replays import ReplayArgs, last_due_at, planned, selected, with_payloads
from tarry.wire.base import same_fields

JOB = "replay"
_CONTENT_TYPES = {PayloadFormat.JSON: None, PayloadFormat.TEXT: TEXT, PayloadFormat.BINARY: BYTES}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySummary:
    write_id: str
    matched: int
    without_payload: int
    dry_run: bool = False
    repeated: bool = False
    """The write was already committed; this run changed nothing."""
    rows: int = 0
    created: int = 0
    updated: int = 0
    ignored: int = 0
    superseded: int = 0
    first_due_at: datetime | None = None
    last_due_at: datetime | None = None

    def line(self) -> str:
        missing = f", {self.without_payload:,} of them without a payload" if self.without_payload else ""
        if self.dry_run:
            return f"replay: {plural(self.matched, 'message')} fit{missing}; nothing was offered (dry run)"
        if self.repeated:
            return f"replay: was done before as {self.write_id} ({plural(self.rows, 'message')}); name it anew to do it again"
        counts = f"{self.created:,} created, {self.updated:,} updated, {self.ignored:,} unchanged"
        span = "" if self.first_due_at == self.last_due_at else f", due until {self.last_due_at:%Y-%m-%d %H:%M:%S %Z}"
        return f"replay: {plural(self.matched, 'message')} fit{missing}; {counts}{span} ({self.write_id})"


def write_id_of(args: ReplayArgs) -> str:
    """The write id; equal arguments give equal ids."""
    if args.write_id is not None:
        return args.write_id
    arguments = {**dataclasses.asdict(args), "dry_run": None, "lake": Lake.at(args.lake).root}
    return "replay/" + hashlib.sha256(json.dumps(arguments, sort_keys=True, default=str).encode()).hexdigest()[:24]


@own_session
def run(spark: SparkSession, app: App, args: ReplayArgs) -> ReplaySummary:
    lake = Lake.at(args.lake)
    name = write_id_of(args)
    if not args.dry_run and (before := app.pipeline.sink.outcome(name)) is not None and before.committed:
        return ReplaySummary(
            matched=before.rows, without_payload=0, repeated=True, **same_fields(before, ReplaySummary)
        )
    register(spark)
    with (
        app.pipeline.manifest.run(JOB, exclusive=f"replay {name}", lake=lake.root) as noted,
        FrameLayout().keeping() as kept,
    ):
        messages = kept(_messages(spark, app, lake, args))
        matched, with_payload, not_json = _counted(messages)
        start_at = app.store.run(app.store.queues.now()) + args.after
        summary = ReplaySummary(
            write_id=name,
            matched=matched,
            without_payload=matched - with_payload,
            dry_run=args.dry_run,
            first_due_at=start_at if with_payload else None,
            last_due_at=last_due_at(args, start_at, with_payload) if with_payload else None,
        )
        if not args.dry_run:
            _check(args, summary, not_json)
            frame = planned(messages.where("payload is not null"), args, start_at)
            done = sink.offer(frame, app.pipeline.dsn, write_id=name, conflict=args.conflict)
            summary = dataclasses.replace(summary, **same_fields(done, ReplaySummary))
        noted.summary = {"write_id": name, "matched": matched, "rows": summary.rows, "dry_run": args.dry_run}
    return summary


def _messages(spark: SparkSession, app: App, lake: Lake, args: ReplayArgs) -> DataFrame:
    # Not limited to `since`: a message that died yesterday may have been offered, with its payload, much earlier.
    events = read_events(
        spark,
        app,
        lake,
        until=None if args.until is None else (limits.check_instant(args.until) + timedelta(days=1)).date(),
        queue=args.queue,
    )
    content_type = F.coalesce("content_type", F.lit(_CONTENT_TYPES[args.payload_format]).cast("string"))
    return with_payloads(selected(events, args), events).withColumn("content_type", content_type)


def _counted(messages: DataFrame) -> tuple[int, int, int]:
    """Number of matches, of matches with a payload, and of invalid JSON payloads."""
    not_json = "content_type is null and try_parse_json(try_validate_utf8(string(payload))) is null"
    counts = ("count(*)", "count(payload)", f"count_if(payload is not null and {not_json})")
    return messages.selectExpr(*counts).collect()[0]


def _check(args: ReplayArgs, summary: ReplaySummary, not_json: int) -> None:
    if summary.without_payload and not args.skip_missing:
        raise InvalidState(
            f"{summary.without_payload:,} of {summary.matched:,} messages have no payload in the archive, so they cannot be "
            "offered again: it is kept only while the journal level of their queue is PAYLOADS; nothing was offered",
            hint="skip_missing=True replays the others; for the future: tarry queue edit QUEUE --journal payloads",
        )
    if not_json:
        raise InvalidState(
            f"{not_json:,} of the payloads are not JSON, and the journal has no content type of them; nothing was offered",
            hint="set payload_format to text or binary",
        )
