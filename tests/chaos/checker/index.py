"""A history sorted by queue, key and token, for the checks that go message by message."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.chaos.checker.verdict import Verdict
from tests.chaos.recording import OK, REFUSED, UNDONE, UNKNOWN, Fault, History, Operation

DONE = "done"
STORED = ("created", "updated")
SETTLES = ("ack", "nack", "release", "touch", "bury")
LASTING = ("ack", "nack", "release", "bury")
"""Settles that end a lease."""
BATCHES = ("offer", *SETTLES)
Address = tuple[str, str]
"""Queue and key. A message that was offered without a key has the key it was delivered under, else its payload."""


class Item(NamedTuple):
    """One message of an offer."""

    op: Operation
    key: str | None
    payload: str
    delay: int
    policy: str
    retried: bool
    outcome: str
    """created, updated, ignored, superseded; unknown, or nothing at all where the operation had no effect."""

    @property
    def may_be_stored(self) -> bool:
        return self.outcome in STORED or self.outcome == UNKNOWN


class Settle(NamedTuple):
    op: Operation
    outcome: str

    @property
    def may_be_done(self) -> bool:
        """A settle that was sent again finds its own effect: the message is gone, or leased by another client by now."""
        found_own_effect = self.outcome == "gone" or self.op.name != "ack"
        return self.outcome in (DONE, UNKNOWN) or (self.op.facts[2] and found_own_effect)

    @property
    def delay(self) -> int:
        return self.op.facts[1]


@dataclass(slots=True)
class Grant:
    """One lease of one message, and what its holder did with it."""

    by: Operation
    key: str
    payload: str
    version: int
    token: str
    attempt: int
    due_at: int
    leased_at: int
    lease_until: int
    settles: list[Settle] = field(default_factory=list[Settle])

    def ended_by_holder(self) -> float:
        """The earliest instant at which the holder may have given it up."""
        return min((s.op.invoked for s in self.settles if s.op.name in LASTING and s.may_be_done), default=float("inf"))


class Faults:
    """When the database lost leases, and when it lost everything that was answered."""

    def __init__(self, faults: list[Fault]) -> None:
        self._crashes = sorted((fault.ended, fault.begun) for fault in faults if fault.crash)
        self._faults = faults
        self.forgetting = [fault for fault in faults if fault.forgets]

    def next_crash(self, after: float) -> float:
        """When the first crash began that was not over then: it may have taken back what was granted until its end."""
        position = bisect_left(self._crashes, (int(after), 0)) if after != float("inf") else len(self._crashes)
        return self._crashes[position][1] if position < len(self._crashes) else float("inf")

    def crashed(self, after: float, before: float) -> bool:
        return self.next_crash(after) <= before

    def forgot(self, since: float, until: float) -> bool:
        return any(fault.ended >= since and fault.begun <= until for fault in self.forgetting)

    def struck(self, since: float, until: float) -> bool:
        """Whether any fault overlaps this time, so that a reply may have been lost and the call repeated."""
        return any(fault.ended >= since and fault.begun <= until for fault in self._faults)


class Index:
    def __init__(self, history: History, verdict: Verdict) -> None:
        self.history = history
        self.faults = Faults(history.faults)
        self.offers: dict[Address, list[Item]] = defaultdict(list)
        self.by_payload: dict[str, list[Item]] = defaultdict(list)
        self.removals: dict[Address, list[Operation]] = defaultdict(list)
        """Drops that may have worked."""
        self.purges: dict[str, list[Operation]] = defaultdict(list)
        self.grants: dict[Address, list[Grant]] = defaultdict(list)
        self.by_token: dict[str, Grant] = {}
        self.forgotten: list[Item] = []
        self._sort(verdict)

    def changes(self, address: Address) -> Iterator[Operation]:
        """Operations that may have replaced or removed what was there."""
        for item in self.offers.get(address, ()):
            if item.may_be_stored:
                yield item.op
        yield from self.removals.get(address, ())
        yield from self.purges.get(address[0], ())

    def _sort(self, verdict: Verdict) -> None:
        settles: list[Operation] = []
        offers: list[Operation] = []
        for op in self.history.operations:
            verdict.report("operations")
            self._count(op, verdict)
            if op.name == "poll" and op.status == OK:
                self._grant(op, verdict)
            elif op.name == "offer":
                offers.append(op)
            elif op.name in SETTLES:
                settles.append(op)
            elif op.name == "drop" and self._may_have_dropped(op):
                self.removals[op.queue, op.facts[0]].append(op)
            elif op.name == "edit" and op.status in (OK, UNKNOWN):
                self._edit(op)
            elif op.name == "purge" and op.status in (OK, UNKNOWN):
                self.purges[op.queue].append(op)
        for grants in self.grants.values():
            grants.sort(key=lambda grant: grant.leased_at)
        delivered_as = {grant.payload: address for address, grants in self.grants.items() for grant in grants}
        for op in offers:
            self._offer(op, delivered_as, verdict)
        for op in settles:
            self._settle(op, verdict)

    def _may_have_dropped(self, op: Operation) -> bool:
        """False is the result of a retry, too, whose first try dropped the message and lost its reply."""
        if op.status != OK:
            return op.status == UNKNOWN
        return bool(op.result[0]) or self.faults.struck(op.invoked, op.returned)

    def _count(self, op: Operation, verdict: Verdict) -> None:
        verdict.report("messages", len(op.facts[0]) if op.name in BATCHES else 1)
        match op.status:
            case "ok":
                if op.name in BATCHES and len(op.result[0]) != len(op.facts[0]):
                    verdict.count("batch_wrong", op)
                if op.name == "poll" and len(op.result[0]) > op.facts[0]:
                    verdict.count("batch_wrong", op)
            case "unknown" | "refused" | "undone":
                verdict.report(op.status)
            case _:
                verdict.count("errors", (op.name, op.queue, op.status, op.result))

    def _grant(self, op: Operation, verdict: Verdict) -> None:
        for row in op.result[0]:
            grant = Grant(op, *row)
            if grant.token in self.by_token:
                verdict.count("token_reused", (self.by_token[grant.token], grant))
            self.grants[op.queue, grant.key].append(grant)
            self.by_token[grant.token] = grant
            verdict.report("leases")

    def _offer(self, op: Operation, delivered_as: dict[str, Address], verdict: Verdict) -> None:
        items, retried = op.facts
        verdict.report("offers", len(items))
        confirmed = op.status == OK
        forgotten = confirmed and self.faults.forgot(op.returned, op.returned)
        for i, (key, payload, delay, policy) in enumerate(items):
            outcome = op.result[0][i] if confirmed and i < len(op.result[0]) else op.status
            if forgotten and outcome != "superseded":
                outcome = UNKNOWN
            item = Item(op, key, payload, delay, policy, retried, outcome)
            address = (op.queue, key) if key is not None else delivered_as.get(payload, (op.queue, payload))
            self.offers[address].append(item)
            self.by_payload[payload].append(item)
            if forgotten:
                self.forgotten.append(item)

    def _edit(self, op: Operation) -> None:
        """An edit that changed something is an accepted message like any other. A retry whose first try did it and lost its
        reply finds the message as it should be, leased, or consumed meanwhile."""
        key, payload = op.facts
        known = op.status == OK and not self.faults.forgot(op.returned, op.returned)
        if known and op.result[0] not in STORED and self.faults.struck(op.invoked, op.returned):
            known = False
        outcome = op.result[0] if known else UNKNOWN
        item = Item(op, key, payload, 0, "edit", True, outcome)
        if item.may_be_stored:
            self.offers[op.queue, key].append(item)
            self.by_payload[payload].append(item)

    def _settle(self, op: Operation, verdict: Verdict) -> None:
        if op.status in (REFUSED, UNDONE):
            return
        forgotten = op.status == OK and self.faults.forgot(op.returned, op.returned)
        for i, (_, token) in enumerate(op.facts[0]):
            grant = self.by_token.get(token)
            outcome = op.result[0][i] if op.status == OK and i < len(op.result[0]) else UNKNOWN
            if forgotten and outcome == DONE:
                outcome = UNKNOWN
            verdict.report("settles_refused", outcome not in (DONE, UNKNOWN))
            if grant is not None:
                grant.settles.append(Settle(op, outcome))
