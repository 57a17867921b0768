"""Message statements: parameters in, values out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from tarry.core.dead_letters.fingerprints import fingerprint
from tarry.core.errors import UnknownQueue
from tarry.core.messages.model import (
    CONFLICT_CODES,
    Counted,
    Counts,
    Draft,
    Filter,
    LeaseId,
    PollOptions,
    StoredMessage,
)
from tarry.core.messages.retry import Retry
from tarry.core.messages.states import State
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
    TidArray,
    TimestampArray,
)
from tarry.storage.postgres.copy_encoder import Reserved
from tarry.storage.postgres.messages.lease_tokens import poll_number, poll_numbers, row_tids, tid_text
from tarry.storage.postgres.statement import Row, Statement, bind, sql, value

T = TypeVar("T")

WALK = 10_000
"""Rows that a listing may scan for one page."""


class LeasedRow(NamedTuple):
    tid: bytes
    key: str
    payload: bytes
    version: int
    attempt: int
    priority: int
    due_at: datetime
    lease_until: datetime
    leased_at: datetime
    type: str | None
    headers: dict[str, str] | None
    content_type: str | None
    exhausted: bool


class ScanPosition(NamedTuple):
    """The message after which the scan of one priority starts; None: at the head."""

    due_at: datetime | None = None
    version: int = 0


HEAD: tuple[ScanPosition, ...] = (ScanPosition(),) * 10
"""Positions of a full scan."""


class MissingQueue(UnknownQueue):
    """The queue does not exist. Offers and polls may create it; other operations raise `UnknownQueue`."""


class SettledKeys(NamedTuple):
    """The settled keys; None: all of them. `busy`: keys that another transaction has locked."""

    done: frozenset[str] | None
    busy: frozenset[str] = frozenset()


ALL_SETTLED = SettledKeys(None)
NONE_SETTLED = SettledKeys(frozenset())


@dataclass(frozen=True, slots=True)
class Failed:
    """A failed message: retried if `reason` is None and attempts are left, else dead."""

    lease_id: LeaseId
    error: str | None = None
    after: timedelta | None = None
    due_at: datetime | None = None
    reason: str | None = None
    lapsed: bool = False


class Stored(NamedTuple):
    """The keys that an offer created and updated; `created` None: all of them."""

    created: frozenset[str] | None
    updated: frozenset[str] = frozenset()


def offer(
    queue: str,
    drafts: Sequence[Draft],
    ranks: Sequence[int],
    versions: Sequence[int] | None,
    now: datetime | None,
    *,
    fits: bool = True,
) -> Statement[Stored]:
    """Offer drafts that are sorted by key, each key once. The draft with rank 1 gets the first of the given versions, or of
    new ones. `fits`: see `depth`."""
    if len(drafts) == 1:
        draft, extra = drafts[0], _extra(drafts[0])
        values = _single(queue, draft, now, fits=fits)
        values["ranks"] = 1
        values["conflicts"] = CONFLICT_CODES[draft.conflict.rule]
        values["types"] = draft.type
        values["extras"] = None if extra is None else extra.decode()
        return Statement(sql("messages/offer:one"), values, lambda rows: _stored_one(queue, rows))
    params = _many(queue, drafts, now, fits=fits)
    params["ranks"] = IntArray(ranks)
    params["versions"] = None if versions is None else BigintArray(versions)
    params["conflicts"] = SmallintArray([CONFLICT_CODES[d.conflict.rule] for d in drafts])
    params["types"] = TextArray([d.type for d in drafts])
    params["extras"] = JsonbArray([_extra(d) for d in drafts])

    def decode(rows: list[Row]) -> Stored:
        row = known(queue, rows)[0]
        if row.n == len(drafts):
            return Stored(None)
        return Stored(frozenset(row.created or ()), frozenset(row.updated or ()))

    return Statement(sql("messages/offer"), params, decode)


def offer_fresh(queue: str, drafts: Sequence[Draft], now: datetime | None, *, fits: bool = True) -> Statement[None]:
    """Offer drafts with new keys and without options (see `copy_encoder.is_copyable`), in the given order."""

    def decode(rows: list[Row]) -> None:
        known(queue, rows)

    if len(drafts) == 1:
        return Statement(sql("messages/offer_fresh:one"), _single(queue, drafts[0], now, fits=fits), decode)
    return Statement(sql("messages/offer_fresh"), _many(queue, drafts, now, fits=fits), decode)


def _single(queue: str, draft: Draft, now: datetime | None, *, fits: bool) -> dict[str, Any]:
    """Parameters of a single offer: scalar values instead of arrays."""
    return {
        "queue": queue,
        "fits": fits,
        "now": now,
        "keys": draft.key,
        "payloads": draft.payload,
        "due_ats": draft.due_at,
        "after_s": draft.after.total_seconds() if draft.after else None,
        "priorities": draft.priority,
        "content_types": draft.content_type,
    }


def _many(queue: str, drafts: Sequence[Draft], now: datetime | None, *, fits: bool) -> dict[str, Any]:
    return {
        "queue": queue,
        "fits": fits,
        "now": now,
        "keys": TextArray([d.key for d in drafts]),
        "payloads": ByteaArray([d.payload for d in drafts]),
        "due_ats": _unless_absent(TimestampArray, [d.due_at for d in drafts]),
        "after_s": _unless_absent(FloatArray, [d.after.total_seconds() if d.after else None for d in drafts]),
        "priorities": SmallintArray([d.priority for d in drafts]),
        "content_types": _unless_absent(TextArray, [d.content_type for d in drafts]),
    }


def _unless_absent(array: Callable[[list[Any]], T], values: list[Any]) -> T | None:
    """None for an array of nulls: an option that no message has costs nothing, neither here nor in the database."""
    return array(values) if any(value is not None for value in values) else None


def _stored_one(queue: str, rows: list[Row]) -> Stored:
    row = known(queue, rows)[0]
    return Stored(None) if row.n else Stored(frozenset(), frozenset(row.updated or ()))


def reserve(queue: str, n: int, now: datetime | None, *, fits: bool = True) -> Statement[Reserved]:
    def decode(rows: list[Row]) -> Reserved:
        return Reserved(**known(queue, rows)[0]._asdict())

    return bind("messages/reserve", decode, queue=queue, n=n, now=now, fits=fits)


def depth(queue: str, keys: Sequence[str]) -> Statement[Row]:
    """`max_depth`, `depth`, and the number of these keys that are `live`."""
    return bind("messages/depth", lambda rows: known(queue, rows)[0], queue=queue, keys=TextArray(keys))


def poll(
    queue: str,
    n: int,
    positions: Sequence[ScanPosition],
    options: PollOptions,
    *,
    number: int,
    durable: bool,
    now: datetime | None,
) -> Statement[list[LeasedRow]]:
    """`positions`: one for each priority from 0 to 9."""
    after_due_at, after_version = _HEADS if positions is HEAD else _after(positions, lowest_first=options.lowest_first)
    params = {
        "queue": queue,
        "n": storable(n),
        "type": options.type,
        "lease_for": options.lease_for,
        "consumer": options.consumer,
        "token": number,
        "durable": durable,
        "now": now,
        "max_attempts": options.max_attempts,
        "priorities": _LOWEST_FIRST if options.lowest_first else _HIGHEST_FIRST,
        "after_due_at": after_due_at,
        "after_version": after_version,
    }

    def decode(rows: list[Row]) -> list[LeasedRow]:
        return rows if known(queue, rows)[0].key is not None else []

    return Statement(sql("messages/poll") if options.type is None else sql("messages/poll:typed"), params, decode)


def _after(positions: Sequence[ScanPosition], *, lowest_first: bool) -> tuple[TimestampArray, BigintArray]:
    order = positions if lowest_first else positions[::-1]
    due_ats = TimestampArray([p.due_at for p in order], missing=MINUS_INFINITY)
    return due_ats, BigintArray([p.version for p in order])


def starting_at(positions: Sequence[ScanPosition]) -> dict[str, Any]:
    """Parameters of `messages/_live_heads`."""
    after_due_at, after_version = _HEADS if positions is HEAD else _after(positions, lowest_first=True)
    return {"priorities": _LOWEST_FIRST, "after_due_at": after_due_at, "after_version": after_version}


_HIGHEST_FIRST = SmallintArray(range(9, -1, -1))
_LOWEST_FIRST = SmallintArray(range(10))
_HEADS = _after(HEAD, lowest_first=True)


def ack(
    queue: str, lease_ids: Sequence[LeaseId], now: datetime | None, *, by_key: bool = False
) -> Statement[SettledKeys]:
    """Find the messages by the ctid of their lease or `by_key`, which costs an index search and also finds rows that a touch
    has moved."""
    if len(lease_ids) == 1 and not by_key:
        key, token = lease_ids[0].key, lease_ids[0].token
        values = {"queue": queue, "now": now, "keys": key, "tokens": poll_number(token), "tids": tid_text(token)}
        return Statement(sql("messages/ack:one"), values, lambda rows: ALL_SETTLED if rows else NONE_SETTLED)
    params = {"queue": queue, "now": now, **_held(lease_ids)}
    if by_key:
        return Statement(sql("messages/ack_by_key"), params, _settling(queue))
    params["tids"] = TidArray(row_tids([h.token for h in lease_ids]))
    return Statement(sql("messages/ack"), params, _settling(queue))


def touch(
    queue: str, lease_ids: Sequence[LeaseId], lease_for: timedelta | None, now: datetime | None
) -> Statement[SettledKeys]:
    return bind("messages/touch", _touching(queue), queue=queue, now=now, lease_for=lease_for, **_held(lease_ids))


def release(
    queue: str,
    lease_ids: Sequence[LeaseId],
    now: datetime | None,
    *,
    due_at: datetime | None = None,
    after: timedelta | None = None,
) -> Statement[SettledKeys]:
    params = {"queue": queue, "now": now, "due_at": due_at, "after": after, **_held(lease_ids)}
    return Statement(sql("messages/release"), params, _settling(queue))


def nack(
    queue: str, failures: Sequence[Failed], now: datetime | None, retry: Retry | None = None
) -> Statement[SettledKeys]:
    params = {
        "queue": queue,
        "now": now,
        **_held([f.lease_id for f in failures]),
        "errors": TextArray([f.error for f in failures]),
        "due_ats": TimestampArray([f.due_at for f in failures]),
        "after_s": FloatArray([seconds(f.after) for f in failures]),
        "reasons": TextArray([f.reason for f in failures]),
        "lapsed": BooleanArray([f.lapsed for f in failures]),
        "retry": None if retry is None else FloatArray(retry_numbers(retry)),
        "max_attempts": None if retry is None else retry.max_attempts,
        "fingerprints": TextArray([fingerprint(f.reason or "exhausted", f.error) for f in failures]),
    }
    return Statement(sql("messages/nack"), params, _settling(queue))


def live_leases(queue: str, lease_ids: Sequence[LeaseId]) -> Statement[dict[str, tuple[str, int | None]]]:
    """By key: the queue of the live message and its stored poll number, if it is leased. A message that is leased with one of
    these tokens takes precedence over one that only has the same key."""

    def decode(rows: list[Row]) -> dict[str, tuple[str, int | None]]:
        return {row.key: (row.name, row.token) for row in rows}

    return bind("messages/live_leases", decode, queue=queue, **_held(lease_ids))


def locked(queue: str, keys: Sequence[str]) -> Statement[frozenset[str]]:
    """The live keys among these that another transaction has locked."""
    return bind("messages/locked", lambda rows: frozenset(row.key for row in rows), queue=queue, keys=TextArray(keys))


def refused(queue: str, verb: str, keys: Sequence[str], now: datetime | None) -> Statement[None]:
    return bind("messages/refused", queue=queue, verb=verb, keys=TextArray(keys), now=now)


def read(queue: str, key: str, now: datetime | None) -> Statement[StoredMessage[bytes] | None]:
    def decode(rows: list[Row]) -> StoredMessage[bytes] | None:
        row = known(queue, rows)[0]
        return None if row.key is None else stored_message(row)

    return bind("messages/read", decode, queue=queue, key=key, now=now)


def messages(
    queue: str, state: State | None, limit: int, filter: Filter, now: datetime | None
) -> Statement[list[StoredMessage[bytes]]]:
    rows = storable(limit)
    params = {
        "queue": queue,
        "state": state and state.value,
        "limit": rows,
        # Without a filter, every scanned row is on the page.
        "walk": rows
        if state is None and filter == Filter(after=filter.after, payloads=filter.payloads)
        else max(rows, WALK),
        "now": now,
        "after_due_at": filter.after and filter.after.due_at,
        "after_version": filter.after and filter.after.version,
        "type": filter.type,
        "priority": filter.priority,
        "key_prefix": filter.key_prefix,
        "payloads": filter.payloads,
    }
    return Statement(
        sql("messages/messages"),
        params,
        lambda rows: [stored_message(row) for row in known(queue, rows) if row.key is not None],
    )


def counts(queue: str, limit: int, now: datetime | None, positions: Sequence[ScanPosition] = HEAD) -> Statement[Counts]:
    limit = storable(limit)

    def decode(rows: list[Row]) -> Counts:
        row = known(queue, rows)[0]
        due_capped, later_capped = row.due > limit, row.later > limit
        return Counts(
            delayed=Counted(min(row.delayed, limit), later_capped),
            ready=Counted(min(row.ready, limit), due_capped),
            leased=Counted(min(row.leased, limit), due_capped or later_capped),
            dead=Counted.up_to(limit, row.dead),
            lag_for=row.lag,
        )

    return bind("queues/counts", decode, queue=queue, limit=limit + 1, now=now, **starting_at(positions))


def drop(
    queue: str, key: str, version: int | None, now: datetime | None, *, unless_leased: bool = False
) -> Statement[bool]:
    params = {"queue": queue, "key": key, "version": possible(version), "unless_leased": unless_leased, "now": now}
    return Statement(sql("messages/drop"), params, lambda rows: known(queue, rows)[0].key is not None)


def purge(queue: str, now: datetime | None) -> Statement[int]:
    return bind("messages/purge", known_value(queue), queue=queue, now=now)


def storable(limit: int) -> int:
    """The limit, clamped to the range of a non-negative SQL int."""
    return max(0, min(limit, 2**31 - 2))


def possible(version: int | None) -> int | None:
    """The version, or 0 if it is out of range: versions start at 1, so 0 matches none."""
    return version if version is None or 0 < version < 2**63 else 0


def known(queue: str, rows: list[Row]) -> list[Row]:
    """Check that there are rows: every statement on a queue returns at least one, unless the queue does not exist."""
    if not rows:
        raise MissingQueue(queue)
    return rows


def known_value(queue: str) -> Callable[[list[Row]], Any]:
    """Decoder of a statement that returns one row with one column, unless the queue does not exist."""
    return lambda rows: value(known(queue, rows))


def _held(lease_ids: Sequence[LeaseId]) -> dict[str, Any]:
    return {
        "keys": TextArray([h.key for h in lease_ids]),
        "tokens": BigintArray(poll_numbers([h.token for h in lease_ids])),
    }


def _settling(queue: str) -> Callable[[list[Row]], SettledKeys]:
    def decode(rows: list[Row]) -> SettledKeys:
        row = known(queue, rows)[0]
        keys = row.settled_keys
        return SettledKeys(frozenset() if row.settled == 0 else None if keys is None else frozenset(keys))

    return decode


def _touching(queue: str) -> Callable[[list[Row]], SettledKeys]:
    settling = _settling(queue)

    def decode(rows: list[Row]) -> SettledKeys:
        return settling(rows)._replace(busy=frozenset(rows[0].busy or ()))

    return decode


def _extra(draft: Draft) -> bytes | None:
    """The rare options as one JSON value, null for most messages."""
    if not (draft.headers or draft.lease_for or draft.max_attempts or draft.retry or draft.conflict.max_wait):
        return None
    extra = {
        "headers": dict(draft.headers) if draft.headers else None,
        "lease_for": seconds(draft.lease_for),
        "max_attempts": draft.max_attempts,
        "retry": None if draft.retry is None else retry_numbers(draft.retry),
        "max_wait": seconds(draft.conflict.max_wait),
    }
    return json.dumps({name: option for name, option in extra.items() if option is not None}).encode()


def seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


def retry_numbers(retry: Retry) -> list[float]:
    return [retry.initial_for.total_seconds(), float(retry.factor), retry.cap_for.total_seconds(), float(retry.jitter)]


def retry_of(numbers: Sequence[float]) -> Retry:
    initial_s, factor, cap_s, jitter = numbers
    return Retry(
        initial_for=timedelta(seconds=initial_s), factor=factor, cap_for=timedelta(seconds=cap_s), jitter=jitter
    )


def stored_message(row: Row, *, leaving_out: Sequence[str] = ()) -> StoredMessage[bytes]:
    fields: dict[str, Any] = {name: value for name, value in row._asdict().items() if name not in leaving_out}
    fields["state"] = State(row.state)
    fields["retry"] = None if row.retry is None else retry_of(row.retry)
    return StoredMessage(**fields)
