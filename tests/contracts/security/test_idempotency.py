"""Requests that are carried out once: the response is stored with the work, and replayed for a repeated request."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from tarry import Queue
from tarry.app import App
from tarry.core.errors import LockTimeout, QueueFull
from tarry.core.messages.model import Draft
from tarry.core.messages.outcomes import Outcome
from tarry.core.security.idempotency import IdempotencyKey, StoredResponse
from tarry.storage.postgres.security import role as security
from tests.kit.backends import POSTGRES, Backend, new_name, where_the_messages_are
from tests.kit.clocks import WatchedClock
from tests.kit.steps import EMPTY, HOUR, SECOND, TIMEOUT_S, numbers, take

pytestmark = where_the_messages_are

TWINS = 8


@pytest.fixture
def app(backend: Backend) -> App:
    return backend.app("tester")


def idempotency_key(key: str | None = None, *, caller: str = "", request_hash: bytes = b"x") -> IdempotencyKey:
    return IdempotencyKey(caller, key or uuid4().hex, request_hash * 32)


def show(outcome: Outcome) -> StoredResponse:
    return StoredResponse(201 if outcome is Outcome.CREATED else 200, outcome.value.encode())


def offer_idempotent(app: App, queue: Queue[Any], key: str, request: IdempotencyKey) -> StoredResponse | None:
    return app.store.run(app.store.security.offer_idempotent(queue.name, Draft(key, b"1"), request, show))


class Work:
    """Offers a message with the connection it is given, blocking or awaiting as the store wants it."""

    def __init__(self, backend: Backend, app: App, queue: str, *, broken: bool = False) -> None:
        self.done = 0
        self.broken = broken
        self._queue = queue
        self._store: Any = app.store
        self.do: Any = self._awaited if backend.name.endswith("-async") else self._blocking

    def _blocking(self, conn: Any) -> StoredResponse:
        return self._response(self._store.run(self._store.messages.offer(self._queue, Draft("a", b"1")), conn=conn))

    async def _awaited(self, conn: Any) -> StoredResponse:
        offer = self._store.messages.offer(self._queue, Draft("a", b"1"))
        return self._response(await self._store._target.run(offer, conn=conn))

    def _response(self, outcome: Outcome) -> StoredResponse:
        self.done += 1
        if self.broken:
            raise ValueError("broken")
        return show(outcome)


def offers(app: App, queue: Queue[Any], key: str) -> int:
    return sum(event.kind.value == "offered" for event in app.store.run(app.store.journal.timeline(queue.name, key)))


def test_a_repeated_request_replays_the_response_and_does_nothing(
    backend: Backend, app: App, queue: Queue[Any]
) -> None:
    work, request = Work(backend, app, queue.name), idempotency_key()
    assert app.store.run_idempotent(request, work.do) == StoredResponse(201, b"created")
    take(queue).ack()
    assert app.store.run_idempotent(request, work.do) == StoredResponse(201, b"created", replayed=True)
    assert (work.done, numbers(app, queue)) == (1, EMPTY)


def test_an_offer_repeated_after_its_ack_stores_no_second_message(app: App, queue: Queue[Any]) -> None:
    request = idempotency_key()
    assert offer_idempotent(app, queue, "a", request) == StoredResponse(201, b"created")
    take(queue).ack()
    assert offer_idempotent(app, queue, "a", request) == StoredResponse(201, b"created", replayed=True)
    assert (offers(app, queue, "a"), numbers(app, queue)) == (1, EMPTY)


def test_a_key_that_was_used_for_another_request_is_none(backend: Backend, app: App, queue: Queue[Any]) -> None:
    work = Work(backend, app, queue.name)
    offer_idempotent(app, queue, "b", idempotency_key("k", caller=queue.name))
    other = idempotency_key("k", caller=queue.name, request_hash=b"y")
    assert app.store.run_idempotent(other, work.do) is None
    assert offer_idempotent(app, queue, "c", other) is None
    assert (work.done, queue.contains("c")) == (0, False)


def test_the_same_key_of_another_caller_is_another_request(app: App, queue: Queue[Any]) -> None:
    for caller in (f"{queue.name}-1", f"{queue.name}-2"):
        response = offer_idempotent(app, queue, caller, idempotency_key("k", caller=caller))
        assert response is not None
        assert not response.replayed
    assert numbers(app, queue)[1] == 2


def test_a_request_that_failed_may_be_repeated(backend: Backend, app: App, queue: Queue[Any]) -> None:
    work, request = Work(backend, app, queue.name, broken=True), idempotency_key()
    with pytest.raises(ValueError, match="broken"):
        app.store.run_idempotent(request, work.do)
    if backend.name in POSTGRES:
        assert not queue.contains("a"), "what it did was not taken back"
    work.broken = False
    response = app.store.run_idempotent(request, work.do)
    assert response is not None
    assert not response.replayed


def test_an_offer_to_a_full_queue_may_be_repeated_after_a_drop(app: App, queue: Queue[Any]) -> None:
    request = idempotency_key()
    queue.offer("a", 1)
    app.queues.edit(queue.name, max_depth=1)
    for _ in range(2):
        with pytest.raises(QueueFull):
            offer_idempotent(app, queue, "b", request)
    queue.drop("a")
    assert offer_idempotent(app, queue, "b", request) == StoredResponse(201, b"created")


def test_a_queue_that_is_missing_comes_into_being(backend: Backend, app: App) -> None:
    for name in (first := new_name(), second := new_name()):
        queue = app.queue(name)
        if name == first:
            assert app.store.run_idempotent(idempotency_key(), Work(backend, app, name).do) == StoredResponse(
                201, b"created"
            )
        else:
            assert offer_idempotent(app, queue, "a", idempotency_key()) == StoredResponse(201, b"created")
        assert queue.contains("a")
    assert second != first


def test_twins_at_the_same_moment_make_one_message(app: App, queue: Queue[Any]) -> None:
    queue.offer("before", 1)
    request = idempotency_key()

    def send(number: int) -> StoredResponse | None:
        while True:
            try:
                # Each with a key that it drew for itself, as a broker does where the request has none.
                return offer_idempotent(app, queue, f"drawn-{number}", request)
            except LockTimeout:  # the other was not through yet: as a client would
                continue

    with ThreadPoolExecutor(TWINS) as pool:
        responses = list(pool.map(send, range(TWINS), timeout=TIMEOUT_S))
    assert sum(outcome is not None and not outcome.replayed for outcome in responses) == 1
    assert numbers(app, queue) == (0, 2, 0, 0)


def test_responses_are_forgotten_in_steps(app: App, queue: Queue[Any], clock: WatchedClock) -> None:
    app.store.run(app.store.security.forget_responses(-HOUR * 24 * 365))
    requests = [idempotency_key() for _ in range(3)]
    for number, request in enumerate(requests):
        offer_idempotent(app, queue, f"m{number}", request)
    clock.advance(HOUR)
    assert app.store.run(app.store.security.forget_responses(HOUR)) == 0, "not older than an hour"
    clock.advance(SECOND)
    assert [app.store.run(app.store.security.forget_responses(HOUR, limit=2)) for _ in range(3)] == [2, 1, 0]
    again = offer_idempotent(app, queue, "m0", requests[0])
    assert again is not None
    assert not again.replayed


@pytest.mark.parametrize("backend", [name for name in POSTGRES if name.endswith("-async")], indirect=True)
def test_requests_of_many_tasks_share_a_commit_each_with_its_response(
    app: App, queue: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.offer("before", 1)
    store: Any = app.store
    flushes: list[int] = []
    together = security.offer_idempotent

    def counted(name: str, items: Any, now: Any, **options: Any) -> Any:
        flushes.append(len(items))
        return together(name, items, now, **options)

    monkeypatch.setattr(security, "offer_idempotent", counted)
    twice, used = idempotency_key(), idempotency_key("used")

    async def send() -> list[StoredResponse | None]:
        requests = [
            store._target.run(store.security.offer_idempotent(queue.name, Draft(f"m{i}", b"1"), request, show))
            for i, request in enumerate([idempotency_key(), twice, twice, used, used._replace(fingerprint=b"z" * 32)])
        ]
        return await asyncio.gather(*requests)

    responses = store._loop.run(send())
    created = StoredResponse(201, b"created")
    assert responses == [created, created, created._replace(replayed=True), created, None]
    assert sum(flushes) == 5
    assert len(flushes) < 5
    assert [queue.contains(f"m{i}") for i in range(5)] == [True, True, False, True, False]
