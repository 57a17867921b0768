"""Requests that are carried out once: the answer is stored with the work, and said again when the request is."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from tarry import Queue
from tarry.app import App
from tarry.core.errors import HeldUp
from tarry.core.messages import Draft
from tarry.core.once import Answered, Once
from tarry.core.outcomes import Outcome
from tarry.storage.postgres.verbs import Verbs
from tests.kit.backends import HTTP, POSTGRES, Backend, new_name
from tests.kit.clocks import WatchedClock
from tests.kit.steps import EMPTY, HOUR, PATIENCE_S, SECOND, numbers, take

TWINS = 8


@pytest.fixture
def app(backend: Backend) -> App:
    if backend.name in HTTP:
        pytest.skip("answers are kept where the messages are")
    return backend.app("tester")


def asked(key: str | None = None, *, caller: str = "", said: bytes = b"x") -> Once:
    return Once(caller, key or uuid4().hex, said * 32)


def show(outcome: Outcome) -> Answered:
    return Answered(201 if outcome is Outcome.CREATED else 200, outcome.value.encode())


def offer_once(app: App, queue: Queue[Any], key: str, request: Once) -> Answered | None:
    return app.store.offer_once(queue.name, Draft(key, b"1"), request, show)


class Work:
    """Offers a message with the connection it is given, blocking or awaiting as the store wants it."""

    def __init__(self, backend: Backend, app: App, queue: str, *, broken: bool = False) -> None:
        self.done = 0
        self.broken = broken
        self._queue = queue
        self._store: Any = app.store
        self.do: Any = self._awaited if backend.name.endswith("-async") else self._blocking

    def _blocking(self, conn: Any) -> Answered:
        return self._answer(self._store.offer(self._queue, Draft("a", b"1"), conn=conn))

    async def _awaited(self, conn: Any) -> Answered:
        return self._answer(await self._store._target.offer(self._queue, Draft("a", b"1"), conn=conn))

    def _answer(self, outcome: Outcome) -> Answered:
        self.done += 1
        if self.broken:
            raise ValueError("broken")
        return show(outcome)


def offers(app: App, queue: Queue[Any], key: str) -> int:
    return sum(event.kind.value == "offered" for event in app.store.timeline(queue.name, key))


def test_what_is_said_again_is_answered_again_and_not_done_again(backend: Backend, app: App, queue: Queue[Any]) -> None:
    work, request = Work(backend, app, queue.name), asked()
    assert app.store.once(request, work.do) == Answered(201, b"created")
    take(queue).ack()
    assert app.store.once(request, work.do) == Answered(201, b"created", replayed=True)
    assert (work.done, numbers(app, queue)) == (1, EMPTY)


def test_an_offer_that_was_finished_before_it_was_said_again_is_no_second_message(app: App, queue: Queue[Any]) -> None:
    request = asked()
    assert offer_once(app, queue, "a", request) == Answered(201, b"created")
    take(queue).ack()
    assert offer_once(app, queue, "a", request) == Answered(201, b"created", replayed=True)
    assert (offers(app, queue, "a"), numbers(app, queue)) == (1, EMPTY)


def test_a_key_that_was_used_for_another_request_is_none(backend: Backend, app: App, queue: Queue[Any]) -> None:
    work = Work(backend, app, queue.name)
    offer_once(app, queue, "b", asked("k", caller=queue.name))
    other = asked("k", caller=queue.name, said=b"y")
    assert app.store.once(other, work.do) is None
    assert offer_once(app, queue, "c", other) is None
    assert (work.done, queue.contains("c")) == (0, False)


def test_the_same_key_of_another_caller_is_another_request(app: App, queue: Queue[Any]) -> None:
    for caller in (f"{queue.name}-1", f"{queue.name}-2"):
        answered = offer_once(app, queue, caller, asked("k", caller=caller))
        assert answered is not None
        assert not answered.replayed
    assert numbers(app, queue)[1] == 2


def test_a_request_that_failed_may_be_said_again(backend: Backend, app: App, queue: Queue[Any]) -> None:
    work, request = Work(backend, app, queue.name, broken=True), asked()
    with pytest.raises(ValueError, match="broken"):
        app.store.once(request, work.do)
    if backend.name in POSTGRES:
        assert not queue.contains("a"), "what it did was not taken back"
    work.broken = False
    answered = app.store.once(request, work.do)
    assert answered is not None
    assert not answered.replayed


def test_a_queue_that_is_missing_comes_into_being(backend: Backend, app: App) -> None:
    for name in (first := new_name(), second := new_name()):
        queue = app.queue(name)
        if name == first:
            assert app.store.once(asked(), Work(backend, app, name).do) == Answered(201, b"created")
        else:
            assert offer_once(app, queue, "a", asked()) == Answered(201, b"created")
        assert queue.contains("a")
    assert second != first


def test_twins_at_the_same_moment_make_one_message(app: App, queue: Queue[Any]) -> None:
    queue.offer("before", 1)
    request = asked()

    def say(number: int) -> Answered | None:
        while True:
            try:
                # Each with a key that it drew for itself, as a broker does where the request has none.
                return offer_once(app, queue, f"drawn-{number}", request)
            except HeldUp:  # the other was not through yet: as a client would
                continue

    with ThreadPoolExecutor(TWINS) as pool:
        answers = list(pool.map(say, range(TWINS), timeout=PATIENCE_S))
    assert sum(answer is not None and not answer.replayed for answer in answers) == 1
    assert numbers(app, queue) == (0, 2, 0, 0)


def test_answers_are_forgotten_in_steps(app: App, queue: Queue[Any], clock: WatchedClock) -> None:
    app.store.forget_answers(-HOUR * 24 * 365)
    requests = [asked() for _ in range(3)]
    for number, request in enumerate(requests):
        offer_once(app, queue, f"m{number}", request)
    clock.advance(HOUR)
    assert app.store.forget_answers(HOUR) == 0, "not older than an hour"
    clock.advance(SECOND)
    assert [app.store.forget_answers(HOUR, limit=2) for _ in range(3)] == [2, 1, 0]
    again = offer_once(app, queue, "m0", requests[0])
    assert again is not None
    assert not again.replayed


@pytest.mark.parametrize("backend", [name for name in POSTGRES if name.endswith("-async")], indirect=True)
def test_requests_of_many_tasks_share_a_commit_each_with_its_answer(
    app: App, queue: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.offer("before", 1)
    store: Any = app.store
    flushes: list[int] = []
    together = Verbs.offer_once

    def counted(verbs: Verbs, name: str, items: Any) -> Any:
        flushes.append(len(items))
        return together(verbs, name, items)

    monkeypatch.setattr(Verbs, "offer_once", counted)
    twice, used = asked(), asked("used")

    async def say() -> list[Answered | None]:
        told = [
            store._target.offer_once(queue.name, Draft(f"m{i}", b"1"), request, show)
            for i, request in enumerate([asked(), twice, twice, used, used._replace(fingerprint=b"z" * 32)])
        ]
        return await asyncio.gather(*told)

    answers = store._loop.run(say())
    created = Answered(201, b"created")
    assert answers == [created, created, created._replace(replayed=True), created, None]
    assert sum(flushes) == 5
    assert len(flushes) < 5
    assert [queue.contains(f"m{i}") for i in range(5)] == [True, True, False, True, False]
