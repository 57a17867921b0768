# pyright: basic
"""Replay job: offer archived messages again, under new keys, through the sink.

`dry_run` only counts. The write id is derived from the arguments, so repeating a replay, also after a crash, offers the
messages once; set `write_id` to replay again on purpose.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from tarry.core import limits
from tarry.core.codecs import BYTES, TEXT
from tarry.core.errors import InvalidInput, Refused
from tarry.core.sinking import SinkWrite
from tarry.edges.spark import sink
from tarry.edges.spark.lake import Lake, read_events
from tarry.edges.spark.sink_options import PayloadFormat
from tarry.edges.spark.sizing import ON_DISK
from tarry.edges.spark.source import register
from tarry.edges.spark.transforms.replays import (
    Plan,
    Selection,
    kinds_of,
    last_due_at,
    planned,
    selected,
    with_payloads,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tarry.app import App

JOB = "replay"
_CONTENT_TYPES = {PayloadFormat.JSON: None, PayloadFormat.TEXT: TEXT, PayloadFormat.BINARY: BYTES}
_MIDNIGHT = timedelta(days=1)


class ReplayOf(StrEnum):
    """The event that selects a message, within the given time range."""

    OFFERED = "offered"
    ACKED = "acked"
    NACKED = "nacked"
    EXPIRED = "expired"
    BURIED = "buried"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayArgs:
    lake: str | None = None
    queue: str | None = None
    """Only this queue; None: all queues."""
    outcome: ReplayOf = ReplayOf.OFFERED
    since: datetime | None = None
    until: datetime | None = None
    keys: tuple[str, ...] = ()
    key_prefix: str | None = None
    every_version: bool = False
    """Every matching version of a key, as key@version; otherwise only the last one."""
    prefix: str = "replay/"
    """Prefix of the new keys. Empty: the same keys."""
    to_queue: str | None = None
    """Target queue; None: the original queue."""
    delay_for: timedelta = timedelta(0)
    rate: float | None = None
    """Messages per second; None: all are due at once."""
    conflict: str = "keep"
    """By default a live message with the same key is kept."""
    payload_format: PayloadFormat = PayloadFormat.JSON
    """Format of payloads whose content type is not in the journal."""
    skip_missing: bool = False
    """Skip messages whose payload was not archived; otherwise they fail the replay."""
    write_id: str | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        for name in ("queue", "to_queue"):
            if (value := getattr(self, name)) is not None:
                limits.check_queue_name(value)
        for name in ("since", "until"):
            if (value := getattr(self, name)) is not None:
                limits.check_instant(value, name)
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise InvalidInput("since must be before until")
        limits.check_delay(self.delay_for, "delay_for")
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise InvalidInput(f"rate is messages per second, more than 0, not {self.rate!r}")

    @property
    def name(self) -> str:
        """The write id: equal arguments give equal names."""
        if self.write_id is not None:
            return self.write_id
        asked = {**dataclasses.asdict(self), "dry_run": None, "lake": Lake.at(self.lake).root}
        return "replay/" + hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySummary:
    write_id: str
    matched: int
    without_payload: int
    dry_run: bool = False
    repeated: bool = False
    """The write was committed before; this run changed nothing."""
    rows: int = 0
    created: int = 0
    updated: int = 0
    ignored: int = 0
    superseded: int = 0
    first_due_at: datetime | None = None
    last_due_at: datetime | None = None
    seconds: float = 0.0

    def line(self) -> str:
        missing = f", {self.without_payload:,} of them without a payload" if self.without_payload else ""
        if self.dry_run:
            return f"replay: {self.matched:,} messages fit{missing}; nothing was offered (dry run)"
        if self.repeated:
            return f"replay: was done before as {self.write_id} ({self.rows:,} messages); name it anew to do it again"
        told = f"{self.created:,} created, {self.updated:,} updated, {self.ignored:,} left alone"
        span = "" if self.first_due_at == self.last_due_at else f", due until {self.last_due_at:%Y-%m-%d %H:%M:%S %Z}"
        return (
            f"replay: {self.matched:,} messages fit{missing}; {told}{span}, in {self.seconds:.1f} s ({self.write_id})"
        )


def run(spark: SparkSession, app: App, args: ReplayArgs) -> ReplaySummary:
    started = time.monotonic()
    lake = Lake.at(args.lake)
    dsn, name = app.pipeline.dsn, args.name
    if not args.dry_run and (before := app.pipeline.sinking.outcome(name)) is not None and before.committed:
        return _repeated(before)
    register(spark)
    with app.pipeline.manifest.run(JOB, alone_at=f"replay {name}", lake=lake.root) as noted, ExitStack() as held:
        messages = _messages(spark, app, lake, args).persist(ON_DISK)
        held.callback(messages.unpersist)
        matched, with_payload, not_json = _counted(messages)
        plan = Plan(
            prefix=args.prefix,
            to_queue=args.to_queue,
            start_at=app.store.now() + args.delay_for,
            rate=args.rate,
            every_version=args.every_version,
        )
        summary = ReplaySummary(
            write_id=name,
            matched=matched,
            without_payload=matched - with_payload,
            dry_run=args.dry_run,
            first_due_at=plan.start_at if with_payload else None,
            last_due_at=last_due_at(plan, with_payload) if with_payload else None,
        )
        if not args.dry_run:
            _check(args, summary, not_json)
            frame = planned(messages.where("payload is not null"), plan)
            done = sink.offer(frame, dsn, write_id=name, conflict=args.conflict)
            summary = dataclasses.replace(summary, **_counts(done))
        summary = dataclasses.replace(summary, seconds=time.monotonic() - started)
        noted.summary = {"write_id": name, "matched": matched, "rows": summary.rows, "dry_run": args.dry_run}
    return summary


def _messages(spark: SparkSession, app: App, lake: Lake, args: ReplayArgs) -> DataFrame:
    # Not limited to `since`: a message that died yesterday may have been offered, with its payload, long before.
    events = read_events(
        spark,
        app.pipeline.manifest,
        lake,
        until=None if args.until is None else (limits.check_instant(args.until) + _MIDNIGHT).date(),
        queues=None if args.queue is None else [args.queue],
    )
    which = Selection(
        kinds=tuple(kinds_of(args.outcome)),
        queue=args.queue,
        since=args.since,
        until=args.until,
        keys=args.keys,
        key_prefix=args.key_prefix,
        every_version=args.every_version,
    )
    content_type = F.coalesce("content_type", F.lit(_CONTENT_TYPES[args.payload_format]).cast("string"))
    return with_payloads(selected(events, which), events).withColumn("content_type", content_type)


def _counted(messages: DataFrame) -> tuple[int, int, int]:
    """Number of matches, of matches with a payload, and of payloads that should be JSON but are not."""
    text = F.try_validate_utf8(F.col("payload").cast("string"))
    not_json = F.col("payload").isNotNull() & F.col("content_type").isNull() & F.try_parse_json(text).isNull()
    (row,) = messages.agg(F.count("*"), F.count("payload"), F.count_if(not_json)).collect()
    return row[0], row[1], row[2]


def _check(args: ReplayArgs, found: ReplaySummary, not_json: int) -> None:
    if found.without_payload and not args.skip_missing:
        raise Refused(
            f"{found.without_payload:,} of {found.matched:,} messages have no payload in the archive, so they cannot be "
            "offered again: it is kept only while the journal level of their queue is PAYLOADS; nothing was offered",
            hint="skip_missing=True replays the others; for the future: tarry queue edit QUEUE --journal payloads",
        )
    if not_json:
        raise Refused(
            f"{not_json:,} of the payloads are not JSON, and the journal does not say what they are; nothing was offered",
            hint="say it: payload_format text or binary",
        )


def _counts(done: SinkWrite) -> dict[str, Any]:
    return {name: getattr(done, name) for name in ("rows", "created", "updated", "ignored", "superseded")}


def _repeated(before: SinkWrite) -> ReplaySummary:
    return ReplaySummary(
        write_id=before.write_id, matched=before.rows, without_payload=0, repeated=True, **_counts(before)
    )
