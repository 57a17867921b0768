"""Reads what clients wrote down, and counts every promise that was broken. Every count but the reports must be zero.

| count | promise (reliability.md) |
|---|---|
| lost | S1: every accepted offer is acked, dead, dropped, replaced, or still there |
| unexpected | S2: what is delivered was offered, to the letter |
| overlapping | S3: at most one valid lease of a key at a time, by the clock of the database |
| stale_settle_won, replaced_settle_won, late_touch_won | S5: a token that is not the lease changes nothing |
| double_ack, delivered_after_ack | S6: an ack is final |
| early | S9: nothing is delivered before its time |
| attempts_wrong, died_twice | S10: every lease counts, none beyond the limit, one death |
| not_empty, errors | nothing is left after the drain; nobody met an error that has no name |

A lease that a crash took back is not a broken promise: it commits without waiting for the disk, and its token is then
nobody's. So a lease counts as valid until the next crash at most.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from tests.concurrency.recording import OK, UNKNOWN, History, Operation

DONE = "done"
STORED = ("created", "updated")
SETTLES = ("ack", "nack", "release", "touch")
REPORTS = ("operations", "unknown", "offers", "leases", "redelivered", "refused", "faults")


@dataclass(slots=True)
class Verdict:
    lost: int = 0
    unexpected: int = 0
    overlapping: int = 0
    stale_settle_won: int = 0
    replaced_settle_won: int = 0
    late_touch_won: int = 0
    double_ack: int = 0
    delivered_after_ack: int = 0
    early: int = 0
    attempts_wrong: int = 0
    died_twice: int = 0
    not_empty: int = 0
    errors: int = 0
    operations: int = 0
    unknown: int = 0
    offers: int = 0
    leases: int = 0
    redelivered: int = 0
    refused: int = 0
    faults: int = 0
    examples: dict[str, Any] = field(default_factory=dict)
    """The first of each, for whoever has to find out why."""

    @property
    def broken(self) -> dict[str, int]:
        """Promises that were broken, by how often. Empty is what we want."""
        names = [f.name for f in fields(self) if f.name not in (*REPORTS, "examples")]
        return {name: getattr(self, name) for name in names if getattr(self, name)}

    def count(self, name: str, example: Any) -> None:
        setattr(self, name, getattr(self, name) + 1)
        self.examples.setdefault(name, example)

    def table(self) -> str:
        rows = [(f.name, getattr(self, f.name)) for f in fields(self) if f.name != "examples"]
        return "\n".join(f"| {name.replace('_', ' ')} | {value:,} |" for name, value in rows)


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
    settles: list[Operation] = field(default_factory=list)

    def ended_by_holder(self) -> float:
        """When the holder may have given it up, at the earliest."""
        ends = [op.invoked for op in self.settles if op.name != "touch" and op.answer in (OK, UNKNOWN)]
        return min(ends, default=float("inf"))


class Checker:
    def __init__(self, history: History) -> None:
        self._history = history
        self._crashes = sorted((fault.ended, fault.begun) for fault in history.faults if fault.loses_leases)
        self._offers: dict[str, list[Operation]] = defaultdict(list)
        self._drops: dict[str, list[Operation]] = defaultdict(list)
        self._grants: dict[str, list[Grant]] = defaultdict(list)
        self._by_token: dict[str, Grant] = {}
        self.verdict = Verdict(faults=len(history.faults))

    def check(self) -> Verdict:
        self._sort_by_key()
        for grants in self._grants.values():
            grants.sort(key=lambda grant: grant.leased_at)
        for key in self._offers.keys() | self._grants.keys():
            self._check_deliveries(key)
            self._check_leases(self._grants[key], key)
            self._check_settles(self._grants[key], key)
        self._check_accounts()
        return self.verdict

    def _sort_by_key(self) -> None:
        settles: list[Operation] = []
        for op in self._history.operations:
            self.verdict.operations += 1
            self.verdict.unknown += op.answer == UNKNOWN
            if op.answer not in (OK, UNKNOWN):
                self.verdict.count("errors", (op.name, op.answer, op.result))
            if op.name == "offer":
                self._offers[op.facts[0]].append(op)
                self.verdict.offers += 1
            elif op.name == "drop":
                self._drops[op.facts[0]].append(op)
            elif op.name == "lease":
                for found in op.result if op.answer == OK else ():
                    grant = Grant(op, *found)
                    self._grants[grant.key].append(grant)
                    self._by_token[grant.token] = grant
                    self.verdict.leases += 1
            elif op.name in SETTLES:
                settles.append(op)
        for op in settles:
            self._by_token[op.facts[1]].settles.append(op)
            self.verdict.refused += op.answer == OK and op.result[0] != DONE

    def _check_deliveries(self, key: str) -> None:
        offered = {op.facts[1]: op for op in self._offers[key]}
        for grant in self._grants[key]:
            offer = offered.get(grant.payload)
            if offer is None:
                self.verdict.count("unexpected", grant)
            elif grant.leased_at < grant.due_at or grant.leased_at < offer.invoked + offer.facts[2]:
                self.verdict.count("early", (grant, offer))

    def _check_leases(self, grants: list[Grant], key: str) -> None:
        seen: dict[int, Grant] = {}
        most = self._history.most_attempts
        for before, grant in zip([None, *grants], grants, strict=False):
            if before is not None and grant.leased_at < self._valid_until(before, key):
                self.verdict.count("overlapping", (before, grant))
            last = seen.get(grant.version)
            if last is not None:
                self.verdict.redelivered += 1
                given_back = any(op.name == "release" for op in last.settles)
                if (
                    grant.attempt <= last.attempt
                    and not given_back
                    and not self._crashed(last.leased_at, grant.leased_at)
                ):
                    self.verdict.count("attempts_wrong", (last, grant))
            if most is not None and grant.attempt > most:
                self.verdict.count("attempts_wrong", grant)
            seen[grant.version] = grant

    def _valid_until(self, grant: Grant, key: str) -> float:
        """Until when a lease was valid for certain: every reason it may have ended before is taken into account."""
        changed = min(
            (max(op.invoked, grant.leased_at) for op in self._changes(key) if op.returned >= grant.leased_at),
            default=float("inf"),
        )
        return min(grant.lease_until, grant.ended_by_holder(), changed, self._next_crash(grant.leased_at))

    def _changes(self, key: str) -> Iterator[Operation]:
        """Operations that may have replaced or removed what was there."""
        for op in (*self._offers[key], *self._drops[key]):
            if op.answer == UNKNOWN or (op.answer == OK and op.result[0] in (*STORED, True)):
                yield op

    def _check_settles(self, grants: list[Grant], key: str) -> None:
        acked: dict[int, Operation] = {}
        for i, grant in enumerate(grants):
            for op in grant.settles:
                if op.answer != OK or op.result[0] != DONE:
                    continue
                later = [g for g in grants[i + 1 :] if g.by.returned < op.invoked]
                if any(not self._crashed(g.leased_at, op.returned) for g in later):
                    self.verdict.count("stale_settle_won", (grant, op, later))
                if self._replaced_before(grant, op, key):
                    self.verdict.count("replaced_settle_won", (grant, op))
                if op.name == "touch" and op.invoked > self._held_at_most(grant, op):
                    self.verdict.count("late_touch_won", (grant, op))
                if op.name == "ack":
                    if grant.version in acked:
                        self.verdict.count("double_ack", (acked[grant.version], op))
                    acked.setdefault(grant.version, op)
        for grant in grants:
            ack = acked.get(grant.version)
            if ack is not None and grant.by.invoked > ack.returned:
                self.verdict.count("delivered_after_ack", (ack, grant))

    def _replaced_before(self, grant: Grant, settle: Operation, key: str) -> bool:
        """Somebody offered the key anew after this lease was taken, and knew so before it was settled."""
        return any(
            op.answer == OK
            and op.result[0] == "updated"
            and op.invoked > grant.by.returned
            and op.returned < settle.invoked
            for op in self._offers[key]
        )

    def _held_at_most(self, grant: Grant, touch: Operation) -> float:
        """Until when the lease may have lasted, with every touch that may have worked before this one."""
        lasts = grant.lease_until - grant.leased_at
        before = [op for op in grant.settles if op.name == "touch" and op is not touch and op.invoked < touch.invoked]
        return max([grant.lease_until, *(op.returned + lasts for op in before if self._may_be_done(op))])

    @staticmethod
    def _may_be_done(op: Operation) -> bool:
        return op.answer == UNKNOWN or (op.answer == OK and op.result[0] == DONE)

    def _check_accounts(self) -> None:
        left = self._history.left
        live = set(left.live)
        dead = {payload for payload, _, _ in left.dead}
        self.verdict.not_empty = len(left.live)
        died = [version for _, version, _ in left.dead]
        self.verdict.died_twice = len(died) - len(set(died))
        for key, offers in self._offers.items():
            ended = {
                g.payload
                for g in self._grants[key]
                if any(op.name == "ack" and self._may_be_done(op) for op in g.settles)
            }
            changes = list(self._changes(key))
            for op in offers:
                if op.answer != OK or op.result[0] not in STORED or op.facts[1] in live | dead | ended:
                    continue
                if not any(other is not op and other.returned >= op.invoked for other in changes):
                    self.verdict.count("lost", op)

    def _next_crash(self, after: int) -> float:
        """When the first crash began that was not over then: it may have taken back what was granted until its end."""
        place = bisect_left(self._crashes, (after, 0))
        return self._crashes[place][1] if place < len(self._crashes) else float("inf")

    def _crashed(self, after: float, before: float) -> bool:
        return self._next_crash(int(after)) <= before


def check(history: History) -> Verdict:
    return Checker(history).check()


def tables(verdicts: Iterable[tuple[str, Verdict]]) -> str:
    return "\n\n".join(f"{title}\n\n| count | |\n|---|---|\n{verdict.table()}" for title, verdict in verdicts)
