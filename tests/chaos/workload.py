"""What one task of a client does, at random by its seed: every verb on every queue, through whatever handle it is given."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tarry import Conflict, Message
from tarry.core.errors import CommitLost, InvalidState, StoreUnavailable, UnknownQueue
from tarry.core.limits import PURGE_CONFIRMATION
from tarry.core.messages.model import Failure, LeaseId
from tests.chaos import layout
from tests.chaos.layout import LEASE_S, QueueKind
from tests.chaos.recording import OK, REFUSED, UNKNOWN, Recorder, now_us

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS = 1_000
MOST_HELD = 40
NO_EFFECT = (InvalidState, UnknownQueue, CommitLost)
POLICIES = {
    "replace": Conflict.replace(),
    "keep": Conflict.keep(),
    "earliest": Conflict.earliest(),
    "debounce": Conflict.debounce(timedelta(seconds=1)),
}
SETTLE_PLANS = {"ack": 62, "late ack": 8, "touch": 10, "nack": 8, "release": 5, "bury": 2, "forget": 5}
Leases = list[tuple[str, LeaseId]]


@dataclass(slots=True)
class Held:
    queue: str
    lease_id: LeaseId
    plan: str
    settle_at: int
    payload: str
    touched: bool = False


@dataclass(slots=True)
class Task:
    """`app` is an App, an AsyncApp or a client of the broker; `retried`: calls may be sent more than once."""

    app: Any
    name: str
    recorder: Recorder
    chance: random.Random
    weights: dict[str, int]
    """How often each queue is used."""
    retried: bool = False
    remote: bool = False
    hot: float = 0.25
    """Share of the offers that go to a few keys. All other keys are used once: no loss can hide there."""
    offers_only: bool = False
    held: list[Held] = field(default_factory=list[Held])
    settled: list[tuple[str, LeaseId]] = field(default_factory=list[tuple[str, LeaseId]])
    offered: int = 0
    moving: str = layout.MOVING_NAMES[0]

    async def step(self) -> None:
        self.held.sort(key=lambda held: held.settle_at)
        chance = self.chance.random()
        if self.offers_only:
            await self.offer(layout.MAIN)
        elif self.held and self.held[0].settle_at <= now_us():
            await self.settle_next()
        elif chance < 0.02 and self.settled:
            queue, lease_id = self.chance.choice(self.settled)
            await self.settle("ack", queue, [lease_id])
        else:
            kind = layout.KINDS[self.chance.choices(list(self.weights), list(self.weights.values()))[0]]
            await self.act(kind)

    async def act(self, kind: QueueKind) -> None:
        chance = self.chance.random()
        if kind is layout.CRON or (chance < 0.42 and len(self.held) < MOST_HELD):
            await self.poll(kind)  # only schedules put messages into the queue `cron`
        elif chance < 0.80:
            await self.offer(kind)
        elif chance < 0.88:
            await self.offer_many(kind)
        elif chance < 0.93:
            await self.look(kind)
        elif chance < 0.96:
            await self.change(kind)
        else:
            await self.special(kind)

    def real_name(self, kind: QueueKind) -> str:
        return self.moving if kind is layout.MOVING else kind.name

    def queue(self, name: str) -> Any:
        return self.app.queue(self.moving if name == layout.MOVING.name else name)

    def fresh(self) -> str:
        self.offered += 1
        return f"{self.name}.{self.offered}"

    def key(self, kind: QueueKind, payload: str) -> str:
        if kind.hot_keys and not self.retried and self.chance.random() < self.hot:
            return self.hot_key(kind)
        # Its end is that of a hot key, which begins with a percent sign: a pattern match would confuse the two.
        return f"once/{payload}{self.hot_key(kind)[1:]}"

    def hot_key(self, kind: QueueKind) -> str:
        era = now_us() // (kind.rotate_s * 1_000_000)
        return f"%_{era}/{self.chance.randrange(max(1, kind.hot_keys))}"

    async def offer(self, kind: QueueKind, *, conn: Any = None, transaction: int = 0) -> None:
        payload = self.fresh()
        key = self.key(kind, payload)
        delay_ms = self.chance.choice([0, 0, 0, 20, 100, 300])
        policy = self.chance.choices(list(POLICIES), [80, 10, 5, 5])[0]
        options: dict[str, Any] = {} if conn is None else {"conn": conn}
        await self.call(
            "offer",
            kind.name,
            [[[key, payload, delay_ms * MS, policy]], self.retried],
            lambda: self.queue(kind.name).offer(
                key,
                payload,
                after=timedelta(milliseconds=delay_ms),
                priority=self.chance.randrange(3),
                conflict=POLICIES[policy],
                **options,
            ),
            lambda outcome: [[outcome.value]],
            transaction=transaction,
        )

    async def offer_many(self, kind: QueueKind) -> None:
        """The keys in any order; hot keys may be in it twice. In the queue `bulk` so many that they are copied."""
        n = self.chance.choice([2, 5, 20])
        if kind is layout.BULKY and self.chance.random() < 0.3:
            n = layout.BULK + self.chance.randrange(500)
        items: list[list[Any]] = []
        for _ in range(n):
            payload = self.fresh()
            key = None if kind is layout.BULKY else self.key(kind, payload)
            items.append([key, payload, 0, "replace"])
        self.chance.shuffle(items)
        messages = [Message(payload=payload, key=key) for key, payload, _, _ in items]
        await self.call(
            "offer",
            kind.name,
            [items, self.retried],
            lambda: self.queue(kind.name).offer_many(messages),
            lambda outcomes: [[outcome.value for outcome in outcomes]],
        )

    async def poll(self, kind: QueueKind) -> None:
        n = 500 if kind is layout.BULKY else self.chance.choice([1, 1, 5, 10])
        deliveries: list[Any] = []

        def written(polled: list[Any]) -> list[Any]:
            deliveries.extend(polled)
            return [[row_of(delivery) for delivery in polled]]

        if self.chance.random() < 0.1:
            timeout = timedelta(milliseconds=50)
            await self.call("poll", kind.name, [n], lambda: self.queue(kind.name).poll_many(n, timeout), written)
        else:
            await self.call("poll", kind.name, [n], lambda: self.queue(kind.name).try_poll_many(n), written)
        if len(deliveries) > 20 or (len(deliveries) > 1 and self.chance.random() < 0.3):
            lease_ids = [delivery.lease_id for delivery in deliveries]
            self.chance.shuffle(lease_ids)
            await self.settle("ack", kind.name, lease_ids)
            return
        for delivery in deliveries:
            plans = {"nack": 70, "bury": 10, "ack": 20} if kind is layout.MORTAL else SETTLE_PLANS
            plan = self.chance.choices(list(plans), list(plans.values()))[0]
            if plan == "bury" and kind not in (layout.MORTAL, layout.MAIN, layout.REMOTE):
                plan = "ack"
            wait_ms = {"late ack": LEASE_S * 1e3 + self.chance.choice([5, 50, 300]), "touch": 300}.get(plan, 0)
            if plan != "forget":
                at = now_us() + int(wait_ms * MS)
                self.held.append(Held(kind.name, delivery.lease_id, plan, at, delivery.payload))

    async def settle_next(self) -> None:
        held = self.held.pop(0)
        if held.plan == "touch" and not held.touched:
            await self.settle("touch", held.queue, [held.lease_id])
            # Once more in time, or once too late: both answers must be right.
            wait_ms = self.chance.choice([300, LEASE_S * 1e3 + 50])
            again = self.chance.choice(["touch", "ack", "ack"])
            at = now_us() + int(wait_ms * MS)
            self.held.append(Held(held.queue, held.lease_id, again, at, held.payload, touched=again == "ack"))
        elif held.plan in ("nack", "release"):
            await self.settle(held.plan, held.queue, [held.lease_id], delay_ms=self.chance.choice([0, 50, 200]))
        elif held.plan == "bury":
            await self.settle("bury", held.queue, [held.lease_id])
        else:
            # Together with others whose time has come, as a batch.
            due = [h for h in self.held if h.plan == "ack" and h.queue == held.queue and h.settle_at <= now_us()]
            if self.chance.random() < 0.5:
                due = []
            self.held = [h for h in self.held if h not in due]
            await self.settle("ack", held.queue, [held.lease_id, *(h.lease_id for h in due)])
            self.settled = [*self.settled[-20:], (held.queue, held.lease_id)]

    async def settle(
        self,
        verb: str,
        name: str,
        lease_ids: Sequence[LeaseId],
        *,
        delay_ms: int = 0,
        conn: Any = None,
        transaction: int = 0,
    ) -> list[str]:
        options: dict[str, Any] = {} if conn is None else {"conn": conn}
        delay = timedelta(milliseconds=delay_ms)

        def call() -> Any:
            queue = self.queue(name)
            match verb:
                case "nack":
                    return queue.leases.nack(
                        [Failure(lease_id, "failed on purpose", delay) for lease_id in lease_ids], **options
                    )
                case "release":
                    return queue.leases.release(lease_ids, after=delay, **options)
                case "bury":
                    return queue.leases.bury(lease_ids, "buried on purpose", **options)
                case "touch":
                    return queue.leases.touch(lease_ids, **options)
                case _:
                    return queue.leases.ack(lease_ids, **options)

        facts = [
            [[lease_id.key, str(lease_id.token)] for lease_id in lease_ids],
            delay_ms * MS,
            self.retried or self.remote,
        ]
        results = await self.call(
            verb, name, facts, call, lambda outcomes: [[outcome.value for outcome in outcomes]], transaction=transaction
        )
        return results[0] if results else []

    async def look(self, kind: QueueKind) -> None:
        key = self.hot_key(kind)
        if self.chance.random() < 0.6:
            await self.call(
                "read",
                kind.name,
                [key],
                lambda: self.queue(kind.name).read(key),
                lambda value: [value.payload, value.version] if value is not None else [None, None],
            )
        else:
            await self.call(
                "contains", kind.name, [key], lambda: self.queue(kind.name).contains(key), lambda value: [value]
            )

    async def change(self, kind: QueueKind) -> None:
        key = self.hot_key(kind)
        if self.chance.random() < 0.5:
            await self.call("drop", kind.name, [key], lambda: self.queue(kind.name).drop(key), lambda gone: [gone])
        else:
            payload = self.fresh()
            force = self.chance.random() < 0.5
            await self.call(
                "edit",
                kind.name,
                [key, payload],
                lambda: self.queue(kind.name).edit(key, payload=payload, force=force),
                lambda edited: [edited.value],
            )

    async def special(self, kind: QueueKind) -> None:
        """What only some queues are for."""
        match kind:
            case layout.MORTAL:
                await self.revive(kind)
            case layout.PURGED:
                if self.chance.random() < 0.3:
                    await self.call(
                        "purge", kind.name, [], lambda: self.queue(kind.name).purge(PURGE_CONFIRMATION), _as_list
                    )
            case layout.MOVING:
                await self.rename()
            case layout.PAUSED:
                verb = "pause" if self.chance.random() < 0.4 else "resume"
                await self.call(verb, kind.name, [], lambda: getattr(self.app.queues, verb)(kind.name), _nothing)
            case _:
                name = self.real_name(kind)
                await self.call("look", kind.name, [], lambda: self.app.queues.counts(name), _nothing)

    async def revive(self, kind: QueueKind) -> None:
        letters = self.queue(kind.name).dead_letters
        chance = self.chance.random()
        if chance < 0.3:
            await self.call("redrive", kind.name, [], lambda: letters.redrive(limit=20), _as_list)
        elif chance < 0.6:
            canary = self.chance.choice([0, 2])
            await self.call("redrive", kind.name, [], lambda: letters.start_redrive(canary=canary), _nothing)
        elif chance < 0.9:
            jobs = await self.call("look", kind.name, [], lambda: self.app.redrives.list(kind.name, limit=5), _ids)
            if jobs:
                job = self.chance.choice(jobs[0]) if jobs[0] else None
                turn = self.chance.choice(["advance", "advance", "pause", "resume", "cancel"])
                if job is not None:
                    await self.call("redrive", kind.name, [], lambda: self.turn(job, turn), _nothing)
        else:
            await self.call("discard", kind.name, [], lambda: letters.discard(), _as_list)

    async def turn(self, job: int, turn: str) -> None:
        redrive = await awaited(self.app.redrives.get(job))
        await awaited(getattr(redrive, turn)())

    async def rename(self) -> None:
        """The other tasks find out when a call is refused."""
        new = next(name for name in layout.MOVING_NAMES if name != self.moving)
        old, self.moving = self.moving, new
        await self.call("rename", layout.MOVING.name, [], lambda: self.app.queues.rename(old, new), _nothing)

    async def call(
        self,
        name: str,
        queue: str,
        facts: list[Any],
        call: Callable[[], Any],
        written: Callable[[Any], list[Any]],
        *,
        transaction: int = 0,
    ) -> list[Any] | None:
        """Make a call and write it down. The results as they were written; None if there was no reply."""
        number = self.recorder.begin(name, queue, *facts, transaction=transaction)
        try:
            results = written(await awaited(call()))
        except StoreUnavailable as error:
            self.recorder.end(number, UNKNOWN, str(error))
        except NO_EFFECT as error:
            self.recorder.end(number, REFUSED, f"{type(error).__name__}: {error}")
            if isinstance(error, UnknownQueue) and queue == layout.MOVING.name:
                self.moving = next(name for name in layout.MOVING_NAMES if name != self.moving)
        except Exception as error:
            self.recorder.end(number, f"{type(error).__name__}: {error}")
        else:
            self.recorder.end(number, OK, *results)
            return results
        return None


def row_of(delivery: Any) -> list[Any]:
    """A delivery as it is recorded, with the values that the database returned."""
    return [
        delivery.key, delivery.payload, delivery.version, str(delivery.token), delivery.attempt,
        us(delivery.due_at), us(delivery.leased_at), us(delivery.lease_until),
    ]  # fmt: skip


def us(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)


async def awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _as_list(value: Any) -> list[Any]:
    return [value]


def _nothing(_: Any) -> list[Any]:
    return []


def _ids(jobs: Any) -> list[Any]:
    return [[job.id for job in jobs]]
