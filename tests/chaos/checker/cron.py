"""S13 and S14: each tick of a schedule makes one message, and a change of the configuration is atomic.

The schedules change between periods of which one divides the other. So a tick of the longest period is a tick of every
configuration, and must be delivered under exactly one of them, whenever the change was committed.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime

from tests.chaos.checker.index import DONE, Grant, Index
from tests.chaos.checker.verdict import Verdict
from tests.chaos.layout import CRON, PERIODS_S
from tests.chaos.recording import OK, Operation

SECOND = 1_000_000
COMMON = max(PERIODS_S) * SECOND
AROUND_A_FAILOVER = 10 * SECOND
Ticks = dict[int, list[tuple[str, Grant]]]
"""Tick → the deliveries of its messages, each with its configuration."""


def tick_of(key: str) -> tuple[str, str, int]:
    """Schedule, configuration hash and tick (in microseconds) of a message's key: `name/hash/yyyyMMdd-HHmmss.nnnnnnnnn`."""
    name, config, moment = key.rsplit("/", 2)
    seconds, nanos = moment.split(".")
    at = datetime.strptime(seconds, "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    return name, config, int(at.timestamp()) * SECOND + int(nanos) // 1_000


def check_cron(index: Index, verdict: Verdict) -> None:
    puts: dict[str, list[Operation]] = defaultdict(list)
    for op in index.history.operations:
        if op.name == "put":
            puts[op.facts[0]].append(op)
    delivered: dict[str, Ticks] = defaultdict(lambda: defaultdict(list))
    for address, grants in index.grants.items():
        if address[0] == CRON.name:
            name, config, tick = tick_of(address[1])
            delivered[name][tick] += [(config, grant) for grant in grants]
    for name, changes in puts.items():
        changes.sort(key=lambda op: op.invoked)
        ticks = delivered[name]
        verdict.report("ticks", len(ticks))
        for tick, grants in ticks.items():
            if len(_kept(index, grants)) > 1 and not _forgot(index, tick):
                verdict.count("tick_doubled", (name, tick, grants))
        _check_stale(name, changes, ticks, index, verdict)
        if index.history.left is not None:
            _check_missing(name, changes, ticks, index, verdict)


def _kept(index: Index, grants: list[tuple[str, Grant]]) -> set[tuple[str, int]]:
    """The messages of a tick that a client kept. One that was released, or whose lease a crash took back, counts as never
    delivered: a change of the configuration may replace it by a message of the new one."""
    last = max(grant.leased_at for _, grant in grants)
    return {
        (config, grant.version)
        for config, grant in grants
        if not any(s.op.name == "release" and s.may_be_done for s in grant.settles)
        and not (grant.leased_at < last and index.faults.crashed(grant.leased_at, last) and not _acked(grant))
    }


def _acked(grant: Grant) -> bool:
    return any(s.op.name == "ack" and s.outcome == DONE for s in grant.settles)


def _check_stale(name: str, changes: list[Operation], ticks: Ticks, index: Index, verdict: Verdict) -> None:
    """While one configuration was surely in force, no tick came that only another one has."""
    for put, replacement in zip(changes, [*changes[1:], None], strict=True):
        if put.status != OK:
            continue
        until = float("inf") if replacement is None else replacement.invoked
        for tick, messages in ticks.items():
            if put.returned < tick < until and tick % put.facts[1] and not _forgot(index, tick):
                verdict.count("tick_stale", (name, put, tick, messages))


def _check_missing(name: str, changes: list[Operation], ticks: Ticks, index: Index, verdict: Verdict) -> None:
    assert index.history.left is not None
    begun = min((int(op.returned) for op in changes if op.status == OK), default=None)
    if begun is None:
        return
    first = -(-begun // COMMON) * COMMON
    for tick in range(first, index.history.left.planned_until + 1, COMMON):
        if tick not in ticks and not _forgot(index, tick):
            verdict.count("tick_missing", (name, tick))


def _forgot(index: Index, tick: int) -> bool:
    return index.faults.forgot(tick - AROUND_A_FAILOVER, tick + AROUND_A_FAILOVER)
