"""What a queue does, in as few words as possible and without looking at any store: the model that stores are held to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from tarry import Outcome, Settled
from tarry.core.messages.outcomes import Edited
from tarry.core.messages.states import State

LEASE_FOR = timedelta(seconds=30)
MAX_ATTEMPTS = 3
FIRST_RETRY = timedelta(seconds=4)


@dataclass(frozen=True)
class Wish:
    """One offer. `due` is an instant, or a wait from now."""

    key: str
    payload: int
    due: datetime | timedelta
    rule: str = "replace"
    max_wait: timedelta = timedelta(0)
    priority: int = 0
    type: str | None = None
    max_attempts: int | None = None

    def due_at(self, now: datetime) -> datetime:
        return self.due if isinstance(self.due, datetime) else now + self.due


@dataclass
class Msg:
    wish: Wish
    number: int
    """Grows with every accepted offer, as versions do."""
    planned_at: datetime
    due_at: datetime
    limit_at: datetime | None
    attempt: int = 0
    grant: int | None = None
    lease_until: datetime | None = None

    @property
    def max_attempts(self) -> int:
        return self.wish.max_attempts or MAX_ATTEMPTS

    @property
    def order(self) -> tuple[int, datetime, int]:
        return -self.wish.priority, self.due_at, self.number

    def is_free(self, now: datetime) -> bool:
        return self.lease_until is None or self.lease_until <= now

    def state(self, now: datetime) -> State:
        if not self.is_free(now):
            return State.LEASED
        return State.DELAYED if self.due_at > now else State.READY

    def let_go(self) -> None:
        self.grant = self.lease_until = None


@dataclass
class Dead:
    msg: Msg
    died_at: datetime
    reason: str


@dataclass
class Model:
    live: dict[str, Msg] = field(default_factory=dict)
    dead: list[Dead] = field(default_factory=list)
    paused: bool = False
    numbers: int = 0
    grants: int = 0

    # Offering

    def offer(self, wish: Wish, now: datetime) -> Outcome:
        old = self.live.get(wish.key)
        planned_at, limit_at = wish.due_at(now), None
        if wish.rule == "debounce":
            limit_at = old.limit_at if old and old.limit_at else now + wish.max_wait
            planned_at = min(planned_at, now + wish.max_wait, limit_at)
        if old is not None:
            offered = replace(wish, due=planned_at, rule="", max_wait=timedelta(0))
            same = offered == replace(old.wish, due=old.planned_at, rule="", max_wait=timedelta(0))
            if same or wish.rule == "keep" or (wish.rule == "earliest" and planned_at >= old.planned_at):
                return Outcome.IGNORED
        self.numbers += 1
        self.live[wish.key] = Msg(wish, self.numbers, planned_at, planned_at, limit_at)
        return Outcome.CREATED if old is None else Outcome.UPDATED

    def offer_many(self, wishes: Sequence[Wish], now: datetime) -> list[Outcome]:
        outcomes: list[Outcome | None] = [None] * len(wishes)
        winners: dict[str, int] = {}
        forced: set[str] = set()
        for i, wish in enumerate(wishes):
            last = winners.get(wish.key)
            if last is None:
                winners[wish.key] = i
            elif wish.rule in ("replace", "debounce") or (
                wish.rule == "earliest" and wish.due_at(now) < wishes[last].due_at(now)
            ):
                outcomes[last] = Outcome.SUPERSEDED
                winners[wish.key] = i
            else:
                outcomes[i] = Outcome.IGNORED
            if wish.rule == "earliest" and wish.key in forced and winners[wish.key] == i:
                wishes = [*wishes[:i], replace(wish, rule="replace"), *wishes[i + 1 :]]
            if wish.rule in ("replace", "debounce"):
                forced.add(wish.key)
        for i in sorted(winners.values()):
            outcomes[i] = self.offer(wishes[i], now)
        return [outcome for outcome in outcomes if outcome is not None]

    # Leasing

    def poll(self, n: int, now: datetime, *, type: str | None, lease_for: timedelta | None) -> list[Msg]:
        taken: list[Msg] = []
        while len(taken) < n and not self.paused:
            waiting = [
                msg
                for msg in self.live.values()
                if msg.due_at <= now and msg.is_free(now) and type in (None, msg.wish.type)
            ]
            if not waiting:
                break
            head = min(waiting, key=lambda msg: msg.order)
            if head.attempt >= head.max_attempts:
                self._die(head, now, "exhausted")
                continue
            self.grants += 1
            head.attempt += 1
            head.grant, head.lease_until = self.grants, now + (lease_for or LEASE_FOR)
            taken.append(head)
        return taken

    def settle(self, key: str, grant: int, act: Callable[[Msg], bool]) -> Settled:
        """`act` returns whether the lease still counts."""
        msg = self.live.get(key)
        if msg is None:
            return Settled.GONE
        return Settled.DONE if msg.grant == grant and act(msg) else Settled.LEASE_LOST

    def ack(self, msg: Msg) -> bool:
        del self.live[msg.wish.key]
        return True

    def nack(self, msg: Msg, now: datetime, delay: timedelta | None) -> bool:
        if msg.attempt >= msg.max_attempts:
            return self._die(msg, now, "exhausted")
        msg.due_at = now + (delay if delay is not None else FIRST_RETRY * 2 ** (msg.attempt - 1))
        msg.let_go()
        return True

    def touch(self, msg: Msg, now: datetime, lease_for: timedelta | None) -> bool:
        if msg.is_free(now):
            return False
        msg.lease_until = now + (lease_for or LEASE_FOR)
        return True

    def release(self, msg: Msg) -> bool:
        msg.attempt -= 1
        msg.let_go()
        return True

    def bury(self, msg: Msg, now: datetime) -> bool:
        return self._die(msg, now, "buried")

    def _die(self, msg: Msg, now: datetime, reason: str) -> bool:
        del self.live[msg.wish.key]
        self.dead.append(Dead(msg, now, reason))
        return True

    # The rest

    def edit(self, key: str, now: datetime, *, force: bool, wait: timedelta | None, **changes: int) -> Edited:
        msg = self.live.get(key)
        if msg is None:
            return Edited.GONE
        wish = replace(msg.wish, **changes)
        due_at = msg.due_at if wait is None else now + wait
        if (wish, due_at) == (msg.wish, msg.due_at):
            return Edited.IGNORED
        if not msg.is_free(now):
            if not force:
                return Edited.LEASED
            msg.attempt -= 1
        msg.let_go()
        self.numbers += 1
        msg.wish, msg.number, msg.due_at = wish, self.numbers, due_at
        if wait is not None:
            msg.planned_at, msg.limit_at = due_at, None
        return Edited.UPDATED

    def redrive(self, limit: int, now: datetime) -> int:
        moved = 0
        for dead in self.letters():
            if moved < limit and dead.msg.wish.key not in self.live:
                self.dead.remove(dead)
                self.numbers += 1
                self.live[dead.msg.wish.key] = Msg(replace(dead.msg.wish), self.numbers, now, now, None)
                moved += 1
        return moved

    def letters(self) -> list[Dead]:
        """Oldest first."""
        return sorted(self.dead, key=lambda dead: (dead.died_at, dead.msg.number))
