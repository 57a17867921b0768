"""Concurrent calls: nothing is lost, nothing is leased twice, and no call waits for ever."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from tarry import Message, Outcome, Queue, Settled
from tarry.app import App
from tarry.core.errors import InvalidState
from tarry.storage.postgres import statement
from tarry.storage.postgres.statement import sql
from tests.kit.backends import POSTGRES, Backend
from tests.kit.clocks import WatchedClock
from tests.kit.steps import EMPTY, MINUTE, TIMEOUT_S, all_at_once, keys, numbers

KEYS = 200


def drain(queue: Queue[Any], n: int = 7) -> list[str]:
    """Polls and acks until nothing comes; the keys that were acked."""
    done: list[str] = []
    while deliveries := queue.try_poll_many(n):
        outcomes = queue.leases.ack([delivery.lease_id for delivery in deliveries])
        done += [d.key for d, outcome in zip(deliveries, outcomes, strict=True) if outcome is Settled.DONE]
    return done


def test_the_same_keys_by_four_producers_are_created_once(app: App, queue: Queue[Any]) -> None:
    def produce() -> list[Outcome]:
        return [queue.offer(f"k{i}", i, can_update=False) for i in range(KEYS)]

    outcomes = [outcome for some in all_at_once([produce] * 4) for outcome in some]
    assert (outcomes.count(Outcome.CREATED), outcomes.count(Outcome.IGNORED)) == (KEYS, 3 * KEYS)
    acked = [key for some in all_at_once([lambda: drain(queue)] * 4) for key in some]
    assert sorted(acked) == sorted(f"k{i}" for i in range(KEYS))
    assert numbers(app, queue) == EMPTY


def test_four_producers_with_keys_of_their_own_lose_nothing(app: App, queue: Queue[Any]) -> None:
    def produce(producer: int) -> None:
        for i in range(250):
            queue.offer(f"p{producer}-{i}", i)

    all_at_once([lambda p=p: produce(p) for p in range(4)])
    assert len(set(drain(queue, 100))) == 1000


def test_batches_with_the_same_keys_in_opposite_order_do_not_deadlock(app: App, queue: Queue[Any]) -> None:
    batch = [Message(key=f"k{i}", payload=None) for i in range(50)]

    def offer(n: int) -> None:
        for turn in range(10):
            mine = [Message(key=m.key, payload=[n, turn]) for m in batch]
            queue.offer_many(mine if n % 2 else mine[::-1])

    all_at_once([lambda n=n: offer(n) for n in range(4)])
    assert numbers(app, queue) == (0, 50, 0, 0)


def test_settling_batches_in_opposite_order_does_not_deadlock(app: App, queue: Queue[Any], clock: WatchedClock) -> None:
    for _ in range(5):
        queue.offer_many([Message(key=f"k{i}", payload=0) for i in range(50)])
        lease_ids = [delivery.lease_id for delivery in queue.try_poll_many(50)]
        outcomes = all_at_once([partial(queue.leases.ack, lease_ids), partial(queue.leases.ack, lease_ids[::-1])])
        for pair in zip(outcomes[0], outcomes[1][::-1], strict=True):
            assert sorted(settled.value for settled in pair) == ["done", "gone"]
    assert numbers(app, queue) == EMPTY


def test_an_offer_that_races_an_ack_always_ends_and_is_never_lost(app: App, queue: Queue[Any]) -> None:
    """The row disappears between insert and update: the originals' offer could spin for ever here."""
    created = updated = acked = 0
    for turn in range(60):
        queue.offer("a", turn)
        deliveries = queue.try_poll_many(1)
        settled, outcome = all_at_once(
            [partial(queue.leases.ack, [d.lease_id for d in deliveries]), partial(queue.offer, "a", f"new {turn}")]
        )
        # Either the ack came first, and the offer made a new message; or the offer did, and the ack lost its lease.
        assert (settled, outcome) in [([Settled.DONE], Outcome.CREATED), ([Settled.LEASE_LOST], Outcome.UPDATED)]
        acked += settled == [Settled.DONE]
        created += outcome is Outcome.CREATED
        updated += outcome is Outcome.UPDATED
        message = queue.read("a")
        assert message is not None
        assert message.payload == f"new {turn}"
        queue.drop("a")
    assert (created, created + updated) == (acked, 60)


def test_an_update_that_races_a_poll_leaves_one_valid_lease_at_most(app: App, queue: Queue[Any]) -> None:
    for turn in range(30):
        queue.offer("a", f"old {turn}")
        (polled, _) = all_at_once([partial(queue.try_poll_many, 1), partial(queue.offer, "a", f"new {turn}")])
        late = queue.try_poll_many(1)
        held = [*polled, *late]
        outcomes = [delivery.ack() for delivery in held]
        assert outcomes.count(Settled.DONE) == 1
        assert held[outcomes.index(Settled.DONE)].payload == f"new {turn}"
        assert not queue.contains("a")


def test_a_message_is_never_in_two_hands_at_once(app: App, queue: Queue[Any]) -> None:
    queue.offer_many([Message(key=f"k{i}", payload=i) for i in range(KEYS)])
    taken = all_at_once([lambda: [keys(queue.try_poll_many(9)) for _ in range(10)]] * 4)
    everything = [key for consumer in taken for some in consumer for key in some]
    assert len(everything) == len(set(everything)) == KEYS


