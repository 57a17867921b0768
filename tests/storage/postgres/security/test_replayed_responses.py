"""An answer that is given again is as durable as the first: it waits for the synchronous standby too."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tarry.core.messages import Draft
from tarry.core.once import Answered, Once
from tarry.core.outcomes import Outcome
from tarry.core.settings import QueueSettings
from tarry.storage.postgres.sync import PostgresStore
from tests.kit.sleepers import until
from tests.kit.standby import standby_of
from tests.storage.fallible import fallible_server

REQUEST = Once("", "the same request", b"x" * 32)


def show(outcome: Outcome) -> Answered:
    return Answered(201, outcome.value.encode())


def offer_once(store: PostgresStore) -> Answered | None:
    return store.offer_once("orders", Draft("a", b"1"), REQUEST, show)


def once(store: PostgresStore) -> Answered | None:
    return store.once(REQUEST, lambda conn: show(store.offer("orders", Draft("a", b"1"), conn=conn)))


@pytest.mark.parametrize("ask", [offer_once, once])
def test_a_replayed_answer_waits_for_the_standby_and_survives_the_primary(
    ask: Callable[[PostgresStore], Answered | None],
) -> None:
    with fallible_server() as primary, standby_of(primary.dsn, synchronous=True) as standby:
        store = PostgresStore(primary.dsn)
        store.create_queue("orders", QueueSettings(), exist_ok=False)
        standby.pause_receive()
        with ThreadPoolExecutor(max_workers=1) as thread:
            answer = thread.submit(ask, store)
            (first,) = until_waiting_for_standby(primary.dsn, other_than=frozenset())
            primary.terminate()  # it is committed here, and nowhere else
            until(lambda: answer.done() or waiting_for_standby(primary.dsn) - {first}, "no second try")
            assert not answer.done(), "answered, though the standby does not have it"
            standby.resume_receive()
            assert answer.result() == Answered(201, b"created", replayed=True)
        store.close()
        primary.stop()
        standby.promote()
        store = PostgresStore(standby.dsn)
        assert store.contains("orders", "a")
        store.close()


def until_waiting_for_standby(dsn: str, other_than: frozenset[int]) -> frozenset[int]:
    until(lambda: waiting_for_standby(dsn) - other_than, "no commit waits for the standby")
    return waiting_for_standby(dsn) - other_than


def waiting_for_standby(dsn: str) -> frozenset[int]:
    with psycopg.connect(dsn, application_name="test", autocommit=True) as conn:
        rows = conn.execute(
            "select pid from pg_stat_activity where wait_event = 'SyncRep' and application_name = 'tarry'"
        )
        return frozenset(pid for (pid,) in rows)
