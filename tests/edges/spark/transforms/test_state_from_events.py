"""Events fold to the messages that must be live, and those that cannot have happened are found."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.testing import assertDataFrameEqual

from tarry.core.journal.events import EventKind
from tarry.core.journal.replay import BEGINS, CHANGES, ENDS, NEUTRAL, PREDECESSORS
from tarry.edges.spark.sizing import local_frame
from tarry.edges.spark.transforms import state_from_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DUE = datetime(2026, 11, 15, 12, tzinfo=UTC)
EVENT = (
    "id long, kind string, queue_id int, key string, version long, attempt int, priority int, due_at timestamp, "
    "from_version long, visible boolean"
)
STATE = "queue_id int, key string, version long, attempt int, priority int, due_at timestamp"
DEAD = "queue_id int, key string, version long"


def events_of(spark: SparkSession, *lives: str) -> DataFrame:
    """Each life is a key and its events, as `a offered/1 leased/1 acked/1`: kind and version; ids in the order given. Events
    after a `|` are not visible yet.
    """
    rows: list[tuple[Any, ...]] = []
    for life in lives:
        key, *events = life.split()
        now = events.index("|") if "|" in events else len(events)
        for event in (each for each in events if each != "|"):
            kind, version, *origin = event.split("/")
            attempt = sum(1 for row in rows if row[3] == key and row[1] == "leased") + (kind == "leased")
            revived = int(origin[0]) if origin else None
            rows.append(
                (
                    len(rows) + 1,
                    kind,
                    1,
                    key,
                    int(version),
                    attempt,
                    5,
                    DUE,
                    revived,
                    sum(row[3] == key for row in rows) < now,
                )
            )
    return local_frame(spark, rows, EVENT)


def test_every_kind_of_event_has_its_place_in_the_life_of_a_key() -> None:
    groups = (BEGINS, CHANGES, ENDS, NEUTRAL)
    assert sum(map(len, groups)) == len(EventKind)
    assert frozenset().union(*groups) == frozenset(EventKind)
    assert PREDECESSORS.keys() == BEGINS | CHANGES | ENDS
    assert all(NEUTRAL.isdisjoint(befores) for befores in PREDECESSORS.values())


def test_a_message_without_an_end_is_live_as_of_its_last_event(spark: SparkSession) -> None:
    events = events_of(
        spark,
        "waiting offered/1",
        "held offered/2 leased/2 touched/2",
        "done offered/3 leased/3 acked/3",
        "again offered/4 leased/4 acked/4 offered/5",
        "replaced offered/6 updated/7 refused/7",
        "dead offered/8 leased/8 nacked/8 buried/8 discarded/8",
        "revived offered/9 leased/9 buried/9 redriven/10/9",
        "dropped offered/11 dropped/11",
        "not-yet-done offered/20 leased/20 | acked/20",
        "not-yet | offered/21",
        "expired offered/12 leased/12 expired/12 leased/12 released/12",
        "expired-and-late offered/13 leased/13 expired/13 acked/13",
        "expired-and-changed offered/14 leased/14 expired/14 updated/15",
        "expired-and-late-nack offered/16 leased/16 expired/16 nacked/16 dropped/16",
        "edited offered/17 edited/18 leased/18 edited/19",
    )
    sequence = state_from_events.in_sequence(events)
    assert state_from_events.impossible(sequence, []).count() == 0
    expected = [
        ("not-yet-done", 20, 1),
        ("waiting", 1, 0),
        ("held", 2, 1),
        ("again", 5, 1),
        ("replaced", 7, 0),
        ("revived", 10, 1),
        ("expired", 12, 2),
        ("expired-and-changed", 15, 1),
        ("edited", 19, 1),
    ]
    assertDataFrameEqual(
        state_from_events.folded(sequence).select(*state_from_events.STATE),
        local_frame(spark, [(1, key, version, attempt, 5, DUE) for key, version, attempt in expected], STATE),
    )
    assertDataFrameEqual(
        state_from_events.folded_dead(events).select("queue_id", "key", "version"), local_frame(spark, [], DEAD)
    )


def test_a_dead_letter_stays_until_it_is_revived_or_given_up(spark: SparkSession) -> None:
    events = events_of(
        spark,
        "kept offered/1 leased/1 buried/1",
        "revived offered/2 leased/2 buried/2 redriven/3/2",
        "twice offered/4 leased/4 buried/4 redriven/5/4 leased/5 buried/5",
        "discarded offered/6 leased/6 buried/6 discarded/6",
    )
    assertDataFrameEqual(
        state_from_events.folded_dead(events).select("queue_id", "key", "version"),
        local_frame(spark, [(1, "kept", 1), (1, "twice", 5)], DEAD),
    )


def test_impossible_sequences_of_events_are_detected(spark: SparkSession) -> None:
    impossible = events_of(
        spark,
        "no-beginning leased/1",
        "acked-unleased offered/2 acked/2",
        "acked-twice offered/3 leased/3 acked/3 acked/3",
        "leased-twice offered/4 leased/4 leased/4",
        "offered-twice offered/5 offered/6",
        "other-version offered/7 leased/8",
        "revived-live offered/9 redriven/10/1",
        "after-the-end offered/11 dropped/11 nacked/11",
        "touched-too-late offered/12 leased/12 expired/12 touched/12",
        "held-after-an-edit offered/13 leased/13 edited/14 acked/14",
    )
    rows = state_from_events.impossible(state_from_events.in_sequence(impossible), [])
    assert {row.key for row in rows.collect()} == {row.key for row in impossible.collect()}


def test_a_queue_whose_beginning_is_gone_may_begin_with_anything(spark: SparkSession) -> None:
    sequence = state_from_events.in_sequence(events_of(spark, "a leased/1 acked/1", "b nacked/2 acked/2"))
    assert {row.key for row in state_from_events.impossible(sequence, [1]).collect()} == {"b"}


def test_two_sides_are_compared_as_sets_and_doubles_count(spark: SparkSession) -> None:
    schema = "queue_id int, key string, version long"
    expected = local_frame(spark, [(1, "same", 1), (1, "gone", 2), (1, "other", 3), (1, "double", 4)], schema)
    differences = local_frame(
        spark, [(1, "same", 1), (1, "other", 9), (1, "double", 4), (1, "double", 4), (1, "extra", 5)], schema
    )
    differ = {
        row.key: (row.expected, row.found, row.times)
        for row in state_from_events.compared(expected, differences, ("queue_id", "key")).collect()
    }
    assert differ == {
        "gone": ((2,), None, None),
        "other": ((3,), (9,), 1),
        "double": ((4,), (4,), 2),
        "extra": (None, (5,), 1),
    }


def test_an_id_that_is_there_twice_is_found(spark: SparkSession) -> None:
    events = events_of(spark, "a offered/1 leased/1")
    assertDataFrameEqual(
        state_from_events.doubled(events.union(events.where("id = 2"))),
        local_frame(spark, [(2, 2)], "id long, times long"),
    )
