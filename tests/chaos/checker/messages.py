"""Message by message: S1–S7 and S9–S11, in linear passes.

A lease that a crash took back is not a broken promise: a lease commits without waiting for the disk, and its token is then
void. So a lease counts as valid until the next crash at most.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

from tests.chaos.checker.index import DONE, STORED, Address, Grant, Index, Item, Settle
from tests.chaos.checker.verdict import Verdict
from tests.chaos.layout import CRON, KINDS
from tests.chaos.recording import OK, UNKNOWN, Operation

_ZOMBIE = 60_000_000
"""A call that was not answered is carried out within this time, in microseconds, if it is at all."""


def check_messages(index: Index, verdict: Verdict) -> None:
    for address in index.offers.keys() | index.grants.keys():
        grants = index.grants.get(address, [])
        if address[0] != CRON.name:
            _check_deliveries(index, address, grants, verdict)
        _check_leases(index, address, grants, verdict)
        _check_settles(index, address, grants, verdict)
    _check_versions(index, verdict)
    _check_pauses(index, verdict)
    if index.history.left is not None:
        _check_accounts(index, verdict)
        _check_effects(index, verdict)


def _check_deliveries(index: Index, address: Address, grants: list[Grant], verdict: Verdict) -> None:
    """S2, S16, S9: every delivery has an offer of this queue and key, or an edit, and is not before its time."""
    queue, key = address
    for grant in grants:
        items = [
            item
            for item in index.by_payload.get(grant.payload, ())
            if item.op.queue == queue and item.key in (None, key) and item.op.invoked <= grant.by.returned
        ]
        if not items:
            verdict.count("unexpected", (address, grant))
        elif grant.leased_at < grant.due_at:
            verdict.count("early", (address, grant))
        elif items and all(grant.leased_at < item.op.invoked + _delay(item) for item in items):
            verdict.count("early", (address, grant, items))


def _delay(item: Item) -> int:
    """A debounced offer is due at the limit of the first one in the row, which may be earlier than its own delay."""
    return 0 if item.policy == "debounce" else item.delay


def _check_leases(index: Index, address: Address, grants: list[Grant], verdict: Verdict) -> None:
    """S3 and S10, and the delay of a nack or a release as part of S9."""
    changes = list(index.changes(address)) if len(grants) > 1 else []
    most = KINDS[address[0]].max_attempts
    last: dict[tuple[int, str], Grant] = {}
    before: Grant | None = None
    for grant in grants:
        if before is not None and grant.leased_at < _valid_until(index, before, changes):
            verdict.count("overlapping", (address, before, grant))
        same = last.get((grant.version, grant.payload))
        if same is not None:
            verdict.report("redelivered")
            _check_again(index, address, same, grant, verdict)
        if most is not None and grant.attempt > most:
            verdict.count("attempts_wrong", (address, grant))
        last[grant.version, grant.payload] = before = grant


def _check_again(index: Index, address: Address, before: Grant, grant: Grant, verdict: Verdict) -> None:
    crashed = index.faults.crashed(before.leased_at, grant.leased_at)
    given_back = any(s.op.name == "release" and s.may_be_done for s in before.settles)
    if grant.attempt <= before.attempt and not given_back and not crashed:
        verdict.count("attempts_wrong", (address, before, grant))
    for settle in before.settles:
        is_early = grant.leased_at < settle.op.invoked + settle.delay
        if settle.op.name in ("nack", "release") and settle.outcome == DONE and is_early and not crashed:
            verdict.count("early", (address, before, grant))


def _valid_until(index: Index, grant: Grant, changes: list[Operation]) -> float:
    """Until when a lease was valid for certain: every reason it may have ended before is taken into account."""
    changed = min(
        (max(op.invoked, grant.leased_at) for op in changes if op.returned >= grant.leased_at), default=float("inf")
    )
    crash = index.faults.next_crash(grant.leased_at)
    return min(grant.lease_until, grant.ended_by_holder(), changed, crash)


def _check_settles(index: Index, address: Address, grants: list[Grant], verdict: Verdict) -> None:
    """S5 and S6."""
    acked: dict[tuple[int, str], Operation] = {}
    for i, grant in enumerate(grants):
        for settle in grant.settles:
            if settle.outcome == DONE:
                _check_fence(index, address, grants[i:], settle, verdict)
                if settle.op.name == "ack":
                    first = acked.setdefault((grant.version, grant.payload), settle.op)
                    if first is not settle.op:
                        verdict.count("double_ack", (address, first, settle.op))
    for grant in grants:
        ack = acked.get((grant.version, grant.payload))
        if ack is not None and grant.by.invoked > ack.returned:
            verdict.count("delivered_after_ack", (address, ack, grant))


def _check_fence(index: Index, address: Address, grants: list[Grant], settle: Settle, verdict: Verdict) -> None:
    """`grants`: the one that was settled, and all after it."""
    grant, op = grants[0], settle.op
    later = [g for g in grants[1:] if g.by.returned < op.invoked]
    if any(not index.faults.crashed(g.leased_at, op.returned) for g in later):
        verdict.count("stale_settle_won", (address, grant, op, later))
    replaced = any(
        item.outcome == "updated" and item.op.invoked > grant.by.returned and item.op.returned < op.invoked
        for item in index.offers.get(address, ())
    )
    if replaced and not index.faults.forgot(grant.leased_at, op.returned):
        verdict.count("replaced_settle_won", (address, grant, op))
    if op.name == "touch" and op.invoked > _held_at_most(grant, op):
        verdict.count("late_touch_won", (address, grant, op))


def _held_at_most(grant: Grant, touch: Operation) -> float:
    """Until when the lease may have lasted, with every touch that may have worked before this one."""
    lasts = grant.lease_until - grant.leased_at
    touches = [s for s in grant.settles if s.op.name == "touch" and s.op is not touch and s.op.invoked < touch.invoked]
    return max([grant.lease_until, *(s.op.returned + lasts for s in touches if s.may_be_done)])


def _check_versions(index: Index, verdict: Verdict) -> None:
    """S4 and S7: a message offered after another was leased has a higher version; one offer makes one version."""
    for address, grants in index.grants.items():
        if address[0] == CRON.name:
            continue
        first: dict[str, Grant] = {}
        for grant in grants:
            first.setdefault(grant.payload, grant)
        in_order = sorted(first.values(), key=lambda g: g.by.returned)
        for before, grant in pairwise(in_order):
            items = index.by_payload.get(grant.payload, [])
            offered = min((item.op.invoked for item in items), default=0)
            forgot = index.faults.forgot(before.leased_at, grant.leased_at)
            if grant.version < before.version and offered > before.by.returned and not forgot:
                verdict.count("version_back", (address, before, grant))
    versions: dict[str, set[int]] = defaultdict(set)
    for grant in index.by_token.values():
        versions[grant.payload].add(grant.version)
    for payload, numbers in versions.items():
        items = index.by_payload.get(payload, [])
        if len(numbers) < 2 or not items or items[0].retried or KINDS[items[0].op.queue].revives:
            continue
        if not index.faults.forgot(items[0].op.invoked, float("inf")):
            verdict.count("stored_twice", (items[0], sorted(numbers)))


def _check_pauses(index: Index, verdict: Verdict) -> None:
    """A poll that began after a pause was answered, and ended before any resume was sent, gives nothing."""
    turns = [op for op in index.history.operations if op.name in ("pause", "resume")]
    for queue in {op.queue for op in turns}:
        ours = [op for op in turns if op.queue == queue]
        polls = [op for op in index.history.operations if op.name == "poll" and op.queue == queue and op.status == OK]
        for pause in (op for op in ours if op.name == "pause" and op.status == OK):
            resumes = [op for op in ours if op.name == "resume" and op.returned > pause.invoked]
            resumed = min((op.invoked for op in resumes if op.invoked > pause.invoked - _ZOMBIE), default=float("inf"))
            for poll in polls:
                within = poll.invoked > pause.returned and poll.returned < resumed
                if poll.result[0] and within and not index.faults.forgot(pause.returned, poll.returned):
                    verdict.count("delivered_while_paused", (pause, poll))


def _check_accounts(index: Index, verdict: Verdict) -> None:
    """S1 and S10: where every accepted message is in the end."""
    left = index.history.left
    assert left is not None
    live = {payload for _, _, payload, _ in left.live}
    dead = {payload for _, _, payload, _, _ in left.dead}
    for row in left.live:
        verdict.count("not_empty", row)
    died = Counter((queue, version, payload) for queue, _, payload, version, _ in left.dead)
    for row, n in died.items():
        if n > 1:
            verdict.count("died_twice", row)
    for queue, _, _, _, attempt in left.dead:
        most = KINDS[queue].max_attempts
        if most is not None and attempt > most:
            verdict.count("attempts_wrong", (queue, attempt, "dead"))
    discarded = _queues_with(index, "discard", OK, UNKNOWN)
    half_polled = _queues_with(index, "poll", UNKNOWN)
    present = live | dead
    for address, items in index.offers.items():
        ended = {
            grant.payload
            for grant in index.grants.get(address, ())
            if any(s.op.name in ("ack", "bury") and s.may_be_done for s in grant.settles)
        }
        latest: list[Operation] | None = None
        for item in items:
            if item.outcome not in STORED or item.payload in present or item.payload in ended:
                continue
            if address[0] in discarded and (address[0] in half_polled or _may_have_died(index, address, item)):
                continue
            if latest is None:
                latest = sorted(index.changes(address), key=lambda op: op.returned)[-2:]
            if not any(other is not item.op and other.returned >= item.op.invoked for other in latest):
                verdict.count("lost", (address, item))
    delivered = {grant.payload for grant in index.by_token.values()}
    for item in index.forgotten:
        verdict.report("forgotten", item.payload not in present and item.payload not in delivered)


def _queues_with(index: Index, name: str, *outcomes: str) -> set[str]:
    return {op.queue for op in index.history.operations if op.name == name and op.status in outcomes}


def _may_have_died(index: Index, address: Address, item: Item) -> bool:
    """Its last attempt may have failed: then it may have been among the discarded."""
    most = KINDS[address[0]].max_attempts
    grants = [g for g in index.grants.get(address, ()) if g.payload == item.payload]
    return any(s.op.name == "bury" for g in grants for s in g.settles) or (
        most is not None and any(g.attempt >= most for g in grants)
    )


def _check_effects(index: Index, verdict: Verdict) -> None:
    """An effect in the transaction of an ack: once if the commit was answered, at most once in any case."""
    left = index.history.left
    assert left is not None
    effects = Counter(left.effects)
    for payload, n in effects.items():
        if n > 1:
            verdict.count("effect_wrong", (payload, n))
    for op in index.history.operations:
        is_missing = op.name == "effect" and op.status == OK and not effects[op.facts[0]]
        if is_missing and not index.faults.forgot(op.invoked, op.returned):
            verdict.count("effect_wrong", (op, "missing"))