def test_one_of_two_different_settlements_wins(app: App, queue: Queue[Any]) -> None:
    for turn in range(20):
        queue.offer("a", turn)
        (delivery,) = queue.try_poll_many(1)
        first, second = all_at_once([delivery.ack, partial(delivery.bury, "no")])
        assert sorted([first.value, second.value]) == ["done", "gone"]
    assert numbers(app, queue)[:3] == (0, 0, 0)


@pytest.mark.parametrize("verb", ["ack", "nack", "release", "bury"])
def test_a_heartbeat_at_the_same_moment_never_costs_a_settle_its_lease(app: App, queue: Queue[Any], verb: str) -> None:
    for turn in range(10):
        queue.offer("a", turn)
        (delivery,) = queue.try_poll_many(1)
        touched, settled = all_at_once([delivery.touch, getattr(delivery, verb)])
        assert settled is Settled.DONE
        over = Settled.GONE if verb in ("ack", "bury") else Settled.LEASE_LOST
        assert touched in (Settled.DONE, Settled.BUSY, over)
        queue.drop("a")


def test_redriving_twice_at_once_makes_each_letter_live_once(app: App, queue: Queue[Any]) -> None:
    queue.offer_many([Message(key=f"k{i}", payload=i) for i in range(50)])
    queue.leases.bury([delivery.lease_id for delivery in queue.try_poll_many(50)])
    moved = all_at_once([lambda: queue.dead_letters.redrive()] * 3)
    moved.append(queue.dead_letters.redrive())
    assert sum(moved) == 50
    assert numbers(app, queue) == (0, 50, 0, 0)


@pytest.mark.parametrize("backend", POSTGRES, indirect=True)
def test_what_an_open_transaction_has_locked_is_skipped_not_waited_for(backend: Backend, queue: Queue[Any]) -> None:
    queue.offer("locked", 1, priority=9)
    queue.offer("free", 1)
    with backend.caller() as caller:
        (mine,) = queue.try_poll_many(1, conn=caller.conn)
        assert mine.key == "locked"
        assert keys(queue.try_poll_many(5)) == ["free"]
        caller.rollback()
    assert keys(queue.try_poll_many(5)) == ["locked"]


@pytest.mark.parametrize("backend", POSTGRES, indirect=True)
def test_an_offer_waits_for_the_transaction_that_locks_its_key(backend: Backend, queue: Queue[Any]) -> None:
    queue.offer("other", 1)
    with backend.caller() as caller:
        queue.offer("a", "theirs", conn=caller.conn)
        started = threading.Event()

        def offer() -> Outcome:
            started.set()
            return queue.offer("a", "mine")

        outcomes: list[Outcome] = []
        thread = threading.Thread(target=lambda: outcomes.append(offer()), daemon=True)
        thread.start()
        assert started.wait(TIMEOUT_S)
        caller.commit()
        thread.join(TIMEOUT_S)
    assert outcomes == [Outcome.UPDATED]
    message = queue.read("a")
    assert message is not None
    assert message.payload == "mine"


@pytest.mark.parametrize("backend", POSTGRES, indirect=True)
def test_deleting_a_queue_behind_a_long_transaction_is_refused_with_a_reason(
    backend: Backend, app: App, queue: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = "select set_config('lock_timeout', '50ms', true)"
    monkeypatch.setattr(statement, "sql", lambda file: soon if file == "queues/lock_timeout" else sql(file))
    app.queues.create(queue.name)
    with backend.caller() as caller:
        app.queue(queue.name + "-other").offer("a", 1, conn=caller.conn)
        with pytest.raises(InvalidState, match="transaction"):
            app.queues.delete(queue.name)
    assert app.queues.get(queue.name).name == queue.name


CONSUMER = """
import json, sys
import tarry
with tarry.connect(sys.argv[1]) as app:
    queue = app.queue(sys.argv[2])
    print("ready", flush=True)
    sys.stdin.readline()
    done = []
    while deliveries := queue.try_poll_many(5):
        answers = queue.leases.ack([d.lease_id for d in deliveries])
        done += [d.key for d, a in zip(deliveries, answers) if a is tarry.Settled.DONE]
    print(json.dumps(done), flush=True)
"""


@pytest.mark.parametrize("backend", ["postgres-18-async"], indirect=True)
def test_two_processes_share_the_work_and_no_message(backend: Backend, app: App, queue: Queue[Any]) -> None:
    queue.offer_many([Message(key=f"k{i}", payload=i) for i in range(KEYS)])
    assert backend.dsn is not None
    command = [sys.executable, "-c", CONSUMER, backend.dsn, queue.name]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(2)
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        outputs: list[list[str]] = [json.loads(process.communicate(timeout=TIMEOUT_S)[0]) for process in processes]
    assert sorted(outputs[0] + outputs[1]) == sorted(f"k{i}" for i in range(KEYS))
    assert numbers(app, queue) == EMPTY


def test_a_lapsed_lease_is_taken_over_by_exactly_one(app: App, queue: Queue[Any], clock: WatchedClock) -> None:
    queue.offer_many([Message(key=f"k{i}", payload=i) for i in range(40)])
    stale = [delivery.lease_id for delivery in queue.try_poll_many(40)]
    clock.advance(MINUTE)
    taken = all_at_once([lambda: queue.try_poll_many(20)] * 4)
    fresh = [delivery for some in taken for delivery in some]
    assert sorted(keys(fresh)) == sorted(lease_id.key for lease_id in stale)
    assert {delivery.attempt for delivery in fresh} == {2}
    assert queue.leases.ack(stale) == [Settled.LEASE_LOST] * 40
    assert queue.leases.ack([delivery.lease_id for delivery in fresh]) == [Settled.DONE] * 40
