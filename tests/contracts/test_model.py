"""Memory, PostgreSQL and Redis, side by side with a model, over random lives: they never disagree.

HYPOTHESIS_PROFILE=deep looks for longer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from tarry import Conflict, Message, QueueSettings, Retry
from tarry.core.journal.events import Event
from tarry.core.limits import PURGE_CONFIRMATION
from tarry.core.messages.model import Failure, LeaseId
from tests.contracts.model import FIRST_RETRY, LEASE_FOR, MAX_ATTEMPTS, Model, Wish
from tests.kit.backends import Backend, Backends, new_name
from tests.kit.clocks import START
from tests.kit.steps import SECOND

KEYS = "abcde"
SETTINGS = QueueSettings(
    lease_for=LEASE_FOR, max_attempts=MAX_ATTEMPTS, retry=Retry.exponential(FIRST_RETRY, jitter=0.0)
)

keys = st.sampled_from(KEYS)
types = st.sampled_from([None, None, "x"])
waits = st.integers(0, 6).map(lambda n: n * 5 * SECOND)
leases = st.sampled_from([None, None, 5 * SECOND, 90 * SECOND])
wishes = st.builds(
    Wish,
    key=keys,
    payload=st.integers(0, 2),
    due=waits | st.integers(-2, 6).map(lambda n: START + n * 10 * SECOND),
    rule=st.sampled_from(["replace", "replace", "keep", "earliest", "debounce"]),
    max_wait=st.sampled_from([10 * SECOND, 25 * SECOND]),
    priority=st.sampled_from([0, 0, 5, 9]),
    type=types,
    max_attempts=st.sampled_from([None, None, 1, 2]),
)
Grant = tuple[str, int, tuple[LeaseId, ...]]


def conflict(wish: Wish) -> Conflict:
    return Conflict.debounce(wish.max_wait) if wish.rule == "debounce" else getattr(Conflict, wish.rule)()


def message(wish: Wish) -> Message[int]:
    at = wish.due if isinstance(wish.due, datetime) else None
    after = wish.due if isinstance(wish.due, timedelta) else None
    return Message(
        key=wish.key,
        payload=wish.payload,
        at=at,
        after=after,
        priority=wish.priority,
        type=wish.type,
        max_attempts=wish.max_attempts,
        conflict=conflict(wish),
    )


def folded(events: Sequence[Event]) -> tuple[int, int] | None:
    """The end of a key's timeline: version and attempt of the live message, or that there is none."""
    live: tuple[int, int] | None = None
    for event in events:
        assert event.version is not None
        assert event.attempt is not None
        match event.kind.value:
            case "offered" | "redriven":
                assert live is None, "a live message was created again"
                live = (event.version, 0)
            case "updated":
                assert live is not None
                assert event.version > live[0]
                live = (event.version, 0)
            case "edited":
                assert live is not None
                assert event.version > live[0]
                live = (event.version, event.attempt)
            case "leased":
                assert live == (event.version, event.attempt - 1)
                live = (event.version, event.attempt)
            case "released":
                assert live == (event.version, event.attempt + 1)
                live = (event.version, event.attempt)
            case "touched" | "nacked" | "expired" | "refused":
                assert live == (event.version, event.attempt)
            case "acked" | "buried" | "dropped":
                assert live == (event.version, event.attempt)
                live = None
            case "discarded":
                pass
            case other:
                raise AssertionError(f"{other} is not a part of this play")
    return live


