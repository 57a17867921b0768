"""The sink and `offer_many` are equivalent: the same rows give the same messages, outcomes and events."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry import Conflict, Message, Outcome, Queue
from tarry.app import App
from tarry.core.analytics.bulk_offer import Rules, SinkWrite
from tarry.core.journal.events import JournalLevel
from tarry.core.settings import QueueSettings
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.testing import MutableClock
from tests.edges.spark.sink.sink_kit import offered, run_sql, staged_row
from tests.kit.clocks import START
from tests.kit.servers import Server
from tests.kit.settings import FOR_TESTS
from tests.kit.steps import MINUTE, SECOND

OUTCOMES = (Outcome.CREATED, Outcome.UPDATED, Outcome.IGNORED, Outcome.SUPERSEDED)
QUEUES = ("p", "q")
KEYS = ("a", "b", "c", "d\N{SNOWMAN}")
RULES = [Conflict.replace(), Conflict.keep(), Conflict.earliest(), Conflict.debounce(10 * SECOND)]
LATER = START + MINUTE
"""When the batch is offered; what was there before was offered at START."""

_LIVE = """
    select m.key, m.payload, m.content_type, m.due_at, m.planned_at, m.created_at, m.priority, m.conflict, m.type,
        m.headers::text, m.lease_for, m.max_attempts, m.retry, m.due_limit, m.origin, m.last_error, m.attempt, m.lapsed,
        m.token is null, m.consumer, nullif(m.lease_until, '-infinity'), m.leased_at, rank() over (order by m.version)
    from tarry.message m join tarry.queue q on q.id = m.queue where q.name = %s order by m.key
"""
_EVENTS = """
    select e.kind::text, e.at, e.key, e.attempt, e.priority, e.due_at, e.leased_at, e.lease_until, e.consumer, e.size,
        e.payload_hash, e.payload, e.error, e.detail::text, dense_rank() over (order by e.version)
    from tarry.event e join tarry.queue q on q.id = e.queue where q.name = %s and e.key is not null
    order by e.key, e.id
"""


class World:
    """One database with a pinned clock. Every comparison has queues of its own in it, each twice."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.clock = MutableClock(START)
        self.app = App(PostgresStore(dsn, clock=self.clock, settings=FOR_TESTS), dsn=dsn, consumer="me")
        self._turns = 0

    def turn(self) -> str:
        self.clock.set(START)
        self._turns += 1
        return f"{self._turns}"


@pytest.fixture(scope="module")
def world(server: Server) -> Iterator[World]:
    dsn = server.new_database()
    world = World(dsn)
    yield world
    world.app.close()
    server.drop_database(dsn)


@dataclass(frozen=True)
class Past:
    """What happened to a key before the batch."""

    key: str
    payload: int = 0
    after: timedelta = timedelta(0)
    conflict: Conflict = field(default_factory=Conflict.replace)
    then: str = "wait"
    """wait, lease, nack, ack or bury"""


@dataclass(frozen=True)
class Story:
    past: dict[str, list[Past]]
    batch: list[tuple[str, Message[Any]]]
    cuts: list[int]
    level: JournalLevel = JournalLevel.EVENTS

    def parts(self) -> list[list[tuple[str, Message[Any]]]]:
        edges = [0, *sorted(self.cuts), len(self.batch)]
        return [self.batch[start:end] for start, end in itertools.pairwise(edges)]


def live_through(queue: Queue[Any], past: Sequence[Past]) -> None:
    for each in past:
        queue.offer(each.key, each.payload, after=each.after, conflict=each.conflict)
        if each.then != "wait" and (delivery := queue.try_poll()) is not None:
            if each.then == "nack":
                delivery.nack(error="no", after=MINUTE)
            elif each.then != "lease":
                getattr(delivery, each.then)()


def state_after(world: World, story: Story) -> tuple[Counter[Outcome], SinkWrite, list[Any], list[Any]]:
    """The story twice: its batch through `offer_many`, and through the sink."""
    turn = world.turn()
    for name in QUEUES:
        for way in ("offered", "sunk"):
            world.app.queues.create(f"{turn}-{way}-{name}", QueueSettings(journal=story.level))
            live_through(world.app.queue(f"{turn}-{way}-{name}"), story.past.get(name, []))
    world.clock.set(LATER)
    outcomes: Counter[Outcome] = Counter()
    for name in QUEUES:
        messages = [message for queue, message in story.batch if queue == name]
        outcomes.update(world.app.queue(f"{turn}-offered-{name}").offer_many(messages))
    rules = Rules(conflict=story.batch[0][1].conflict if story.batch else Conflict.replace())
    rows = [[staged_row(f"{turn}-sunk-{queue}", message) for queue, message in part] for part in story.parts()]
    done = offered(world.dsn, rows, rules, now=LATER)
    return outcomes, done, seen(world, f"{turn}-offered"), seen(world, f"{turn}-sunk")


