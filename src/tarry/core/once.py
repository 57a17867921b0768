"""Requests that are carried out once, however often they are said."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from tarry.core.leading import Leadership
from tarry.core.messages import Draft
from tarry.core.outcomes import Outcome


class Once(NamedTuple):
    """A request that may be said again: by whom, under which key of theirs, and what it asks for."""

    caller: str
    key: str
    fingerprint: bytes


class Answered(NamedTuple):
    """What was answered, to be said again as it is."""

    status: int
    body: bytes
    replayed: bool = False
    """Nothing was done: this is the answer to the same request, said before."""


Doing = Callable[[Any], Answered]
"""Work that is done once, with a connection for `conn=`."""
AsyncDoing = Callable[[Any], Awaitable[Answered]]


class Answering(Protocol):
    """Requests that are carried out once, however often they are said. None: the key was used for another request."""

    def once(self, request: Once, do: Doing) -> Answered | None:
        """What `do` answers, or what it answered before. What it does with the connection it is given is stored together
        with its answer, or not at all; it must not wait for another connection."""
        ...

    def offer_once(
        self, queue: str, draft: Draft, request: Once, show: Callable[[Outcome], Answered]
    ) -> Answered | None: ...
    def forget_answers(
        self, older_than: timedelta, *, limit: int = 1000, lead: Leadership | None = None, conn: Any = None
    ) -> int:
        """One step of it; how many were forgotten."""
        ...


class AsyncAnswering(Protocol):
    async def once(self, request: Once, do: AsyncDoing) -> Answered | None: ...
    async def offer_once(
        self, queue: str, draft: Draft, request: Once, show: Callable[[Outcome], Answered]
    ) -> Answered | None: ...
    async def forget_answers(
        self, older_than: timedelta, *, limit: int = 1000, lead: Leadership | None = None, conn: Any = None
    ) -> int: ...