class SideBySide(RuleBasedStateMachine):
    grants = Bundle("grants")

    def __init__(self, backends: Sequence[Backend]) -> None:
        super().__init__()
        self.model = Model()
        self.now = START
        self.lease_ids: dict[int, tuple[LeaseId, ...]] = {}
        self.backends = backends
        self.apps = [backend.app("tester") for backend in backends]
        name = new_name()
        self.queues = [app.queue(name) for app in self.apps]

    @initialize()
    def begin(self) -> None:
        self.set_clocks()
        for app, queue in zip(self.apps, self.queues, strict=True):
            app.queues.create(queue.name, SETTINGS)
        self.offer_many([Wish(key, 0, START) for key in KEYS])

    def set_clocks(self) -> None:
        for backend in self.backends:
            backend.clock.set(self.now)

    def agree(self, expected: Any, operation: Callable[..., Any], *per_store: Sequence[Any]) -> None:
        """Every store must return what the model returns; `per_store` has one argument for each of them."""
        for i, backend in enumerate(self.backends):
            result = operation(self.queues[i], *(arguments[i] for arguments in per_store))
            assert result == expected, f"{backend.name} returns {result}, and the model {expected}"

    @rule(wish=wishes)
    def offer(self, wish: Wish) -> None:
        at = wish.due if isinstance(wish.due, datetime) else None
        after = wish.due if isinstance(wish.due, timedelta) else None
        options: dict[str, Any] = {
            "priority": wish.priority, "type": wish.type, "max_attempts": wish.max_attempts, "conflict": conflict(wish),
        }  # fmt: skip
        expected = self.model.offer(wish, self.now)
        self.agree(expected, lambda q: q.offer(wish.key, wish.payload, at=at, after=after, **options))

    @rule(batch=st.lists(wishes, max_size=6))
    def offer_many(self, batch: list[Wish]) -> None:
        expected = self.model.offer_many(batch, self.now)
        self.agree(expected, lambda q: q.offer_many([message(wish) for wish in batch]))

    @rule(target=grants, n=st.integers(0, 3), type=types, lease_for=leases)
    def poll(self, n: int, type: str | None, lease_for: timedelta | None) -> Any:
        return self.polled(n, type, lease_for)

    @rule(target=grants)
    def poll_all(self) -> Any:
        return self.polled(len(KEYS) + 1, None, None)

    @rule(target=grants)
    def wait_and_poll(self) -> Any:
        self.advance(35)
        return self.polled(2, None, None)

    def polled(self, n: int, type: str | None, lease_for: timedelta | None) -> Any:
        expected = self.model.poll(n, self.now, type=type, lease_for=lease_for)
        fields = [
            (msg.wish.key, msg.wish.payload, msg.attempt, msg.wish.priority, msg.due_at, msg.lease_until)
            for msg in expected
        ]
        lease_ids: list[list[LeaseId]] = []
        for backend, queue in zip(self.backends, self.queues, strict=True):
            deliveries = queue.try_poll_many(n, type=type, lease_for=lease_for)
            delivered = [(d.key, d.payload, d.attempt, d.priority, d.due_at, d.lease_until) for d in deliveries]
            assert delivered == fields, f"{backend.name} delivers {delivered}, and the model {fields}"
            lease_ids.append([delivery.lease_id for delivery in deliveries])
        of_each = [tuple(of_stores) for of_stores in zip(*lease_ids, strict=True)]
        self.lease_ids |= {m.grant or 0: held for m, held in zip(expected, of_each, strict=True)}
        return multiple(*((m.wish.key, m.grant, held) for m, held in zip(expected, of_each, strict=True)))

    @rule(grant=grants)
    def ack(self, grant: Grant) -> None:
        key, number, lease_ids = grant
        self.agree(
            [self.model.settle(key, number, self.model.ack)], lambda q, lease_id: q.leases.ack([lease_id]), lease_ids
        )

    @rule(grant=grants, delay=st.sampled_from([None, None, 0 * SECOND, 7 * SECOND]))
    def nack(self, grant: Grant, delay: timedelta | None) -> None:
        key, number, lease_ids = grant
        expected = self.model.settle(key, number, lambda msg: self.model.nack(msg, self.now, delay))
        self.agree([expected], lambda q, lease_id: q.leases.nack([Failure(lease_id, "failed", delay)]), lease_ids)

    @rule(delay=st.sampled_from([None, 0 * SECOND]))
    def nack_everything_held(self, delay: timedelta | None) -> None:
        """In one batch, and only with leases that are good: so that lives reach their last attempt."""
        held = [(msg, self.lease_ids[msg.grant]) for msg in self.model.live.values() if msg.grant is not None]
        expected = [
            self.model.settle(m.wish.key, m.grant or 0, lambda m: self.model.nack(m, self.now, delay)) for m, _ in held
        ]
        of_stores = [
            [Failure(lease_ids[i], "failed", delay) for _, lease_ids in held] for i in range(len(self.backends))
        ]
        self.agree(expected, lambda q, failures: q.leases.nack(failures), of_stores)

    @rule(grant=grants, lease_for=leases)
    def touch(self, grant: Grant, lease_for: timedelta | None) -> None:
        key, number, lease_ids = grant
        expected = self.model.settle(key, number, lambda msg: self.model.touch(msg, self.now, lease_for))
        self.agree([expected], lambda q, lease_id: q.leases.touch([lease_id], lease_for), lease_ids)

    @rule(grant=grants)
    def release(self, grant: Grant) -> None:
        key, number, lease_ids = grant
        self.agree(
            [self.model.settle(key, number, self.model.release)],
            lambda q, lease_id: q.leases.release([lease_id]),
            lease_ids,
        )

    @rule(grant=consumes(grants))
    def bury(self, grant: Grant) -> None:
        key, number, lease_ids = grant
        expected = self.model.settle(key, number, lambda msg: self.model.bury(msg, self.now))
        self.agree([expected], lambda q, lease_id: q.leases.bury([lease_id], "hopeless"), lease_ids)

    @rule(some=st.lists(grants, max_size=4))
    def ack_many(self, some: list[Grant]) -> None:
        expected = [self.model.settle(key, number, self.model.ack) for key, number, _ in some]
        of_stores = [[lease_ids[i] for _, _, lease_ids in some] for i in range(len(self.backends))]
        self.agree(expected, lambda q, lease_ids: q.leases.ack(lease_ids), of_stores)

    @rule(
        key=keys,
        force=st.booleans(),
        wait=st.none() | waits,
        payload=st.integers(0, 2),
        priority=st.sampled_from([0, 5]),
    )
    def edit(self, key: str, force: bool, wait: timedelta | None, payload: int, priority: int) -> None:
        changes: Any = {"payload": payload, "priority": priority}
        expected = self.model.edit(key, self.now, force=force, wait=wait, **changes)
        due: Any = {} if wait is None else {"after": wait}
        self.agree(expected, lambda q: q.edit(key, force=force, **due, **changes))

    @rule(key=keys, seen=st.sampled_from([None, 0, 1]))
    def drop(self, key: str, seen: int | None) -> None:
        """Without a version, with the one that is live, and with one that is not."""
        versions = [
            None if seen is None or (message := queue.read(key)) is None else message.version + seen * 10**9
            for queue in self.queues
        ]
        drops = key in self.model.live and seen != 1
        if drops:
            del self.model.live[key]
        self.agree(drops, lambda q, version: q.drop(key, version=version), versions)

    @rule(
        what=st.sampled_from(["resume", "resume", "pause", "redrive", "redrive", "drop all"]), limit=st.integers(0, 3)
    )
    def look_after(self, what: str, limit: int) -> None:
        """What happens seldom is one rule, so that it stays seldom."""
        if what == "drop all":
            expected = len(self.model.live)
            self.model.live.clear()
            self.agree(expected, lambda q: q.purge(PURGE_CONFIRMATION))
        elif what == "redrive":
            self.agree(self.model.redrive(limit, self.now), lambda q: q.dead_letters.redrive(limit=limit))
        else:
            self.model.paused = what == "pause"
            for app, queue in zip(self.apps, self.queues, strict=True):
                (app.queues.pause if self.model.paused else app.queues.resume)(queue.name)

    @rule(seconds=st.sampled_from([1, 5, 10, 31, 95, -5]))
    def advance(self, seconds: int) -> None:
        """Also backward: clocks in the field do that."""
        self.now += seconds * SECOND
        self.set_clocks()

    @rule(key=keys)
    def read(self, key: str) -> None:
        msg = self.model.live.get(key)
        expected = msg and (msg.wish.payload, msg.state(self.now), msg.attempt, msg.due_at, msg.lease_until)

        def look(queue: Any) -> Any:
            message = queue.read(key)
            return message and (message.payload, message.state, message.attempt, message.due_at, message.lease_until)

        self.agree(expected, look)

    @invariant()
    def lists_are_equal(self) -> None:
        """Of the memory store after every step, since that costs nothing; of PostgreSQL at the end."""
        self.compare(0)

    def compare(self, i: int) -> None:
        app, queue = self.apps[i], self.queues[i]
        expected = [
            (m.wish.key, str(m.wish.payload).encode(), m.state(self.now), m.attempt, m.due_at, m.max_attempts)
            for m in sorted(self.model.live.values(), key=lambda m: (m.due_at, m.number))
        ]
        listed = [
            (m.key, m.payload, m.state, m.attempt, m.due_at, m.max_attempts)
            for m in app.store.run(app.store.messages.list(queue.name))
        ]
        assert listed == expected

    def teardown(self) -> None:
        for i, (app, queue) in enumerate(zip(self.apps, self.queues, strict=True)):
            self.compare(i)
            letters = [(d.key, d.attempt, d.reason, d.died_at) for d in queue.dead_letters.list()]
            assert letters == [
                (dead.msg.wish.key, dead.msg.attempt, dead.reason, dead.died_at)
                for dead in reversed(self.model.letters())
            ]
            live = {m.key: (m.version, m.attempt) for m in app.store.run(app.store.messages.list(queue.name))}
            ends = {key: folded(app.store.run(app.store.journal.timeline(queue.name, key))) for key in KEYS}
            assert {key: end for key, end in ends.items() if end is not None} == live


def test_the_stores_never_disagree_with_the_model(backends: Backends) -> None:
    side_by_side = [backends.get("memory"), backends.get("postgres-18-async"), backends.get("redis-async")]
    run_state_machine_as_test(lambda: SideBySide(side_by_side))  # pyright: ignore[reportArgumentType]
