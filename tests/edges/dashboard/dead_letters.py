"""Dead letters for tests of the dashboard."""

from __future__ import annotations

from typing import Any

from tarry import Message

BATCH = 1_000


def bury(app: Any, queue: str, count: int, error: str | None, **message: Any) -> list[str]:
    """This many dead letters of a queue, through its own verbs. Returns their keys."""
    target = app.queue(queue)
    first = message.pop("first", 0)
    keys = [f"{queue}-{n:05}" for n in range(first, first + count)]
    for at in range(0, count, BATCH):
        batch = keys[at : at + BATCH]
        target.offer_many([Message(**{"key": key, "payload": {"n": 1, "tenant": "acme"}, **message}) for key in batch])
        target.leases.bury([delivery.lease_id for delivery in target.try_poll_many(len(batch))], error)
    return keys
