# pyright: basic
"""Turns archived events into messages that can be offered again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which messages to replay: those with one of these events, in this time range, with these keys."""

    kinds: tuple[str, ...]
    queue: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    keys: tuple[str, ...] = ()
    key_prefix: str | None = None
    every_version: bool = False
    """Every matching version; otherwise only the last one of each key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the messages are offered."""

    prefix: str
    to_queue: str | None = None
    start_at: datetime
    rate: float | None = None
    """Messages per second, spread from `start_at` on; None: all at once."""
    every_version: bool = False


def selected(events: DataFrame, which: Selection) -> DataFrame:
    """One row per message: queue, key, version, priority, and the event `id`, which orders them."""
    wanted = events.where(F.col("kind").isin(*which.kinds) & F.col("key").isNotNull())
    for condition in _conditions(which):
        wanted = wanted.where(condition)
    of = ["queue_id", "version"] if which.every_version else ["queue_id", "key"]
    last = F.max_by(F.struct("queue", "key", "version", "priority", "id"), "id").alias("last")
    return wanted.groupBy(*of).agg(last).select(F.col("queue_id"), "last.*")


def _conditions(which: Selection) -> list[Column]:
    terms: list[Column] = []
    if which.queue is not None:
        terms.append(F.col("queue") == which.queue)
    if which.since is not None:
        terms.append(F.col("at") >= F.lit(which.since))
    if which.until is not None:
        terms.append(F.col("at") < F.lit(which.until))
    if which.keys:
        terms.append(F.col("key").isin(*which.keys))
    if which.key_prefix is not None:
        terms.append(F.startswith(F.col("key"), F.lit(which.key_prefix)))
    return terms


def with_payloads(messages: DataFrame, events: DataFrame) -> DataFrame:
    """Join the payload of each message's offer, if it is in the journal, and its content type from `detail`."""
    kept = F.max_by(F.struct("payload", "detail"), "id").alias("kept")
    bodies = events.where("payload is not null").groupBy(F.col("version").alias("root")).agg(kept)
    origins = roots(events)
    rooted = messages.join(origins, ["queue_id", "version"], "left").withColumn("root", F.coalesce("root", "version"))
    told = rooted.join(bodies, "root", "left")
    return told.select(
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


def planned(messages: DataFrame, plan: Plan) -> DataFrame:
    """Rows for the sink in the original order; with a rate, `due_at` spreads them."""
    key = F.concat(F.lit(plan.prefix), F.col("key"))
    if plan.every_version:
        key = F.concat(key, F.lit("@"), F.col("version"))
    queue = F.col("queue") if plan.to_queue is None else F.lit(plan.to_queue)
    numbered = messages if plan.rate is None else _numbered(messages)
    return numbered.select(
        queue.alias("queue"),
        key.alias("key"),
        "payload",
        "content_type",
        "type",
        "headers",
        F.col("priority").cast("int").alias("priority"),
        _due(plan).alias("due_at"),
    )


def _numbered(messages: DataFrame) -> DataFrame:
    # One partition sorts two numbers per message; the payloads are not moved.
    place = F.row_number().over(Window.orderBy("id")) - 1
    return messages.join(messages.select("id", place.alias("place")), "id")


def _due(plan: Plan) -> Column:
    if plan.rate is None:
        return F.lit(plan.start_at)
    return F.lit(plan.start_at) + F.make_dt_interval(secs=(F.col("place") / F.lit(plan.rate)).cast("decimal(18,6)"))


def last_due_at(plan: Plan, n: int) -> datetime:
    """When the last of n messages is due."""
    return plan.start_at if plan.rate is None else plan.start_at + timedelta(seconds=max(n - 1, 0) / plan.rate)


def kinds_of(outcome: str) -> Sequence[str]:
    """The event kinds of an outcome. `offered` includes updates and edits, not redrives."""
    return ("offered", "updated", "edited") if outcome == "offered" else (outcome,)
