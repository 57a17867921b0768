"""A token has the random number of its poll and the place of its row: what it settles, and how many statements that takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tarry.core.messages.model import Draft, Lease, LeaseId
from tarry.core.messages.outcomes import Settled
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.messages.lease_tokens import lease_tokens, new_poll_number, poll_number, row_tids
from tarry.storage.postgres.operation import PostgresOperation
from tarry.storage.postgres.statement import Op, sql
from tests.kit.settings import FOR_TESTS

DONE, LEASE_LOST, GONE = Settled.DONE, Settled.LEASE_LOST, Settled.GONE
Q = "q"


@pytest.fixture
def store(database: str) -> Iterator[PostgresStore]:
    store = PostgresStore(database, settings=FOR_TESTS)
    yield store
    store.close()


@pytest.fixture
def admin(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as conn:
        yield conn


def offer(store: PostgresStore, *keys: str) -> None:
    store.run(store.messages.offer_many(Q, [Draft(key, b"1") for key in keys]))


def poll(store: PostgresStore, n: int) -> list[Lease[bytes]]:
    return store.run(store.messages.poll(Q, n, lambda data, _: data))


def ack(store: PostgresStore, *leases: Lease[bytes] | LeaseId) -> list[Settled]:
    lease_ids = [lease if isinstance(lease, LeaseId) else lease.lease_id for lease in leases]
    return store.run(store.messages.ack(Q, lease_ids))


def statements_of_ack(store: PostgresStore, *leases: Lease[bytes]) -> list[str]:
    """Ack them, and return the texts of the statements that it took."""
    texts: list[str] = []
    operation = store.messages.ack(Q, [lease.lease_id for lease in leases])

    def recorded(own: bool) -> Op[list[Settled]]:
        steps = operation.start(own)
        step = next(steps)
        try:
            while True:
                texts.append(step.sql)
                step = steps.send((yield step))
        except StopIteration as stop:
            return stop.value

    assert store.run(PostgresOperation(recorded)) == [DONE] * len(leases)
    return texts


def test_a_token_is_the_number_of_its_poll_and_the_row_tid() -> None:
    for number in (0, 1, 2**62 - 1, new_poll_number()):
        for where in (bytes(6), b"\x00\x00\x01\x02\x00\x07", b"\xff" * 6):
            token = lease_tokens(number, [where])[0]
            assert (token.version, token.variant) == (8, "specified in RFC 4122")
            assert (poll_number(token), row_tids([token])[0]) == (number, where)
            assert token == UUID(str(token)) == UUID(bytes=token.bytes)
            assert hash(token) == hash(UUID(str(token)))


def test_no_two_polls_have_the_same_number() -> None:
    numbers = {new_poll_number() for _ in range(10_000)}
    assert len(numbers) == 10_000
    assert max(number.bit_length() for number in numbers) == 62


def test_a_poll_stores_one_number_and_gives_each_message_a_token_of_its_own(
    store: PostgresStore, admin: psycopg.Connection[Any]
) -> None:
    offer(store, *"abc")
    leases = poll(store, 3)
    assert len({lease.token for lease in leases}) == 3
    assert admin.execute("select count(distinct token) from tarry.message").fetchone() == (1,)
    stored = {row[0] for row in admin.execute("select token from tarry.message")}
    assert {poll_number(lease.token) for lease in leases} == stored


def test_an_ack_goes_to_the_place_in_one_statement(store: PostgresStore) -> None:
    offer(store, *"abc")
    assert statements_of_ack(store, *poll(store, 3)) == [sql("messages/ack")]


def test_a_message_that_was_touched_is_acked_by_its_key(store: PostgresStore) -> None:
    offer(store, *"abc")
    a, b, c = poll(store, 3)
    assert store.run(store.messages.touch(Q, [b.lease_id])) == [DONE]
    expected = [sql("messages/ack"), sql("messages/live_leases"), sql("messages/ack_by_key")]
    assert statements_of_ack(store, a, b, c) == expected


def test_a_stale_token_settles_nothing_where_its_row_was_or_is(
    store: PostgresStore, admin: psycopg.Connection[Any]
) -> None:
    """The row moves with every poll, and then its old place is given to others."""
    offer(store, "a")
    (stale,) = poll(store, 1)
    admin.execute("update tarry.message set lease_until = '-infinity'")
    (current,) = poll(store, 1)
    assert row_tids([stale.token])[0] != row_tids([current.token])[0]
    assert ack(store, stale) == [LEASE_LOST]
    offer(store, "b")
    for key in ("a", "b"):  # the old number, with the place where the row is now
        forged = LeaseId(key, lease_tokens(poll_number(stale.token), row_tids([current.token]))[0])
        assert ack(store, forged) == [LEASE_LOST]
    assert ack(store, stale, current) == [LEASE_LOST, DONE]
    assert ack(store, stale) == [GONE]


def test_a_place_that_another_message_has_by_now_is_not_settled(
    store: PostgresStore, admin: psycopg.Connection[Any]
) -> None:
    offer(store, "a", "b")
    a, b = poll(store, 2)
    elsewhere = LeaseId("a", lease_tokens(poll_number(a.token), row_tids([b.token]))[0])
    assert ack(store, elsewhere) == [DONE]
    assert [row[0] for row in admin.execute("select key from tarry.message")] == ["b"]
    assert ack(store, a) == [GONE]
    # The same place and number, in a queue that the caller did not name.
    store.run(store.messages.offer("other", Draft("b", b"1")))
    assert store.run(store.messages.ack("other", [b.lease_id])) == [LEASE_LOST]
    assert ack(store, b) == [DONE]


@pytest.mark.parametrize("far", [b"\x00" * 6, b"\xff" * 6, b"\x7f\xff\xff\xff\x00\x01"])
def test_a_place_that_does_not_exist_is_no_error(store: PostgresStore, far: bytes) -> None:
    offer(store, "a")
    (lease,) = poll(store, 1)
    assert ack(store, LeaseId("a", lease_tokens(poll_number(lease.token), [far])[0])) == [DONE]
