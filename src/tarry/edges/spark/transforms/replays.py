# pyright: basic
"""Conversion of archived events to messages for a replay."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from tarry.core import limits
from tarry.core.errors import InvalidInput
from tarry.edges.spark.sink.options import PayloadFormat
from tarry.edges.spark.transforms.query import query, sql

_PAYLOAD = ("payload", "type", "content_type", "headers")


class ReplayOf(StrEnum):
    """The kind of event that selects a message."""

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
    after: timedelta = timedelta(0)
    rate: float | None = None
    """Messages per second; None: all are due immediately."""
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
        limits.check_delay(self.after, "after")
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise InvalidInput(f"rate is messages per second, more than 0, not {self.rate!r}")

    @property
    def kinds(self) -> tuple[str, ...]:
        """The event kinds of the outcome. `offered` includes updates and edits, not redrives."""
        return ("offered", "updated", "edited") if self.outcome is ReplayOf.OFFERED else (self.outcome.value,)


def selected(events: DataFrame, which: ReplayArgs) -> DataFrame:
    """One row per message: queue, key, version, priority, and the event `id`, which orders them."""
    kinds = ", ".join(f"'{kind}'" for kind in which.kinds)
    args = {"since": which.since, "until": which.until, "key_prefix": which.key_prefix}
    args |= {"keys": json.dumps(which.keys) if which.keys else None, "every_version": which.every_version}
    return query(sql("selected", kinds=kinds), args, events=events)


def with_payloads(messages: DataFrame, events: DataFrame) -> DataFrame:
    """Join the payload of each message's offer, if it is in the journal, and its content type from `detail`."""
    text = sql("with_payloads", roots=sql("roots"))
    return query(text, messages=messages, events=events).select(*messages.columns, *_PAYLOAD)


def planned(messages: DataFrame, args: ReplayArgs, start_at: datetime) -> DataFrame:
    """Rows for the sink in the original order; with a rate, their `due_at` values are spread from `start_at` on."""
    key = F.concat(F.lit(args.prefix), F.col("key"))
    if args.every_version:
        key = F.concat(key, F.lit("@"), F.col("version"))
    due_at = F.lit(start_at)
    if args.rate is not None:
        # One partition sorts two numbers per message; the payloads are not moved.
        position = F.row_number().over(Window.orderBy("id")) - 1
        messages = messages.join(messages.select("id", position.alias("position")), "id")
        due_at += F.make_dt_interval(secs=(F.col("position") / F.lit(args.rate)).cast("decimal(18,6)"))
    columns = {"queue": F.col("queue") if args.to_queue is None else F.lit(args.to_queue), "key": key, "due_at": due_at}
    rows = messages.withColumns({**columns, "priority": F.col("priority").cast("int")})
    return rows.select("queue", "key", "payload", "content_type", "type", "headers", "priority", "due_at")


def last_due_at(args: ReplayArgs, start_at: datetime, n: int) -> datetime:
    """When the last of n messages is due."""
    return start_at if args.rate is None else start_at + timedelta(seconds=max(n - 1, 0) / args.rate)
