"""The history of a key, and a queue at an instant, as folds of events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from tarry.core.journal.events import Event
from tarry.core.journal.events import EventKind as K
from tarry.core.journal.history import Phase, history
from tarry.core.journal.past import StateSource, past_messages
from tarry.core.messages.model import StoredMessage
from tarry.core.messages.states import State

START = datetime(2030, 1, 1, tzinfo=UTC)
_ids = count(1)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def event(kind: K, seconds: float, key: str = "a", **fields: Any) -> Event:
    return Event(id=next(_ids), kind=kind, at=at(seconds), queue="q", key=key, **fields)


RETRIED = [
    event(K.OFFERED, 0, due_at=at(10)),
    event(K.LEASED, 12, due_at=at(10), attempt=1, consumer="w", lease_until=at(42)),
    event(K.TOUCHED, 13, attempt=1, consumer="w", lease_until=at(60)),
    event(K.NACKED, 15, due_at=at(20), attempt=1, error="boom", consumer="w"),
    event(K.LEASED, 20, due_at=at(20), attempt=2, consumer="w", lease_until=at(50)),
    event(K.ACKED, 21, attempt=2, consumer="w"),
]


def test_delay_wait_and_work_add_up_to_the_life_of_a_message() -> None:
    past = history(RETRIED, at(100))
    totals = {phase: past.total(phase).total_seconds() for phase in Phase}
    assert totals == {Phase.DELAYED: 15, Phase.READY: 2, Phase.WORK: 4, Phase.ABSENT: 0}
    assert [(a.number, a.outcome, a.error, a.extended) for a in past.attempts] == [
        (1, "nacked", "boom", 1),
        (2, "acked", None, 0),
    ]


def test_an_attempt_that_is_not_over_runs_until_now() -> None:
    past = history(RETRIED[:2], at(30))
    assert past.attempts[0].outcome == "running"
    assert past.attempts[0].ended_at is None
    assert past.total(Phase.WORK) == timedelta(seconds=18)


def test_a_lease_that_ran_out_ends_its_attempt_before_an_event_records_it() -> None:
    past = history(RETRIED[:3], at(100))
    assert [(attempt.outcome, attempt.ended_at) for attempt in past.attempts] == [("expired", at(60))]
    assert past.total(Phase.WORK) == timedelta(seconds=48)
    assert past.spans[-1] == (Phase.READY, at(60), at(100), 1)


def test_a_history_without_its_beginning_is_still_read() -> None:
    assert [a.outcome for a in history(RETRIED[3:], at(100)).attempts] == ["acked"]
    assert history([], at(0)).spans == []


def test_between_two_lives_of_a_key_it_is_absent() -> None:
    past = history([*RETRIED, event(K.OFFERED, 60, due_at=at(60))], at(70))
    assert past.total(Phase.ABSENT) == timedelta(seconds=39)


def states(instant: float, events: list[Event], live: list[StoredMessage[bytes]] | None = None) -> dict[str, State]:
    before = [e for e in reversed(events) if e.at <= at(instant)]
    after = [e for e in events if e.at > at(instant)]
    return {row.key: row.state for row in past_messages(at(instant), before, after, live or [])}


def test_a_message_is_found_in_each_of_its_states() -> None:
    result = {second: states(second, RETRIED) for second in (5, 11, 14, 16, 20.5, 50)}
    assert result == {
        5: {"a": State.DELAYED},
        11: {"a": State.READY},
        14: {"a": State.LEASED},
        16: {"a": State.DELAYED},
        20.5: {"a": State.LEASED},
        50: {},
    }


def test_a_buried_message_is_dead_until_it_is_redriven() -> None:
    events = [*RETRIED[:4], event(K.BURIED, 16), event(K.REDRIVEN, 30, due_at=at(30))]
    assert [states(second, events) for second in (18, 31)] == [{"a": State.DEAD}, {"a": State.READY}]


def test_what_had_no_event_before_is_known_from_later_ones_and_from_now() -> None:
    later = [event(K.LEASED, 40, "b", due_at=at(1)), event(K.OFFERED, 41, "c", due_at=at(41))]
    live = StoredMessage(
        queue="q",
        key="d",
        payload=b"",
        version=4,
        state=State.DELAYED,
        attempt=0,
        priority=0,
        due_at=at(99),
        created_at=at(0),
    )
    result = past_messages(at(20), [], later, [live])
    assert {row.key: (row.state, row.source) for row in result} == {
        "b": (State.READY, StateSource.AFTER),
        "d": (State.DELAYED, StateSource.NOW),
    }
