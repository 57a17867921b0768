"""What a single message costs in the client: calls of Python functions are counted, never timed."""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

import tarry
from tarry.api._sync.delivery import Delivery
from tarry.api._sync.queue import Queue
from tarry.app import App
from tarry.storage.postgres._sync.store import PostgresStore
from tests.kit.settings import FOR_TESTS

SOURCES = str(Path(tarry.__file__).parent)


@pytest.fixture
def app(database: str) -> Iterator[App]:
    with App(PostgresStore(database, settings=FOR_TESTS), dsn=database) as app:
        yield app


def called(work: Callable[[], Any]) -> list[CodeType]:
    codes: list[CodeType] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            codes.append(frame.f_code)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return codes


def test_the_calls_of_an_offer_a_poll_and_an_ack_are_few(app: App) -> None:
    queue = app.queue("orders")
    for _ in range(4):  # prepares the statements
        queue.offer(None, {"order": 17})
    for _ in range(2):
        _polled(queue).ack()
    delivery = _polled(queue)
    for work, most in ((lambda: queue.offer(None, {"order": 17}), 38), (delivery.ack, 35), (queue.try_poll, 38)):
        codes = called(work)
        # How often the cursor looks depends on how long the polls before took, not on the code.
        chosen = [code for code in codes if not code.co_filename.endswith("/messages/cursor.py")]
        ours = [code.co_qualname for code in chosen if code.co_filename.startswith(SOURCES)]
        assert 20 < len(ours) <= most, ", ".join(ours)
        # Annotations of an inner function are evaluated with every call of the outer one, unless they are kept as text.
        assert typing.__file__ not in {code.co_filename for code in codes}


def _polled(queue: Queue[Any]) -> Delivery[Any]:
    delivery = queue.try_poll()
    assert delivery is not None
    return delivery
