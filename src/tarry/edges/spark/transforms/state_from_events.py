"""Folds events into the expected live messages, and finds impossible sequences of events."""

# pyright: basic
from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tarry.core.journal.events import EventKind
from tarry.core.journal.replay import ENDS, NEUTRAL, NEW_VERSION, PREDECESSORS
from tarry.edges.spark.transforms.query import query, sql

STATE = ("queue_id", "key", "version", "attempt", "priority", "due_at")


def in_sequence(events: DataFrame) -> DataFrame:
    """Message events with the kind and version of their predecessor, and whether each is the last visible one of its key."""
    return query(sql("in_sequence", neutral=_listed(NEUTRAL)), events=events)


def impossible(sequence: DataFrame, truncated_queues: Sequence[int]) -> DataFrame:
    """Events that cannot follow their predecessor: an event between them is missing, or one is duplicated.

    The history of a truncated queue has no beginning, so its keys may start with any event.
    """
    allowed = (f"'{before or '-'}>{kind}'" for kind, befores in PREDECESSORS.items() for before in befores)
    steps = {"allowed": ", ".join(sorted(allowed)), "new_version": _listed(NEW_VERSION)}
    args = {"truncated": ",".join(map(str, truncated_queues))}
    return query(sql("impossible", **steps), args, sequence=sequence)


def folded(sequence: DataFrame) -> DataFrame:
    """The last events of live messages, one row per key."""
    return sequence.where(f"is_last and kind not in ({_listed(ENDS)})")


def folded_dead(events: DataFrame) -> DataFrame:
    """The burials of dead letters that were neither redriven nor discarded."""
    ended = events.where("kind in ('redriven', 'discarded')")
    gone = ended.selectExpr("if(kind = 'discarded', version, from_version) as version")
    return events.where("kind = 'buried'").join(gone, "version", "left_anti")


def doubled(events: DataFrame) -> DataFrame:
    """Ids that occur more than once."""
    return events.groupBy("id").agg(F.expr("count(*) as times")).where("times > 1")


def compared(expected: DataFrame, stored: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Rows that differ, as structs `expected` and `found`, one of which may be null."""
    state = f"struct({', '.join(name for name in expected.columns if name not in keys)})"
    present = stored.groupBy(*keys).agg(F.expr("count(*) as times"), F.expr(f"first({state}) as found"))
    both = expected.selectExpr(*keys, f"{state} as expected").join(present, list(keys), "full_outer")
    return both.where("not (expected <=> found) or times > 1").select(*keys, "expected", "found", "times")


def _listed(kinds: Iterable[EventKind]) -> str:
    return ", ".join(sorted(f"'{kind}'" for kind in kinds))
