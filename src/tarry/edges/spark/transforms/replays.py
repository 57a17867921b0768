# pyright: basic
"""Turns archived events into messages that can be offered again."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from tarry.core import limits
from tarry.core.errors import InvalidInput
from tarry.edges.spark.sink.options import PayloadFormat


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
    after: timedelta = timedelta(0)
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
        limits.check_delay(self.after, "after")
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise InvalidInput(f"rate is messages per second, more than 0, not {self.rate!r}")

    @property
    def kinds(self) -> tuple[str, ...]:
        """The event kinds of the outcome. `offered` includes updates and edits, not redrives."""
        return ("offered", "updated", "edited") if self.outcome is ReplayOf.OFFERED else (self.outcome.value,)


def selected(events: DataFrame, which: ReplayArgs) -> DataFrame:
    """One row per message: queue, key, version, priority, and the event `id`, which orders them."""
    matching = events.where(F.col("kind").isin(*which.kinds) & F.col("key").isNotNull())
    at, key = F.col("at"), F.col("key")
    if which.since is not None:
        matching = matching.where(at >= F.lit(which.since))
    if which.until is not None:
        matching = matching.where(at < F.lit(which.until))
    if which.keys:
        matching = matching.where(key.isin(*which.keys))
    if which.key_prefix is not None:
        matching = matching.where(F.startswith(key, F.lit(which.key_prefix)))
    of = ["queue_id", "version"] if which.every_version else ["queue_id", "key"]
    last = F.max_by(F.struct("queue", "key", "version", "priority", "id"), "id").alias("last")
    return matching.groupBy(*of).agg(last).select(F.col("queue_id"), "last.*")


def with_payloads(messages: DataFrame, events: DataFrame) -> DataFrame:
    """Join the payload of each message's offer, if it is in the journal, and its content type from `detail`."""
    kept = F.max_by(F.struct("payload", "detail"), "id").alias("kept")
    bodies = events.where("payload is not null").groupBy(F.col("version").alias("root")).agg(kept)
    rooted = messages.join(roots(events), ["queue_id", "version"], "left").withColumn(
        "root", F.coalesce("root", "version")
    )
    return rooted.join(bodies, "root", "left").select(
        *messages.columns,
        F.col("kept.payload").alias("payload"),
        *(F.get_json_object("kept.detail", f"$.{name}").alias(name) for name in ("type", "content_type", "headers")),
    )


def roots(events: DataFrame) -> DataFrame:
    """The originally offered version of each redriven version: only offers are journaled with payloads.

    A message can die and be redriven many times. Per key, in the order of ids, each version is mapped to the root of
    its origin. Only redrives are visited: a key that is offered often has few of them, and each step copies a map.
    """
    redriven = events.where("kind = 'redriven'").select(
        "queue_id",
        "key",
        F.struct(
            "id", "version", F.get_json_object("detail", "$.from_version").cast("long").alias("from_version")
        ).alias("redrive"),
    )
    chains = redriven.groupBy("queue_id", "key").agg(F.array_sort(F.collect_list("redrive")).alias("chain"))
    known = F.aggregate(
        "chain",
        F.map_from_arrays(F.array().cast("array<bigint>"), F.array().cast("array<bigint>")),
        lambda seen, each: F.map_concat(
            seen,
            F.map_from_arrays(
                F.array(each["version"]), F.array(F.coalesce(seen[each["from_version"]], each["from_version"]))
            ),
        ),
    )
    return chains.select("queue_id", F.explode(known).alias("version", "root"))


def planned(messages: DataFrame, args: ReplayArgs, start_at: datetime) -> DataFrame:
    """Rows for the sink in the original order; with a rate, `due_at` spreads them from `start_at` on."""
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
