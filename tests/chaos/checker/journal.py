"""S12 and S18: the events of the journal add up to the tables, and its readers got all of them or a gap."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from tests.chaos.checker.verdict import Verdict
from tests.chaos.recording import OK, History, Left, Operation

BEGINS = ("offered", "redriven", "updated", "edited", "cron_planned")
ENDS = ("acked", "buried", "dropped", "cron_replaced")


class Event(NamedTuple):
    queue: str
    key: str | None
    id: int
    at: int
    kind: str
    version: int | None
    origin: int | None = None


def check_journal(events: Iterable[Event], history: History, verdict: Verdict) -> None:
    """`events`: the whole journal, sorted by queue, key and id."""
    assert history.left is not None
    readers = {name: Reader(name) for name in {op.client for op in history.operations if op.name == "feed"}}
    for op in history.operations:
        if op.name == "feed" and op.status == OK:
            readers[op.client].take(op, verdict)
    live: set[tuple[str, str, int]] = set()
    dead: dict[str, set[int]] = {}
    for (queue, key), group in groupby(events, key=lambda event: event[:2]):
        _fold(queue, key, list(group), readers.values(), live, dead, verdict)
    _compare(live, dead, history.left, verdict)
    forgets = any(fault.forgets for fault in history.faults)
    for reader in readers.values():
        reader.check_rest(verdict, forgets=forgets)


def _fold(
    queue: str,
    key: str | None,
    events: list[Event],
    readers: Iterable[Reader],
    live: set[tuple[str, str, int]],
    dead: dict[str, set[int]],
    verdict: Verdict,
) -> None:
    version: int | None = None
    acked: set[int] = set()
    died = dead.setdefault(queue, set())
    for event in events:
        for reader in readers:
            reader.expect(event, verdict)
        if event.version is None:
            continue
        if event.kind in BEGINS:
            version = event.version
            if event.origin is not None:
                died.discard(event.origin)
        elif event.kind in ENDS:
            if event.version != version or event.version in acked:
                verdict.count("journal_wrong", (event, version))
            if event.kind == "acked":
                acked.add(event.version)
            elif event.kind == "buried":
                died.add(event.version)
            version = None
        elif event.kind == "discarded":
            died.discard(event.version)
    if version is not None and key is not None:
        live.add((queue, key, version))


def _compare(live: set[tuple[str, str, int]], dead: dict[str, set[int]], left: Left, verdict: Verdict) -> None:
    for row in live ^ {(queue, key, version) for queue, key, _, version in left.live}:
        verdict.count("journal_wrong", ("live", row))
    in_table: dict[str, set[int]] = {}
    for queue, _, _, version, _ in left.dead:
        in_table.setdefault(queue, set()).add(version)
    for queue in dead.keys() | in_table.keys():
        for version in dead.get(queue, set()) ^ in_table.get(queue, set()):
            verdict.count("journal_wrong", ("dead", queue, version))


class Reader:
    """One follower of the journal: what it was given, and which times a gap covers. After a gap events may come again."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._given: set[int] = set()
        self._begun: float | None = None
        self._gaps: list[tuple[float, float]] = []
        self._last = 0.0

    def take(self, op: Operation, verdict: Verdict) -> None:
        events, gap, position, complete = op.result
        if position is None:
            return  # it has not been connected yet
        if self._begun is None:
            self._begun = op.returned
        elif gap is not None:
            verdict.report("gaps")
            self._gaps.append((self._last, op.returned))
        verdict.report("events", len(events))
        for id, at in events:
            seen = _name(id, at)
            if seen in self._given and not self._covered(at):
                verdict.count("event_doubled", (self.name, id, at))
            self._given.add(seen)
            self._last = max(self._last, at - _LATE_IN_A_PAGE)
        if complete:
            self._last = max(self._last, op.invoked)

    def expect(self, event: Event, verdict: Verdict) -> None:
        """An event of the journal. One that this reader was given is done with."""
        name = _name(event.id, event.at)
        if name in self._given:
            self._given.remove(name)
        elif self._begun is not None and self._begun < event.at < self._last and not self._covered(event.at):
            verdict.count("event_missing", (self.name, event))

    def check_rest(self, verdict: Verdict, *, forgets: bool) -> None:
        """What it was given and is not in the journal: only after a failover that forgets, and only with a gap."""
        if self._given and not (forgets and self._gaps):
            verdict.count("event_unknown", (self.name, len(self._given)))

    def _covered(self, at: int) -> bool:
        return any(since - _LATE <= at <= until for since, until in self._gaps)


_LATE_IN_A_PAGE = 5_000_000
"""An event may come so much after others that were stamped later, in microseconds, by the order of transactions."""
_LATE = 30_000_000
"""An event may be committed so much later than it was stamped, in microseconds, by a transaction that was delayed."""


def _name(id: int, at: int) -> int:
    """Ids are issued again after an asynchronous failover; with the time they stay apart."""
    return at << 44 | id
