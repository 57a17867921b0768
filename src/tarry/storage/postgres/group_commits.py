"""The group commits of an awaiting store: one gatherer for each queue and each of offer, offer once and ack."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Protocol, TypeVar

from tarry.core.messages import Draft, Hold
from tarry.core.once import Answered
from tarry.core.outcomes import Outcome, Settled
from tarry.storage.postgres.answers import OfferOnce
from tarry.storage.postgres.gather import Gatherer
from tarry.storage.postgres.statement import Op
from tarry.storage.postgres.verbs import Offering, Verbs

R = TypeVar("R")
I = TypeVar("I")  # noqa: E741


class Run(Protocol):
    async def __call__(self, make: Callable[[Verbs], Op[R]], *, atomic: bool = False, brief: bool = False) -> R:
        """Run an op on a connection of the store, and raise `HeldUp` at the first lock. `brief`: see `transaction`."""
        ...


class GroupCommits:
    def __init__(self, run: Run, *, lock_for_s: float) -> None:
        self._run = run
        self._lock_for_s = lock_for_s
        self._offers: dict[str, Gatherer[Draft, Outcome]] = {}
        self._once_offers: dict[str, Gatherer[OfferOnce, Answered | None]] = {}
        self._acks: dict[str, Gatherer[Hold, Settled]] = {}

    async def offer(self, queue: str, draft: Draft) -> Outcome:
        async def flush(drafts: Sequence[Draft], *, again: bool, brief: bool) -> list[Outcome]:
            return await self._run(Offering(queue, drafts, again=again), brief=brief)

        if queue not in self._offers:
            self._offers[queue] = Gatherer(
                flush, identity=_key_of, locked=self._locked(queue, _key_of), lock_for_s=self._lock_for_s
            )
        return await self._offers[queue].submit(draft)

    async def offer_once(self, queue: str, item: OfferOnce) -> Answered | None:
        """Each is stored with its answer. A second flush finds the answers of the first, so it needs not know `again`."""

        async def flush(items: Sequence[OfferOnce], *, again: bool, brief: bool) -> list[Answered | None]:
            return await self._run(lambda verbs: verbs.offer_once(queue, items), atomic=True, brief=brief)

        if queue not in self._once_offers:
            self._once_offers[queue] = Gatherer(
                flush, identity=_key_of_item, locked=self._locked(queue, _key_of_item), lock_for_s=self._lock_for_s
            )
        return await self._once_offers[queue].submit(item)

    async def ack(self, queue: str, hold: Hold) -> Settled:
        async def flush(holds: Sequence[Hold], *, again: bool, brief: bool) -> list[Settled]:
            return await self._run(lambda verbs: verbs.ack(queue, holds), brief=brief)

        if queue not in self._acks:
            self._acks[queue] = Gatherer(
                flush, identity=_itself, locked=self._locked(queue, _key_of), lock_for_s=self._lock_for_s
            )
        return await self._acks[queue].submit(hold)

    async def drain(self, end_s: float) -> None:
        """Wait until `end_s` for what was asked for; cancel the rest."""
        gatherers = [*self._offers.values(), *self._once_offers.values(), *self._acks.values()]
        await asyncio.gather(*(gatherer.drain(max(0.0, end_s - time.monotonic())) for gatherer in gatherers))

    def _locked(self, queue: str, key: Callable[[I], str]) -> Callable[[Sequence[I]], Awaitable[list[bool]]]:
        async def locked(items: Sequence[I]) -> list[bool]:
            keys = [key(item) for item in items]
            found = await self._run(lambda verbs: verbs.locked(queue, keys))
            return [key in found for key in keys]

        return locked


def _key_of(keyed: Draft | Hold) -> str:
    return keyed.key


def _key_of_item(item: OfferOnce) -> str:
    return item.draft.key


def _itself(hold: Hold) -> Hashable:
    return hold
