"""Message facts on small journals, with the expected tables."""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tarry.edges.spark.sizing import local_frame
from tarry.edges.spark.transforms import facts
from tarry.edges.spark.transforms import history as tracing
from tests.edges.spark.journal_frames import Event, event, frame, plain, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FactsByStory = dict[str, list[dict[str, Any]]]

ENDED = ("version", "outcome", "reason", "settled_at")
COUNTED = ("version", "attempts", "redeliveries", "releases", "processing_s")

SIMPLE = [
    event("offered", 0, due=10, size=7, priority=3),
    event("leased", 12, due=10, attempt=1, leased=12, until=42, consumer="w1"),
    event("acked", 15.5, due=10, attempt=1, leased=12, until=42, consumer="w1"),
]
RETRIED = [
    event("offered", 0, due=0, size=7, priority=0),
    event("leased", 1, due=0, attempt=1, leased=1, until=31, consumer="w1"),
    event("nacked", 3, due=13, attempt=1, leased=1, consumer="w1", error="first"),
    event("leased", 20, due=13, attempt=2, leased=20, until=50, consumer="w2"),
    event("nacked", 24, due=13, attempt=2, leased=20, consumer="w2", error="second"),
    event("buried", 24, due=13, attempt=2, leased=20, consumer="w2", error="second", detail={"reason": "exhausted"}),
]
EXPIRED = [
    event("offered", 0, due=0),
    event("leased", 1, due=0, attempt=1, leased=1, until=31, consumer="w1"),
    event("touched", 20, due=0, attempt=1, leased=1, until=50, consumer="w1"),
    event("expired", 60, due=0, attempt=1),
    event("leased", 60, due=0, attempt=2, leased=60, until=90, consumer="w2"),
    # The poll that finds it exhausted names itself and its own lease.
    event("expired", 100, due=0, attempt=2, leased=100, consumer="w3"),
    event("buried", 100, due=0, attempt=2, leased=100, consumer="w3", detail={"reason": "exhausted"}),
]


RELEASED = [
    event("offered", 0, due=0),
    event("leased", 1, due=0, attempt=1, leased=1, until=31, consumer="w1"),
    event("released", 2, due=0, attempt=0),
]
SUPERSEDED = [
    event("offered", 0, 1, due=0),
    event("leased", 1, 1, due=0, attempt=1, leased=1, until=31, consumer="w1"),
    event("updated", 2, 5, due=9),
    event("refused", 3, 5, due=9),
    event("dropped", 4, 5, due=9),
]
EDITED = [
    event("offered", 0, 1, due=0),
    event("leased", 1, 1, due=0, attempt=1, leased=1, until=31, consumer="w1"),
    event("edited", 2, 5, due=9, size=3),
    event("leased", 9, 5, due=9, attempt=1, leased=9, until=39, consumer="w2"),
    event("acked", 10, 5, due=9, attempt=1, leased=9, consumer="w2"),
]
EARLY = [
    event("offered", 100, due=10),
    event("leased", 103, due=10, attempt=1, leased=103, until=133, consumer="w1"),
]
UNSEEN_END = [event("offered", 0, 1, due=0), event("offered", 50, 2, due=50), event("acked", 60, 2, leased=55)]
UNSEEN_OFFER = [event("leased", 5, due=1, attempt=1, leased=5, until=35, consumer="w"), event("acked", 6, leased=5)]
ELSEWHERE = {"queue_id": 2, "queue": "mails"}

STORIES: dict[str, list[Event]] = {
    "simple": SIMPLE,
    "retried": RETRIED,
    "expired": EXPIRED,
    "released": RELEASED,
    "superseded": SUPERSEDED,
    "edited": EDITED,
    "redriven": [*RETRIED, event("redriven", 90, 7, due=90, size=7, detail={"from_version": 1})],
    "discarded": [*RETRIED, event("discarded", 90, due=13, attempt=2)],
    "offered beside the dead": [*RETRIED, event("offered", 30, 9, due=30), event("updated", 31, 10, due=40)],
    "early": EARLY,
    "unseen end": UNSEEN_END,
    "unseen offer": UNSEEN_OFFER,
    "two queues": [
        event("offered", 0, due=0),
        event("offered", 0, due=0, **ELSEWHERE),
        event("dropped", 1, due=0, **ELSEWHERE),
    ],
}
JOURNAL = [{**event, "key": key} for key, story in STORIES.items() for event in story]


@pytest.fixture(scope="module")
def known(spark: SparkSession) -> DataFrame:
    """All stories in one journal, each under a key of its own."""
    return facts.fold(tracing.sequenced(frame(spark, JOURNAL)).localCheckpoint()).localCheckpoint()


@pytest.fixture(scope="module")
def facts_by_story(known: DataFrame) -> FactsByStory:
    rows = facts.published(known).orderBy("queue_id", "version").toArrow().to_pylist()
    return {key: [row for row in rows if row["key"] == key] for key in STORIES}


def of(facts_by_story: FactsByStory, story: str, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(plain(row[name]) for name in columns) for row in facts_by_story[story]]


def test_facts_have_the_columns_that_are_promised(known: DataFrame) -> None:
    schema = facts.published(known).schema
    assert [(field.name, field.dataType) for field in schema] == [(f.name, f.dataType) for f in facts.FACTS]


def test_a_message_that_went_well_has_one_row_with_everything(facts_by_story: FactsByStory) -> None:
    assert of(facts_by_story, "simple", *(name for name in facts.FACTS.names if name != "last_id")) == [
        (1, "orders", "simple", 1, None, 3, 7, 0.0, 10.0, 12.0, 15.5, "done", None, 1, 0, 0, 2.0, 3.5, "w1", None,
         date(2024, 1, 1)),
    ]  # fmt: skip


