"""What a message costs before it reaches a store: calls and random numbers, and keys that two processes never share."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import RFC_4122, UUID, uuid4

import pytest

from tarry import Message
from tarry.api._sync.delivery import Delivery
from tarry.api.delivery import AsyncDelivery
from tarry.api.drafts import Drafter, fresh_key
from tarry.core.codecs import PLAIN
from tarry.core.messages.model import Draft, Lease, LeaseId


def calls(work: Callable[[], Any]) -> list[Any]:
    """The functions it calls: code of Python functions, and built-in ones."""
    functions: list[Any] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            functions.append(frame.f_code)
        elif event == "c_call":
            functions.append(argument)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return functions


NO_QUEUE: Any = None
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEASE: Lease[Any] = Lease("a", 1, 1, uuid4(), 1, 0, NOW, NOW, NOW)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Message(payload=1, key="a"),
        lambda: Draft("a", b"1", None, None, timedelta(0), 0),
        lambda: Lease("a", 1, 1, LEASE.token, 1, 0, NOW, NOW, NOW),
        lambda: LeaseId("a", LEASE.token),
        lambda: Delivery(NO_QUEUE, LEASE, 0.0),
        lambda: AsyncDelivery(NO_QUEUE, LEASE, 0.0),
    ],
)
def test_what_is_made_for_every_message_is_made_without_a_call_of_python_code(make: Callable[[], Any]) -> None:
    assert {getattr(call, "co_name", "") for call in calls(make)} <= {"<lambda>", ""}


def test_drafts_and_lease_ids_are_nothing_to_the_garbage_collector() -> None:
    """Its collections were a third of the client's time of a batch, and follow the number of objects that it knows."""
    assert not gc.is_tracked(Drafter(PLAIN, 1_000).draft_message(Message(payload={"a": 1})))
    assert not gc.is_tracked(LEASE.lease_id)


def test_a_plain_message_is_drafted_with_few_calls() -> None:
    drafter: Drafter[Any] = Drafter(PLAIN, 1_000)
    message = Message(payload={"a": 1})
    fresh_key()
    drafted = calls(lambda: drafter.draft_message(message))
    names = {getattr(call, "co_name", "") for call in drafted}
    assert len([call for call in drafted if "/tarry/" in getattr(call, "co_filename", "")]) <= 10, names


def test_the_keys_of_a_batch_are_made_together() -> None:
    drafter: Drafter[Any] = Drafter(PLAIN, 1_000)
    messages = [Message(payload=1) for _ in range(1_000)]
    drafter.draft_messages(messages)
    made = calls(lambda: drafter.draft_messages(messages))
    assert made.count(os.urandom) == made.count(time.time_ns) == 1
    assert len([call for call in made if getattr(call, "co_filename", "").endswith("ids.py")]) <= 10


def test_the_keys_of_a_batch_ascend_and_are_those_of_messages_without_one() -> None:
    drafter: Drafter[Any] = Drafter(PLAIN, 1_000)
    drafts = drafter.draft_messages(Message(payload=1, key="mine" if i == 7 else None) for i in range(10_000))
    assert drafts.pop(7).key == "mine"
    keys = [draft.key for draft in drafts]
    assert keys == sorted(set(keys))
    assert {(UUID(key).version, UUID(key).variant) for key in keys} == {(7, RFC_4122)}
    assert all(draft.fresh for draft in drafts)


def test_many_keys_take_one_system_call() -> None:
    made = calls(lambda: [fresh_key() for _ in range(1_000)])
    assert made.count(os.urandom) <= 4
    assert [getattr(call, "co_name", "") for call in made].count("uuid_tails") <= 4


def test_a_forked_process_does_not_generate_the_keys_of_its_parent() -> None:
    fresh_key()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, "\n".join(fresh_key() for _ in range(50)).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    theirs = os.read(read, 65_536).decode().split("\n")
    os.close(read)
    os.close(write)
    ours = [fresh_key() for _ in range(50)]
    assert len(theirs) == 50
    assert {key[19:] for key in theirs}.isdisjoint(key[19:] for key in ours)