def seen(world: World, prefix: str) -> list[Any]:
    return [
        (name, run_sql(world.dsn, _LIVE, f"{prefix}-{name}"), run_sql(world.dsn, _EVENTS, f"{prefix}-{name}"))
        for name in QUEUES
    ]


def assert_parity(world: World, story: Story) -> SinkWrite:
    outcomes, done, by_offers, by_sink = state_after(world, story)
    assert by_sink == by_offers
    assert (done.created, done.updated, done.ignored, done.superseded) == tuple(outcomes[each] for each in OUTCOMES)
    assert done.rows == len(story.batch)
    return done


whens = st.one_of(
    st.just({}),
    st.builds(lambda s: {"at": START + s * SECOND}, st.sampled_from([0, 30, 60, 90])),
    st.builds(lambda s: {"after": s * SECOND}, st.sampled_from([0, 5, 30])),
)
pasts = st.builds(
    Past,
    key=st.sampled_from(KEYS),
    payload=st.integers(0, 1),
    after=st.sampled_from([0, 30, 90]).map(lambda s: s * SECOND),
    conflict=st.sampled_from(RULES),
    then=st.sampled_from(["wait", "wait", "lease", "nack", "ack", "bury"]),
)


@st.composite
def stories(draw: st.DrawFn, conflict: Conflict) -> Story:
    def message(**when: Any) -> Message[Any]:
        return Message(
            key=draw(st.sampled_from(KEYS)),
            payload=draw(st.integers(0, 1)),
            priority=draw(st.sampled_from([0, 0, 7])),
            type=draw(st.sampled_from([None, None, "t"])),
            headers=draw(st.sampled_from([None, None, {"h": "v", "ü": ""}])),
            max_attempts=draw(st.sampled_from([None, None, 3])),
            conflict=conflict,
            **when,
        )

    batch = [(draw(st.sampled_from(QUEUES)), message(**draw(whens))) for _ in range(draw(st.integers(0, 10)))]
    return Story(
        past={name: draw(st.lists(pasts, max_size=4)) for name in QUEUES},
        batch=batch,
        cuts=draw(st.lists(st.integers(0, len(batch)), max_size=3)),
        level=draw(st.sampled_from(JournalLevel)),
    )


@pytest.mark.parametrize("conflict", RULES, ids=lambda conflict: conflict.rule.value)
@settings(max_examples=25)
@given(data=st.data())
def test_any_rows_through_the_sink_are_the_same_offers(world: World, conflict: Conflict, data: st.DataObject) -> None:
    assert_parity(world, data.draw(stories(conflict)))


@pytest.mark.parametrize("conflict", RULES, ids=lambda conflict: conflict.rule.value)
def test_live_leased_and_identical_keys_are_treated_the_same(world: World, conflict: Conflict) -> None:
    past = [
        Past("same", after=30 * SECOND),
        Past("leased", then="lease"),
        Past("leased-same", then="lease"),
        Past("tried", then="nack"),
        Past("gone", then="ack"),
        Past("dead", then="bury"),
    ]
    batch = [
        Message(key="new", payload=1, at=START, conflict=conflict),
        Message(key="same", payload=0, at=START + 30 * SECOND, conflict=conflict),
        Message(key="leased", payload=1, at=START - SECOND, conflict=conflict),
        Message(key="leased-same", payload=0, at=START, conflict=conflict),
        Message(key="tried", payload=0, at=START, conflict=conflict),
        Message(key="gone", payload=0, at=START, conflict=conflict),
        Message(key="dead", payload=0, at=START, conflict=conflict),
    ]
    done = assert_parity(world, Story({"q": past}, [("q", message) for message in batch], cuts=[3]))
    changed = conflict.rule.value not in ("keep",)
    assert (done.created, done.updated, done.ignored) == ((3, 1, 3) if changed else (3, 0, 4))