def test_a_dead_message_counts_its_attempts_and_keeps_its_last_error(facts_by_story: FactsByStory) -> None:
    assert of(facts_by_story, "retried", *ENDED, "last_error", "consumer") == [
        (1, "dead", "exhausted", 24.0, "second", "w2")
    ]
    assert of(facts_by_story, "retried", *COUNTED, "due_at", "wait_s") == [(1, 2, 0, 0, 6.0, 0.0, 1.0)]


def test_an_expiry_is_a_redelivery_unless_it_was_the_end(facts_by_story: FactsByStory) -> None:
    assert of(facts_by_story, "expired", *COUNTED, "outcome", "consumer") == [(1, 2, 1, 0, 0.0, "dead", "w2")]


def test_a_release_takes_its_attempt_back(facts_by_story: FactsByStory) -> None:
    assert of(facts_by_story, "released", *COUNTED, "outcome") == [(1, 0, 0, 1, 0.0, "live")]


def test_a_later_version_supersedes_an_earlier_one_even_while_it_is_leased(facts_by_story: FactsByStory) -> None:
    assert of(facts_by_story, "superseded", *ENDED) == [(1, "superseded", None, 2.0), (5, "dropped", None, 4.0)]


def test_an_edited_version_is_superseded_as_if_it_had_been_offered_anew(facts_by_story: FactsByStory) -> None:
    assert of(facts_by_story, "edited", *ENDED) == [(1, "superseded", None, 2.0), (5, "done", None, 10.0)]


def test_a_redriven_version_keeps_the_time_of_its_death_and_its_heir_knows_it(facts_by_story: FactsByStory) -> None:
    assert of(facts_by_story, "redriven", *ENDED, "origin") == [
        (1, "redriven", "exhausted", 24.0, None),
        (7, "live", None, None, 1),
    ]


def test_a_purged_dead_letter_stays_dead_and_is_not_carried_on(facts_by_story: FactsByStory, known: DataFrame) -> None:
    assert of(facts_by_story, "discarded", *ENDED) == [(1, "dead", "exhausted", 24.0)]
    assert table(facts.still_open(known).where("settled is not null"), "key") == [
        ("expired",),
        ("offered beside the dead",),
        ("retried",),
    ]


def test_a_new_offer_beside_a_dead_letter_supersedes_nothing(facts_by_story: FactsByStory) -> None:
    assert of(facts_by_story, "offered beside the dead", "version", "outcome") == [
        (1, "dead"),
        (9, "superseded"),
        (10, "live"),
    ]


def test_a_wait_never_begins_before_the_message_was_there(facts_by_story: FactsByStory) -> None:
    assert of(facts_by_story, "early", "wait_s") == [(3.0,)]


def test_what_ended_while_the_journal_was_off_is_unknown_and_does_not_live_for_ever(
    facts_by_story: FactsByStory,
) -> None:
    assert of(facts_by_story, "unseen end", *ENDED) == [(1, "unknown", None, 50.0), (2, "done", None, 60.0)]


def test_a_message_whose_offer_was_not_written_down_has_an_end_all_the_same(facts_by_story: FactsByStory) -> None:
    assert of(facts_by_story, "unseen offer", *ENDED, "offered_at", "wait_s") == [(1, "done", None, 6.0, None, None)]


def test_equal_versions_in_two_queues_are_two_messages(facts_by_story: FactsByStory) -> None:
    assert of(facts_by_story, "two queues", "queue", "outcome") == [("orders", "live"), ("mails", "dropped")]


def test_a_chain_of_batches_has_the_facts_of_one_pass(spark: SparkSession, known: DataFrame) -> None:
    # In the order of time, as they would be archived; what one statement writes has one time, and comes in one batch.
    whole = [{"id": i, "xid": i, **event} for i, event in enumerate(sorted(JOURNAL, key=lambda event: event["at"]), 1)]
    instants = sorted({event["at"] for event in whole})
    states = local_frame(spark, [], facts.OPEN)
    ended: list[tuple[Any, ...]] = []
    traced: list[tuple[Any, ...]] = []
    read = 0
    for number, (start, end) in enumerate(pairwise([0, 4, 9, len(instants)])):
        batch = frame(spark, [event for event in whole if event["at"] in instants[start:end]])
        carried = facts.still_open(facts.latest(facts.touched(states, batch))).localCheckpoint()
        read += carried.count()
        sequence = tracing.sequenced(batch, carried).localCheckpoint()
        known = facts.fold(sequence, carried).where("fresh").localCheckpoint()
        ended += table(facts.published(known.where("not is_open")), *facts.FACTS.names)
        traced += table(tracing.traced(sequence), *tracing.TRACED.names)
        changed = known.where("is_open or was_open").selectExpr(*facts.OPEN.names[:-1], f"{number}L as round")
        states = states.unionByName(changed).localCheckpoint()
    at_once = tracing.sequenced(frame(spark, whole)).localCheckpoint()
    still_open = facts.still_open(facts.latest(states)).localCheckpoint()
    rows = sorted([*ended, *table(facts.published(still_open), *facts.FACTS.names)], key=repr)
    assert rows == table(facts.published(facts.fold(at_once)), *facts.FACTS.names)
    assert sorted(traced, key=repr) == table(tracing.traced(at_once), *tracing.TRACED.names)
    assert 0 < read < still_open.count() * 2, "only open versions of keys with new events are read"
