"""A standby in place of its primary: what was accepted with a synchronous standby is there after its promotion."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tarry
from tests.kit.standby import standby_of
from tests.storage.fallible import FallibleServer, fallible_server


@pytest.fixture
def primary() -> Iterator[FallibleServer]:
    with fallible_server() as server:
        yield server


def test_what_was_accepted_with_a_synchronous_standby_is_delivered_after_its_promotion(primary: FallibleServer) -> None:
    with standby_of(primary.dsn, synchronous=True) as standby:
        with tarry.connect(primary.dsn) as app:
            app.queues.create("q")
            for n in range(5):
                app.queue("q").offer(f"k{n}", n)
        primary.stop()
        standby.promote()
        with tarry.connect(standby.dsn) as app:
            assert sorted(one.key for one in app.queue("q").try_poll_many(10)) == [f"k{n}" for n in range(5)]


def test_what_a_standby_did_not_receive_is_not_there_after_its_promotion(primary: FallibleServer) -> None:
    """Asynchronous replication: this loss is documented. The test is of the kit that other tests rely on."""
    with standby_of(primary.dsn) as standby:
        with tarry.connect(primary.dsn) as app:
            app.queues.create("q")
            app.queue("q").offer("received", 1)
            standby.await_caught_up()
            standby.pause_receive()
            app.queue("q").offer("behind", 1)
        primary.stop()
        standby.promote()
        with tarry.connect(standby.dsn) as app:
            assert [one.key for one in app.queue("q").try_poll_many(10)] == ["received"]
