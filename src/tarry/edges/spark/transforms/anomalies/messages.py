# pyright: basic
"""Rules about single messages: offers, leases and settles.

Usual values come from the queue's profile of the previous four weeks. A queue that is normally slow or large (its own
quantile exceeds the absolute limit) is judged only by its profile; otherwise it would be reported all day.
"""

from dataclasses import dataclass

from pyspark.sql import DataFrame

from tarry.edges.spark.transforms.anomalies.context import ENOUGH, DetectorContext
from tarry.edges.spark.transforms.anomalies.findings import limited
from tarry.edges.spark.transforms.anomalies.registry import detector
from tarry.edges.spark.transforms.query import query, sql

# The line that names the error: the first, but the last of a traceback. The evidence has the whole text.
_LINE = r"element_at(split(regexp_replace(error, r'^\s+|\s+$', ''), r'\s*\n\s*'), if(startswith(error, 'Traceback '), -1, 1))"
_BECAUSE = f"coalesce(concat(' (', substring({_LINE}, 1, 200), ')'), '')"


@dataclass(frozen=True)
class FlashMessage:
    under_ms: float = 500
    most_per_hour: int = 3


@dataclass(frozen=True)
class LargePayload:
    over_bytes: int = 5_000
    times_usual: float = 4
    most_per_hour: int = 20


@dataclass(frozen=True)
class LongProcessing:
    over_s: float = 10
    times_usual: float = 4
    most_per_hour: int = 20


@dataclass(frozen=True)
class EveryEvent:
    """Settings of lock_stolen and dlq_movement."""

    most_per_hour: int = 50


@dataclass(frozen=True)
class NearDlq:
    attempts_left: int = 1
    most_per_hour: int = 20


@dataclass(frozen=True)
class ZombieMessage:
    times_lease: float = 2
    at_most_s: float = 8 * 3600
    """Upper bound for long leases."""
    most_per_hour: int = 50


@detector(name="flash_message", severity="info", settings=FlashMessage(), kinds=("leased",))
def flash_message(context: DetectorContext, settings: FlashMessage) -> DataFrame:
    args = context.args(enough=ENOUGH, under_ms=settings.under_ms)
    return query(sql("anomalies/flash_message"), args, events=context.events_of("leased"), profiles=context.profiles)


@detector(name="large_payload", severity="info", settings=LargePayload(), kinds=("offered", "updated"))
def large_payload(context: DetectorContext, settings: LargePayload) -> DataFrame:
    args = context.args(enough=ENOUGH, over_bytes=settings.over_bytes, times_usual=settings.times_usual)
    offers = context.events_of("offered", "updated")
    return query(sql("anomalies/large_payload"), args, events=offers, profiles=context.profiles)


@detector(name="long_processing", severity="warning", settings=LongProcessing(), kinds=("acked", "nacked"))
def long_processing(context: DetectorContext, settings: LongProcessing) -> DataFrame:
    args = context.args(enough=ENOUGH, over_s=settings.over_s, times_usual=settings.times_usual)
    settled = context.events_of("acked", "nacked")
    return query(sql("anomalies/long_processing"), args, events=settled, profiles=context.profiles)


@detector(name="lock_stolen", severity="critical", settings=EveryEvent(), kinds=("refused",))
def lock_stolen(context: DetectorContext, settings: EveryEvent) -> DataFrame:
    return query(sql("anomalies/lock_stolen"), context.args(), events=context.events_of("refused"))


@detector(name="near_dlq", severity="warning", settings=NearDlq(), kinds=("nacked",))
def near_dlq(context: DetectorContext, settings: NearDlq) -> DataFrame:
    args = context.args(attempts_left=settings.attempts_left)
    text = sql("anomalies/near_dlq", because=_BECAUSE)
    return query(text, args, events=context.events_of("nacked"), queues=context.queues)


@detector(name="dlq_movement", severity="warning", settings=EveryEvent(), kinds=("buried",))
def dlq_movement(context: DetectorContext, settings: EveryEvent) -> DataFrame:
    text = sql("anomalies/dlq_movement", because=_BECAUSE)
    return query(text, context.args(), events=context.events_of("buried"))


@detector(name="zombie_message", severity="critical", settings=ZombieMessage())
def zombie_message(context: DetectorContext, settings: ZombieMessage) -> DataFrame:
    known_until = context.known_until
    args = context.args(known_until=known_until, times_lease=settings.times_lease, at_most_s=settings.at_most_s)
    zombies = query(sql("anomalies/zombie_message"), args, events=context.events, idle=context.idle)
    # Not with those that were raised before: they are all found again.
    return limited(zombies, settings.most_per_hour, "zombie_message", None).drop("id")


MESSAGE_RULES = (
    flash_message, large_payload, long_processing, lock_stolen, near_dlq, dlq_movement, zombie_message,
)  # fmt: skip
