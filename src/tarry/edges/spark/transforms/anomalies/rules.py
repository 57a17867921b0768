# pyright: basic
"""Rules for single messages and bulk operations. The query of a rule is sql/NAME.sql, with its settings as arguments.

Usual values come from the queue's profile of the previous four weeks. A queue that is normally slow or large (its own
quantile exceeds the absolute limit) is judged only by its profile; otherwise it would be reported all day.
"""

from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import DataFrame

from tarry.core.analytics.anomalies import Severity
from tarry.edges.spark.transforms.anomalies.context import ENOUGH, DetectorContext
from tarry.edges.spark.transforms.anomalies.findings import limited
from tarry.edges.spark.transforms.anomalies.registry import Detector, detector
from tarry.edges.spark.transforms.query import query, sql

# The line that names the error: the first one, or the last one of a traceback. The evidence has the whole text.
_LINE = r"element_at(split(regexp_replace(error, r'^\s+|\s+$', ''), r'\s*\n\s*'), if(startswith(error, 'Traceback '), -1, 1))"
_BECAUSE = f"coalesce(concat(' (', substring({_LINE}, 1, 200), ')'), '')"
_BULK = sql("anomalies/bulk", operations=sql("anomalies/operations", events="select * from judged"))


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


@dataclass(frozen=True)
class Bulk:
    """Settings of bulk_enqueue, bulk_delete, bulk_move and queue_cleared."""

    at_least: int = 10
    most_per_hour: int = 20


@dataclass(frozen=True)
class BurstDequeue:
    at_least: int = 50
    within_s: float = 5
    most_per_hour: int = 20


def _anomalies(
    context: DetectorContext, settings: Any, text: str, *kinds: str, cleared: str = "", **args: Any
) -> DataFrame:
    """The result of a rule's query over events of these kinds. `cleared`: for bulk operations, see bulk.sql."""
    args = context.args(enough=ENOUGH, **asdict(settings), **args)
    without = context.events_of(cleared) if cleared else context.events.limit(0)
    events, profiles, queues = context.events_of(*kinds), context.profiles, context.queues
    return query(text, args, events=events, profiles=profiles, queues=queues, cleared=without)


def _rule(name: str, severity: Severity, settings: Any, *kinds: str, text: str = "", **args: Any) -> Detector:
    """`text`: replaces the query of this name."""
    text = text or sql(f"anomalies/{name}", because=_BECAUSE)
    return Detector(
        name,
        severity,
        lambda context, settings: _anomalies(context, settings, text, *kinds, **args),
        settings,
        kinds=frozenset(kinds),
    )


@detector(name="zombie_message", severity="critical", settings=ZombieMessage())
def zombie_message(context: DetectorContext, settings: ZombieMessage) -> DataFrame:
    args = context.args(known_until=context.known_until, **asdict(settings))
    zombies = query(sql("anomalies/zombie_message"), args, events=context.events, idle=context.idle)
    # Without the raised ones: every run finds all of them again.
    return limited(zombies, settings.most_per_hour, "zombie_message", None).drop("id")


@detector(name="burst_dequeue", severity="warning", settings=BurstDequeue(), kinds=("leased",))
def burst_dequeue(context: DetectorContext, settings: BurstDequeue) -> DataFrame:
    span = {"span_us": int(settings.within_s * 1_000_000), "span": f"{settings.within_s:g}"}
    return _anomalies(context, settings, sql("anomalies/burst_dequeue"), "leased", **span)


_INFO, _WARNING, _CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL
_OFFERED = {"happened": "were offered to queue", "measure": "operation"}
_REMOVED = {"happened": "were removed from queue", "measure": "", "cleared": "queue_purged"}
_REDRIVEN = {"happened": "were redriven in queue", "measure": ""}
RULES = (
    _rule("flash_message", _INFO, FlashMessage(), "leased"),
    _rule("large_payload", _INFO, LargePayload(), "offered", "updated"),
    _rule("long_processing", _WARNING, LongProcessing(), "acked", "nacked"),
    _rule("lock_stolen", _CRITICAL, EveryEvent(), "refused"),
    _rule("near_dlq", _WARNING, NearDlq(), "nacked"),
    _rule("dlq_movement", _WARNING, EveryEvent(), "buried"),
    zombie_message,
    burst_dequeue,
    _rule("bulk_enqueue", _INFO, Bulk(), "offered", "updated", text=_BULK, **_OFFERED),
    _rule("bulk_delete", _INFO, Bulk(), "dropped", "discarded", text=_BULK, **_REMOVED),
    _rule("bulk_move", _INFO, Bulk(), "redriven", text=_BULK, **_REDRIVEN),
    _rule("queue_cleared", _WARNING, Bulk(at_least=1), "queue_purged"),
)
