"""The transitions of a message as the page draws them, and its state as Python and the database derive it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg.types.json import Jsonb

from tarry.api._sync.delivery import Delivery
from tarry.api._sync.queue import Queue
from tarry.core.messages.states import LIVE, State, live_state
from tarry.testing import MutableClock, memory_app
from tests.kit.servers import Server

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "states.md"
NOW = datetime(2024, 1, 1, tzinfo=UTC)
INSTANTS = [NOW + timedelta(microseconds=n) for n in (-10_000_000, -1, 0, 1, 10_000_000)]


class Transition(NamedTuple):
    """Source None: the message does not exist yet. Target None: only its events remain."""

    source: State | None
    by: str
    target: State | None


def drawn() -> list[Transition]:
    (diagram,) = re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", PAGE.read_text(), re.DOTALL)
    arrows = [re.fullmatch(r"\s*(\S+) --> (\S+): (\S+)", line) for line in diagram.splitlines()]
    assert all(arrows), "a line of the diagram is no arrow"
    return [Transition(state(a[1]), a[3], state(a[2])) for a in arrows if a]


def state(name: str) -> State | None:
    return None if name == "[*]" else State(name)


TRANSITIONS = drawn()


def test_no_transition_is_drawn_twice() -> None:
    assert len(set(TRANSITIONS)) == len(TRANSITIONS)


def test_every_state_can_be_reached_and_every_live_one_can_be_left() -> None:
    assert {t.target for t in TRANSITIONS if t.target} == set(State)
    assert {t.source for t in TRANSITIONS if t.source} == {*LIVE, State.DEAD}


def test_an_offer_and_an_edit_lead_to_a_waiting_message_from_every_live_state() -> None:
    waiting = (State.DELAYED, State.READY)
    offers = {(t.source, t.target) for t in TRANSITIONS if t.by == "offer"}
    assert offers == set(product((None, *LIVE), waiting))
    assert {(t.source, t.target) for t in TRANSITIONS if t.by == "edit"} == set(product(LIVE, waiting))


def test_a_drop_ends_every_live_state_and_a_discard_a_dead_letter() -> None:
    ends = {(t.source, t.by) for t in TRANSITIONS if t.target is None}
    assert ends == {*((state, "drop") for state in LIVE), (State.DEAD, "discard")}


def test_only_a_lease_can_be_settled() -> None:
    settles = {"ack", "nack", "touch", "release", "bury", "expiry"}
    assert {t.source for t in TRANSITIONS if t.by in settles} == {State.LEASED}


CLOCK = MutableClock(NOW)
MINUTE = timedelta(minutes=1)
KEY = "a"
PREPARED: dict[State | None, Callable[[Queue[Any]], Delivery[Any] | None]] = {
    None: lambda queue: None,
    State.DELAYED: lambda queue: _offered(queue, after=MINUTE),
    State.READY: lambda queue: _offered(queue),
    State.LEASED: lambda queue: _leased(queue),
    State.DEAD: lambda queue: _buried(queue),
}
"""A queue whose message is in the state, and its delivery."""
VERBS: dict[str, Sequence[Callable[[Queue[Any], Any], object]]] = {
    "offer": [lambda queue, _: queue.offer(KEY, 2, after=MINUTE), lambda queue, _: queue.offer(KEY, 2)],
    "time": [lambda queue, _: CLOCK.advance(MINUTE)],
    "edit": [
        lambda queue, _: queue.edit(KEY, after=MINUTE, force=True),
        lambda queue, _: queue.edit(KEY, payload=2, after=timedelta(0), force=True),
    ],
    "poll": [lambda queue, _: queue.try_poll()],
    "touch": [lambda queue, delivery: delivery.touch()],
    "ack": [lambda queue, delivery: delivery.ack()],
    "nack": [
        lambda queue, delivery: delivery.nack(after=MINUTE),
        lambda queue, delivery: delivery.nack(after=timedelta(0)),
        lambda queue, delivery: _last(queue).nack(),
    ],
    "bury": [lambda queue, delivery: delivery.bury()],
    "release": [lambda queue, delivery: delivery.release(), lambda queue, delivery: delivery.release(after=MINUTE)],
    "expiry": [lambda queue, _: CLOCK.advance(MINUTE), lambda queue, _: _expired_for_good(queue)],
    "redrive": [lambda queue, _: queue.dead_letters.redrive()],
    "discard": [lambda queue, _: queue.dead_letters.discard()],
    "drop": [lambda queue, _: queue.drop(KEY)],
}


def _offered(queue: Queue[Any], **options: Any) -> None:
    queue.offer(KEY, 1, **options)


def _leased(queue: Queue[Any], **options: Any) -> Delivery[Any]:
    queue.offer(KEY, 1, lease_for=MINUTE, **options)
    delivery = queue.try_poll()
    assert delivery is not None
    return delivery


def _last(queue: Queue[Any]) -> Delivery[Any]:
    queue.drop(KEY)
    return _leased(queue, max_attempts=1)


def _expired_for_good(queue: Queue[Any]) -> None:
    _last(queue)
    CLOCK.advance(MINUTE)
    assert queue.try_poll() is None


def _buried(queue: Queue[Any]) -> None:
    _leased(queue).bury()


def _state_after(source: State | None, call: Callable[[Queue[Any], Any], object]) -> State | None:
    with memory_app(CLOCK) as app:
        queue = app.queue("orders")
        delivery = PREPARED[source](queue)
        call(queue, delivery)
        if stored := queue.read(KEY):
            return stored.state
        if queue.dead_letters.list():
            return State.DEAD
        kinds = [event.kind for event in app.store.run(app.store.journal.timeline("orders", KEY))]
        return State.DONE if kinds[-1] == "acked" else None


def test_the_verbs_lead_where_the_page_draws_and_nowhere_else() -> None:
    """Each verb from each state from which the page draws it, and each with every kind of arguments."""
    walked = {
        Transition(source, verb, _state_after(source, call))
        for source, verb in {(t.source, t.by) for t in TRANSITIONS}
        for call in VERBS[verb]
    }
    assert walked == set(TRANSITIONS)


def test_a_lease_counts_until_its_end_and_a_due_time_from_itself_on() -> None:
    second = timedelta(seconds=1)
    assert live_state(due_at=NOW, lease_until=None, now=NOW) is State.READY
    assert live_state(due_at=NOW + second, lease_until=None, now=NOW) is State.DELAYED
    assert live_state(due_at=NOW, lease_until=NOW + second, now=NOW) is State.LEASED
    assert live_state(due_at=NOW, lease_until=NOW, now=NOW) is State.READY
    assert live_state(due_at=NOW + second, lease_until=NOW + second, now=NOW) is State.LEASED


def test_the_database_derives_the_same_state_on_every_version(every_server: Server) -> None:
    query = "select tarry.message_state(jsonb_populate_record(null::tarry.message, %s), %s)"
    with psycopg.connect(every_server.shared) as conn:
        for due_at, lease_until in product(INSTANTS, [None, *INSTANTS]):
            row = {"due_at": due_at.isoformat(), "lease_until": lease_until.isoformat() if lease_until else "-infinity"}
            state = conn.execute(query, (Jsonb(row), NOW)).fetchone()
            assert state == (live_state(due_at=due_at, lease_until=lease_until, now=NOW).value,)
