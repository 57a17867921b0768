"""The transitions of a message as the page draws them, and its state as Python and the database derive it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import NamedTuple

import psycopg
from psycopg.types.json import Jsonb

from tarry.core.messages.states import LIVE, State, live_state
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
