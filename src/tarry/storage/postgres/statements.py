"""The verbs of messages, one statement each: parameters in, values out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from tarry.core.errors import UnknownQueue
from tarry.core.events import KINDS, Event, EventKind
from tarry.core.fingerprints import fingerprint
from tarry.core.messages import (
    Counted,
    Counts,
    Draft,
    Filter,
    Hold,
    StoredMessage,
)
from tarry.core.retry import Retry
from tarry.core.states import State
from tarry.storage.postgres.arrays import (
    MINUS_INFINITY,
    BigintArray,
    BooleanArray,
    ByteaArray,
    FloatArray,
    IntArray,
    JsonbArray,
    SmallintArray,
    TextArray,
    TimestampArray,
    UuidArray,
)
from tarry.storage.postgres.copying import CONFLICTS, Reserved
from tarry.storage.postgres.statement import Row, Statement, sql

T = TypeVar("T")

WALK = 10_000
"""How many rows a page for people may walk to find what it shows."""


class LeasedRow(NamedTuple):
    key: str
    payload: bytes
    version: int
    token: UUID
    attempt: int
    priority: int
    due_at: datetime
    lease_until: datetime
    leased_at: datetime
    type: str | None
    headers: dict[str, str] | None
    content_type: str | None
    exhausted: bool


class Position(NamedTuple):
    """Where a scan of one priority begins: behind this message. None: at the head."""

    due_at: datetime | None = None
    version: int = 0


class MissingQueue(UnknownQueue):
    """A statement about messages found no such queue. Offers and polls may create it; others raise `UnknownQueue`."""


class SettledKeys(NamedTuple):
    """The keys of what was settled; None: every one that was asked for. `busy`: what another transaction has locked."""

    done: frozenset[str] | None
    busy: frozenset[str] = frozenset()


NONE_SETTLED = SettledKeys(frozenset())


@dataclass(frozen=True, slots=True)
class Failed:
    """One message that failed: retried if `reason` is None and attempts are left, else dead."""

    hold: Hold
    error: str | None = None
    delay: timedelta | None = None
    reason: str | None = None
    lapsed: bool = False


class Stored(NamedTuple):
    """Which keys an offer created and updated. None for created: all of them."""

    created: frozenset[str] | None
    updated: frozenset[str] = frozenset()


def offer(
    queue: str, drafts: Sequence[Draft], places: Sequence[int], versions: Sequence[int] | None, now: datetime | None
) -> Statement[Stored]:
    """Drafts sorted by key, each key once; the draft of place 1 gets the first version (of those given, or new ones)."""
    params = {
        "queue": queue,
        "now": now,
        "places": IntArray(places),
        "versions": None if versions is None else BigintArray(versions),
        "keys": TextArray([d.key for d in drafts]),
        "payloads": ByteaArray([d.payload for d in drafts]),
        "due_ats": TimestampArray([d.due_at for d in drafts]),
        "delays": FloatArray([d.delay.total_seconds() for d in drafts]),
        "priorities": SmallintArray([d.priority for d in drafts]),
        "conflicts": SmallintArray([CONFLICTS[d.conflict.rule] for d in drafts]),
        "types": TextArray([d.type for d in drafts]),
        "content_types": TextArray([d.content_type for d in drafts]),
        "extras": JsonbArray([_extra(d) for d in drafts]),
    }

    def decode(rows: list[Row]) -> Stored:
        n_created, created, updated = known(queue, rows)[0][:3]
        return Stored(None) if n_created == len(drafts) else Stored(frozenset(created or ()), frozenset(updated or ()))

    return Statement(sql("offer"), params, decode)


def offer_fresh(queue: str, drafts: Sequence[Draft], now: datetime | None) -> Statement[None]:
    """Drafts with new keys and without options, see `copying.is_copyable`; in the order given."""
    params = {
        "queue": queue,
        "now": now,
        "keys": TextArray([d.key for d in drafts]),
        "payloads": ByteaArray([d.payload for d in drafts]),
        "due_ats": TimestampArray([d.due_at for d in drafts]),
        "delays": FloatArray([d.delay.total_seconds() for d in drafts]),
        "priorities": SmallintArray([d.priority for d in drafts]),
        "content_types": TextArray([d.content_type for d in drafts]),
    }

    def decode(rows: list[Row]) -> None:
        known(queue, rows)

    return Statement(sql("offer_fresh"), params, decode)


def reserve(queue: str, n: int, now: datetime | None) -> Statement[Reserved]:
    return Statement(
        sql("reserve"), {"queue": queue, "n": n, "now": now}, lambda rows: Reserved(*known(queue, rows)[0])
    )


def lease(
    queue: str,
    n: int,
    positions: Sequence[Position],
    *,
    type: str | None,
    lease_for: timedelta | None,
    consumer: str | None,
    durable: bool,
    now: datetime | None,
    max_attempts: int | None = None,
    lowest_first: bool = False,
) -> Statement[list[LeasedRow]]:
    """`positions` are those of priority 0 to 9."""
    order = positions if lowest_first else tuple(reversed(positions))
    params = {
        "queue": queue,
        "n": storable(n),
        "type": type,
        "lease_for": lease_for,
        "consumer": consumer,
        "durable": durable,
        "now": now,
        "max_attempts": max_attempts,
        "priorities": _LOWEST_FIRST if lowest_first else _HIGHEST_FIRST,
        "after_due_at": TimestampArray([p.due_at for p in order], missing=MINUS_INFINITY),
        "after_version": BigintArray([p.version for p in order]),
    }
    return Statement(
        sql("lease") if type is None else sql("lease_typed"),
        params,
        lambda rows: [LeasedRow._make(row) for row in known(queue, rows) if row[0] is not None],
    )


_HIGHEST_FIRST = SmallintArray(range(9, -1, -1))
_LOWEST_FIRST = SmallintArray(range(10))


def ack(queue: str, holds: Sequence[Hold], now: datetime | None) -> Statement[SettledKeys]:
    return Statement(sql("ack"), {"queue": queue, "now": now, **_held(holds)}, _settling(queue))


def touch(
    queue: str, holds: Sequence[Hold], lease_for: timedelta | None, now: datetime | None
) -> Statement[SettledKeys]:
    params = {"queue": queue, "now": now, "lease_for": lease_for, **_held(holds)}
    return Statement(sql("touch"), params, _touching(queue))


def release(
    queue: str,
    holds: Sequence[Hold],
    now: datetime | None,
    *,
    due_at: datetime | None = None,
    delay: timedelta | None = None,
) -> Statement[SettledKeys]:
    params = {"queue": queue, "now": now, "due_at": due_at, "delay": delay, **_held(holds)}
    return Statement(sql("release"), params, _settling(queue))


def nack(
    queue: str, failures: Sequence[Failed], now: datetime | None, retry: Retry | None = None
) -> Statement[SettledKeys]:
    params = {
        "queue": queue,
        "now": now,
        **_held([f.hold for f in failures]),
        "errors": TextArray([f.error for f in failures]),
        "delays": FloatArray([None if f.delay is None else f.delay.total_seconds() for f in failures]),
        "reasons": TextArray([f.reason for f in failures]),
        "lapsed": BooleanArray([f.lapsed for f in failures]),
        "retry": None if retry is None else FloatArray(retry_numbers(retry)),
        "max_attempts": None if retry is None else retry.max_attempts,
        "fingerprints": TextArray([fingerprint(f.reason or "exhausted", f.error) for f in failures]),
    }
    return Statement(sql("nack"), params, _settling(queue))


def live_holds(queue: str, holds: Sequence[Hold]) -> Statement[dict[str, tuple[str, UUID | None]]]:
    """By key: the queue of the live message and the token that holds it now, if any. A message that these holds hold comes
    before one that only has the same key."""
    params = {"queue": queue, **_held(holds)}
    return Statement(sql("live_holds"), params, lambda rows: {key: (name, token) for key, name, token in rows})


def locked(queue: str, keys: Sequence[str]) -> Statement[frozenset[str]]:
    """Which of these keys are live and locked by another transaction at this moment."""
    params = {"queue": queue, "keys": TextArray(keys)}
    return Statement(sql("locked"), params, lambda rows: frozenset(row[0] for row in rows))


def refused(queue: str, verb: str, keys: Sequence[str], now: datetime | None) -> Statement[None]:
    params = {"queue": queue, "verb": verb, "keys": TextArray(keys), "now": now}
    return Statement(sql("refused"), params, lambda rows: None)


def read(queue: str, key: str, now: datetime | None) -> Statement[StoredMessage[bytes] | None]:
    def decode(rows: list[Row]) -> StoredMessage[bytes] | None:
        row = known(queue, rows)[0]
        return None if row[1] is None else _stored(row)

    return Statement(sql("read"), {"queue": queue, "key": key, "now": now}, decode)


def messages(
    queue: str, state: State | None, limit: int, filter: Filter, now: datetime | None
) -> Statement[list[StoredMessage[bytes]]]:
    rows = storable(limit)
    params = {
        "queue": queue,
        "state": state and state.value,
        "limit": rows,
        # Where every row is shown, no more are walked than are shown.
        "walk": rows if state is None and filter == Filter(after=filter.after) else max(rows, WALK),
        "now": now,
        "after_due_at": filter.after and filter.after.due_at,
        "after_version": filter.after and filter.after.version,
        "type": filter.type,
        "priority": filter.priority,
        "key_prefix": filter.key_prefix,
    }
    return Statement(
        sql("messages"), params, lambda rows: [_stored(row) for row in known(queue, rows) if row[1] is not None]
    )


def counts(queue: str, limit: int, now: datetime | None) -> Statement[Counts]:
    limit = storable(limit)

    def decode(rows: list[Row]) -> Counts:
        delayed, ready, leased, dead, due, later, lag = known(queue, rows)[0]
        due_capped, later_capped = due > limit, later > limit

        def counted(n: int, *, capped: bool) -> Counted:
            return Counted(min(n, limit), capped)

        return Counts(
            delayed=counted(delayed, capped=later_capped),
            ready=counted(ready, capped=due_capped),
            leased=counted(leased, capped=due_capped or later_capped),
            dead=counted(dead, capped=dead > limit),
            lag_for=lag,
        )

    return Statement(sql("counts"), {"queue": queue, "limit": limit + 1, "now": now}, decode)


def drop(
    queue: str, key: str, version: int | None, now: datetime | None, *, unless_leased: bool = False
) -> Statement[bool]:
    seen = None if version is None else possible(version)
    params = {"queue": queue, "key": key, "version": seen, "unless_leased": unless_leased, "now": now}
    return Statement(sql("drop"), params, lambda rows: known(queue, rows)[0][0] is not None)


def drop_all(queue: str, now: datetime | None) -> Statement[int]:
    return Statement(sql("drop_all"), {"queue": queue, "now": now}, lambda rows: known(queue, rows)[0][0])


def by_bitmaps() -> Statement[None]:
    """Before a statement that relies on event_find, in its transaction. Not on a caller's connection: it is not tuned, and
    the rest of the transaction is none of our business."""
    return Statement(sql("by_bitmaps"), {}, lambda rows: None)


def timeline(queue: str, key: str, limit: int, before: int | None = None) -> Statement[list[Event]]:
    def decode(rows: list[Row]) -> list[Event]:
        return [
            Event(
                id=row[0], kind=EventKind(row[1]), at=row[2], queue=row[3], key=row[4], version=row[5],
                attempt=row[6], priority=row[7], due_at=row[8], leased_at=row[9], lease_until=row[10],
                consumer=row[11], size=row[12], payload_hash=row[13], payload=row[14], error=row[15], detail=row[16],
            )
            for row in known(queue, rows)
            if row[0] is not None
        ]  # fmt: skip

    # Filtered in the statement: fewer rows than `limit` mean that there are no more.
    params = {"queue": queue, "key": key, "before": before, "limit": storable(limit), "kinds": TextArray(sorted(KINDS))}
    return Statement(sql("timeline"), params, decode)


def storable(limit: int) -> int:
    """As many rows as PostgreSQL can count to, or none: it has a word for neither a negative nor an endless limit."""
    return max(0, min(limit, 2**31 - 2))


def possible(version: int) -> int:
    """Versions come from a sequence that begins with 1; what cannot be one is 0, which none is."""
    return version if 0 < version < 2**63 else 0


def known(queue: str, rows: list[Row]) -> list[Row]:
    """Every statement about a queue answers with at least one row, unless there is no such queue."""
    if not rows:
        raise MissingQueue(queue)
    return rows


def _held(holds: Sequence[Hold]) -> dict[str, Any]:
    return {"keys": TextArray([h.key for h in holds]), "tokens": UuidArray([h.token for h in holds])}


def _settling(queue: str) -> Callable[[list[Row]], SettledKeys]:
    def decode(rows: list[Row]) -> SettledKeys:
        n, keys = known(queue, rows)[0][:2]
        return SettledKeys(frozenset() if n == 0 else None if keys is None else frozenset(keys))

    return decode


def _touching(queue: str) -> Callable[[list[Row]], SettledKeys]:
    settling = _settling(queue)

    def decode(rows: list[Row]) -> SettledKeys:
        return settling(rows)._replace(busy=frozenset(rows[0][2] or ()))

    return decode


def _extra(draft: Draft) -> bytes | None:
    """What most messages do not have, in one column that is usually null."""
    if not (draft.headers or draft.lease_for or draft.max_attempts or draft.retry or draft.conflict.max_wait):
        return None
    extra: dict[str, Any] = {}
    if draft.headers:
        extra["headers"] = dict(draft.headers)
    if draft.lease_for is not None:
        extra["lease_for"] = draft.lease_for.total_seconds()
    if draft.max_attempts is not None:
        extra["max_attempts"] = draft.max_attempts
    if draft.retry is not None:
        extra["retry"] = retry_numbers(draft.retry)
    if draft.conflict.max_wait is not None:
        extra["max_wait"] = draft.conflict.max_wait.total_seconds()
    return json.dumps(extra).encode()


def retry_numbers(retry: Retry) -> list[float]:
    return [retry.initial_for.total_seconds(), retry.factor, retry.cap_for.total_seconds(), retry.jitter]


def retry_of(numbers: Sequence[float]) -> Retry:
    initial_s, factor, cap_s, jitter = numbers
    return Retry(
        initial_for=timedelta(seconds=initial_s), factor=factor, cap_for=timedelta(seconds=cap_s), jitter=jitter
    )


def _stored(row: Row) -> StoredMessage[bytes]:
    return StoredMessage(
        queue=row[0], key=row[1], payload=row[2], version=row[3], state=State(row[4]), attempt=row[5], priority=row[6],
        due_at=row[7], created_at=row[8], lease_until=row[9], consumer=row[10], type=row[11], headers=row[12],
        content_type=row[13], max_attempts=row[14], last_error=row[15], origin=row[16], own_max_attempts=row[17],
        lease_for=row[18], retry=None if row[19] is None else retry_of(row[19]),
    )  # fmt: skip
