"""Which setting applies where several are given: the table of docs/reference/settings-and-limits.md."""

from __future__ import annotations

from typing import Any

import pytest

from tarry import Queue, QueueSettings, Retry
from tarry.app import App
from tarry.core.messages.model import Failure
from tests.kit.backends import new_name
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import MINUTE, SECOND, seen, take


@pytest.fixture
def strict(app: App) -> Queue[Any]:
    settings = QueueSettings(lease_for=10 * SECOND, max_attempts=1, retry=Retry.fixed(10 * SECOND))
    app.queues.create(name := new_name(), settings)
    return app.queue(name)


@pytest.mark.parametrize(
    ("request_s", "message_s", "applies_s"), [(30, 20, 30), (None, 20, 20), (30, None, 30), (None, None, 10)]
)
def test_a_lease_lasts_as_in_the_request_else_the_message_else_the_queue(
    strict: Queue[Any], request_s: int | None, message_s: int | None, applies_s: int
) -> None:
    requested = None if request_s is None else request_s * SECOND
    strict.offer("a", 1, lease_for=None if message_s is None else message_s * SECOND)
    delivery = take(strict, lease_for=requested)
    assert delivery.lease_until == START + applies_s * SECOND
    delivery.touch(requested)
    assert seen(strict, "a").lease_until == START + applies_s * SECOND


@pytest.mark.parametrize(("message", "request_", "allowed"), [(3, 2, 3), (3, None, 3), (None, 2, 2), (None, None, 1)])
def test_the_attempts_are_those_of_the_message_then_of_the_request_then_of_the_queue(
    strict: Queue[Any], clock: WatchedClock, message: int | None, request_: int | None, allowed: int
) -> None:
    strict.offer("a", 1, max_attempts=message)
    delivered = 0
    while strict.try_poll_many(1, max_attempts=request_):
        delivered += 1
        clock.advance(MINUTE)
    assert (delivered, [letter.attempt for letter in strict.dead_letters.list()]) == (allowed, [allowed])


@pytest.mark.parametrize(
    ("message_s", "nack_s", "applies_s"), [(30, 20, 30), (30, None, 30), (None, 20, 20), (None, None, 10)]
)
def test_a_retry_is_delayed_as_in_the_message_else_the_nack_else_the_queue(
    strict: Queue[Any], message_s: int | None, nack_s: int | None, applies_s: int
) -> None:
    strict.offer("a", 1, max_attempts=5, retry=None if message_s is None else Retry.fixed(message_s * SECOND))
    strict.leases.nack([Failure(take(strict).lease_id)], retry=None if nack_s is None else Retry.fixed(nack_s * SECOND))
    assert seen(strict, "a").due_at == START + applies_s * SECOND
