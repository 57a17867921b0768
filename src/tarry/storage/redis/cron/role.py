"""`CronRole` on Redis. Schedules and ledgers are in the slot of the registry, messages in those of their queues:
`_changes.lua` describes how a change of both is made."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, LiteralString

from tarry.core.cron.model import DueCount, ScheduleChange, ScheduleState, TickRecord
from tarry.core.errors import LockTimeout, UnknownQueue
from tarry.storage.redis.cron.rows import LedgerRow, state_of, stored_changes, text
from tarry.storage.redis.operation import Op, RedisRole, RoleContext, duration, instant, micros, operation
from tarry.storage.redis.queues.role import RedisQueues

_TRIES = 1_000
"""Changes of other processes that one operation completes before it gives up."""
_PART = 500
"""Schedules or entries that one script reads."""
_COUNTED_AT_ONCE = 2_000
_SETS = (*(f":due:{priority}" for priority in range(10)), ":leased")


class RedisCron(RedisRole):
    def __init__(self, context: RoleContext, queues: RedisQueues) -> None:
        super().__init__(context)
        self._queues = queues

    @operation
    def schedules(self, name: str | None = None) -> Op[list[ScheduleState]]:
        if name is not None:
            return (yield from self._states("cron/schedules", name=name))
        states: list[ScheduleState] = []
        while True:
            after = states[-1].name if states else None
            page = yield from self._states("cron/schedules", after=after, limit=_PART)
            states += page
            if len(page) < _PART:
                return sorted(states, key=lambda state: state.name)

    @operation
    def due(self, owned: Sequence[str], *, limit: int = 1000) -> Op[list[ScheduleState]]:
        return (yield from self._states("cron/due", owned=[*owned], limit=max(limit, 0)))

    def _states(self, script: LiteralString, /, **params: Any) -> Op[list[ScheduleState]]:
        _, rows = yield from self._read(script, **params)
        last = {(row[4].decode(), row[5].decode()) for row in rows if row[4]}
        live = yield from self._live((queue, key, None) for queue, key in last)
        return [
            state_of(
                row[0].decode(), row[1], row[2], row[3], last_live=(row[4].decode(), row[5].decode(), None) in live
            )
            for row in rows
        ]

    def _read(self, script: LiteralString, /, **params: Any) -> Op[Any]:
        """The reply without its first part: the number of a change that must be completed before."""
        for _ in range(_TRIES):
            number, *reply = yield from self._registry(script, **params)
            if not number:
                return reply
            yield from self._complete((yield from self._registry("cron/advance", change=number.decode())))
        raise LockTimeout("the schedules change all the time", hint="retry the request")

    def _live(self, messages: Iterable[tuple[str, str, int | None]]) -> Op[dict[tuple[str, str, int | None], int]]:
        """Which of these messages, by queue, key and version, are live; and the attempts of each."""
        by_queue: defaultdict[str, list[tuple[str, int | None]]] = defaultdict(list)
        for queue, key, version in messages:
            by_queue[queue].append((key, version))
        live: dict[tuple[str, str, int | None], int] = {}
        for queue, ids in by_queue.items():
            for start in range(0, len(ids), _PART):
                part = ids[start : start + _PART]
                keys, versions = [key for key, _ in part], [str(version or "") for _, version in part]
                attempts = yield from self._by_id(queue, "cron/live", keys=keys, versions=versions)
                for (key, version), attempt in zip(part, attempts or (), strict=attempts is not None):
                    if attempt >= 0:
                        live[queue, key, version] = attempt
        return live

    @operation
    def next_wake_in(self, owned: Sequence[str]) -> Op[timedelta | None]:
        now, wake = yield from self._registry("cron/next_wake", owned=[*owned])
        return instant(wake) - instant(now) if wake else None

    @operation
    def apply_changes(self, changes: Sequence[ScheduleChange], *, together: bool = True) -> Op[list[bool]]:
        fields, arguments = stored_changes(changes)
        ids: dict[str, str] = {}
        for queue in sorted({tick["queue"] for change in fields for tick in change["ticks"] if "queue" in tick}):
            # A process that ended while it deleted the queue leaves its name, and the ticks would go to the deleted one.
            yield from self._in_queue(queue, "queues/info", create=True)
        for _ in range(_TRIES):
            number, missing, applied, work = yield from self._registry(
                "cron/begin", arguments, changes=fields, together=together, ids=ids
            )
            if number:
                yield from self._complete((yield from self._registry("cron/advance", change=number.decode())))
            elif missing:
                queue = missing.decode()
                yield from self._in_queue(queue, "queues/info", create=True)
                ids[queue] = (yield from self._ids(queue)).id or ""
            else:
                yield from self._complete(work)
                return [bool(each) for each in applied]
        raise LockTimeout("the schedules change all the time", hint="retry the request")

    def _complete(self, work: Sequence[bytes]) -> Op[None]:
        """Carry a change out: its own process does, or the next one that reads a schedule of it."""
        while work:
            number, floor, stage = (part.decode() for part in work[:3])
            verb: LiteralString = "cron/withdraw" if stage == "withdraw" else "cron/offer"
            results: list[bytes] = []
            for queue, items in zip(work[3::2], work[4::2], strict=True):
                result = yield from self._by_id(queue.decode(), verb, [items], change=number, floor=floor)
                results.append(result or b"")
            work = yield from self._registry("cron/advance", results, change=number, stage=stage)

    @operation
    def ticks(
        self, name: str, *, since: datetime | None = None, until: datetime | None = None, limit: int = 100
    ) -> Op[list[TickRecord]]:
        most = max(min(limit, 2**31), 0)
        (rows,) = yield from self._read("cron/ticks", name=name, since=text(since), til=text(until), limit=most)
        entries = [LedgerRow(row) for row in rows]
        live = yield from self._live(_messages(entries))
        records = [entry.record(name, live=_message(entry) in live) for entry in entries]
        records.sort(key=lambda record: (record.tick, record.until is None), reverse=True)
        return records[:most]

    @operation
    def waiting_ticks(self, name: str) -> Op[list[TickRecord]]:
        """Ticks whose messages are gone are closed, so each is read about once."""
        records: list[TickRecord] = []
        first = 0
        while True:
            (rows,) = yield from self._read("cron/open", name=name, first=first, limit=_PART)
            entries = [LedgerRow(row) for row in rows]
            live = yield from self._live(_messages(entries))
            records += [entry.record(name, live=True) for entry in entries if live.get(_message(entry)) == 0]
            gone = [entry.id for entry in entries if _message(entry) not in live]
            closed = (yield from self._registry("cron/close", ticks=gone)) if gone else 0
            if len(rows) < _PART:
                return records
            first += len(rows) - closed

    @operation
    def forget_ticks(self, before: datetime) -> Op[int]:
        first = 0
        while True:
            rows = yield from self._registry("cron/finished", before=text(before), first=first, limit=_PART)
            entries = [LedgerRow(row) for row in rows]
            live = yield from self._live(_messages(entries))
            old = [entry.id for entry in entries if _message(entry) not in live]
            forgotten = (yield from self._registry("cron/forget", ticks=old, before=text(before))) if old else 0
            if forgotten or len(rows) < _PART:
                return forgotten
            first += len(rows)

    @operation
    def due_counts(self, since: datetime, until: datetime, every: timedelta) -> Op[list[DueCount]]:
        counts: Counter[tuple[datetime, str]] = Counter()
        retries: Counter[tuple[datetime, str]] = Counter()
        span: dict[str, Any] = {
            "since": micros(since),
            "til": micros(until),
            "every": duration(every),
            "limit": _COUNTED_AT_ONCE,
        }
        for info in (yield from self._queues.infos().start()):
            for each in _SETS:
                position: dict[str, Any] = {}
                while True:
                    try:
                        reply = yield from self._in_queue(info.name, "cron/due_counts", set=each, **span, **position)
                    except UnknownQueue:  # deleted meanwhile
                        break
                    for bucket, n, tried in zip(*[iter(reply[2:])] * 3, strict=True):
                        key = since + bucket * every, info.name
                        counts[key] += n
                        retries[key] += tried
                    if not reply[0]:
                        break
                    position = {"after_score": int(float(reply[0])), "after_version": reply[1]}
        return [DueCount(key[1], key[0], counts[key], retries[key]) for key in sorted(counts)]


def _message(entry: LedgerRow) -> tuple[str, str, int | None]:
    return entry.stored.queue or "", entry.stored.key or "", entry.stored.version


def _messages(entries: Iterable[LedgerRow]) -> list[tuple[str, str, int | None]]:
    return [_message(entry) for entry in entries if entry.is_open]
