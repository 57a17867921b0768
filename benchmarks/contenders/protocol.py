"""What a contender has to do. It is a small frozen value, so that a consumer in a process of its own can be given it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Body = dict[str, Any]
"""A payload as the user has it; a contender encodes it as JSON, inside the measured time."""


class Unavailable(Exception):
    """This contender cannot take part here; the reason is printed in place of its figures."""


def consume_one_by_one(session: Session, n: int) -> None:
    for _ in range(n):
        held = session.poll_one()
        if held is None:
            raise Unavailable("it returned fewer messages than were offered")
        session.ack_one(held)


class Session(Protocol):
    """One blocking client with its connection. What `poll` returned goes to `ack` of the same session."""

    def offer_one(self, body: Body) -> None:
        """One durable message with a generated key."""
        ...

    def offer_many(self, bodies: Sequence[Body], keys: Sequence[str] | None = None) -> None:
        """All of them in one call; without keys they are generated (UUIDv7 for all)."""
        ...

    def poll_one(self) -> Any | None: ...
    def ack_one(self, held: Any) -> None: ...
    def consume(self, n: int) -> None:
        """n messages through the loop that it offers to consumers, each acked by itself, durably."""
        ...

    def poll_many(self, n: int) -> tuple[Any, int]:
        """What was leased (for `ack_many`), decoded, and how many that are. Leases hold for an hour."""
        ...

    def ack_many(self, held: Any) -> None: ...
    def close(self) -> None: ...


class AsyncSession(Protocol):
    """One awaiting client, used by many tasks at once."""

    async def offer_one(self, body: Body) -> None: ...
    async def lease(self, n: int) -> Sequence[Any]:
        """n messages that can be acked one by one. Not measured."""
        ...

    async def ack_one(self, held: Any) -> None: ...
    async def close(self) -> None: ...


class Contender(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def slug(self) -> str:
        """Its name as a part of a database's name."""
        ...

    @property
    def table(self) -> str:
        """The hot table, for the server's statistics and to clear it."""
        ...

    def create(self, dsn: str, *, durable: bool) -> None:
        """Tables in an empty database. May raise `Unavailable`."""
        ...

    def fill(self, dsn: str, n: int, *, due_in_s: float) -> None:
        """n waiting messages, quickly; not measured. Due in the future, or in the past where negative."""
        ...

    def open(self, dsn: str, *, durable: bool) -> Session: ...
    async def open_async(self, dsn: str, *, durable: bool) -> AsyncSession:
        """May raise `Unavailable`: not every queue has a client that awaits."""
        ...
