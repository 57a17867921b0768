"""The decisions that take more than one statement. Written once, driven by blocking and awaiting shells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import itemgetter
from typing import TypeVar

from psycopg.errors import LockNotAvailable

from tarry.core import batches
from tarry.core.editing import Edit
from tarry.core.errors import InvalidPayload, Refused, UnknownQueue
from tarry.core.failures import decoder_error
from tarry.core.limits import check_queue_name, clip_error
from tarry.core.messages import (
    KEEP,
    BuryReason,
    Decode,
    Draft,
    Failure,
    Hold,
    Lease,
)
from tarry.core.outcomes import Edited, Outcome, Settled
from tarry.core.redriving import EVERY_LETTER
from tarry.core.retry import Retry
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.storage.postgres import (
    copying,
    dead_statements,
    edit_statements,
    queue_statements,
    statements,
    wait_statements,
)
from tarry.storage.postgres.cursor import HEAD, Cursor
from tarry.storage.postgres.statement import Op, Statement
from tarry.storage.postgres.statements import NONE_SETTLED, Failed, LeasedRow, MissingQueue, SettledKeys

P = TypeVar("P")
R = TypeVar("R")

CHUNK = 5_000
"""Rows per statement: large enough to be cheap, small enough to stay in memory twice."""
COPY_FROM = 2_000
"""From this many new messages on, COPY beats binding arrays."""
_MOST_TOUCHES = 5
"""How often in a row a settle can be unlucky with a touch before it says so. A touch after expiry is never lucky."""


def single(statement: Statement[R]) -> Op[R]:
    return statement.run()


def _unless_locked(step: Op[R], otherwise: R, *, begun: bool = True) -> Op[R]:
    """Run a step. `begun`: earlier steps have committed a change. Then a lock that is not granted must not make the shell run
    the operation again, which would forget that change; the answer is `otherwise`."""
    try:
        return (yield from step)
    except LockNotAvailable:
        if not begun:
            raise
        return otherwise


def in_queue(queue: str, now: datetime | None, make: Callable[[], Op[R]], *, create: bool) -> Op[R]:
    """Run an op; where its queue is missing and may be created, create it with the defaults and run it again."""
    try:
        return (yield from make())
    except MissingQueue:
        if not create:
            raise
    yield from queue_statements.create(check_queue_name(queue), QueueSettings(), now).run()
    return (yield from make())


def in_known_queue(make: Callable[[], Op[R]]) -> Op[R]:
    """Run an op that never creates its queue, also not on behalf of a caller's connection (see `MissingQueue`)."""
    try:
        return (yield from make())
    except MissingQueue as missing:
        raise UnknownQueue(missing.name) from None


def offer_many(queue: str, drafts: Sequence[Draft], now: datetime | None) -> Op[list[Outcome]]:
    """Outcomes in the order given. More than one chunk needs a transaction around it, see `takes_several_steps`."""
    survivors, decided = batches.fold(drafts, now)
    kept = drafts if len(survivors) == len(drafts) else batches.effective(drafts, survivors)
    updated: set[str] = set()
    ignored: set[str] = set()
    if kept and all(map(copying.is_copyable, kept)):
        if len(kept) >= COPY_FROM:
            yield from _copy(kept, queue, now)
        else:
            yield from statements.offer_fresh(queue, kept, now).run()
    else:
        # Sorted as a whole, then cut: every writer takes its row locks in the same order, whatever the chunks.
        in_key_order = sorted(range(len(kept)), key=lambda i: kept[i].key)
        versions = (yield from _reserved(queue, len(kept), now)) if len(kept) > CHUNK else None
        for start in range(0, len(in_key_order), CHUNK):
            indexes = in_key_order[start : start + CHUNK]
            chunk = [kept[i] for i in indexes]
            places = [i + 1 for i in indexes]
            stored = yield from statements.offer(queue, chunk, places, versions, now).run()
            if stored.created is not None:
                updated |= stored.updated
                ignored |= {draft.key for draft in chunk} - stored.created - stored.updated
    return [
        outcome
        or (Outcome.UPDATED if draft.key in updated else Outcome.IGNORED if draft.key in ignored else Outcome.CREATED)
        for draft, outcome in zip(drafts, decided, strict=True)
    ]


def offer_again(queue: str, drafts: Sequence[Draft], now: datetime | None) -> Op[list[Outcome]]:
    """After a try whose answer was lost, and which may have been stored. Under a key that was made for it nobody else can
    have put anything: what is there now is ours, is left as it is, and was created."""
    kept = [d._replace(fresh=False, conflict=KEEP) if d.fresh else d for d in drafts]
    try:
        outcomes = yield from offer_many(queue, kept, now)
    except MissingQueue:
        # Renamed since the first try: that one, if it was stored, is in the renamed queue, and so must be the second.
        renamed = yield from queue_statements.renamed(queue).run()
        if renamed is None:
            raise
        outcomes = yield from offer_many(renamed, kept, now)
    return [
        Outcome.CREATED if draft.fresh and outcome is Outcome.IGNORED else outcome
        for draft, outcome in zip(drafts, outcomes, strict=True)
    ]


def _reserved(queue: str, n: int, now: datetime | None) -> Op[Sequence[int]]:
    return (yield from statements.reserve(queue, n, now).run()).versions


def takes_several_steps(drafts: Sequence[Draft]) -> bool:
    return len(drafts) >= min(COPY_FROM, CHUNK)


def _copy(drafts: Sequence[Draft], queue: str, now: datetime | None) -> Op[None]:
    reserved = yield from statements.reserve(queue, len(drafts), now).run()
    yield from copying.copy_messages(drafts, reserved).run()
    if reserved.journal != "off":
        yield from copying.copy_events(drafts, reserved).run()
    earliest = min(draft.due_at or reserved.now + draft.delay for draft in drafts)
    yield from wait_statements.ring(queue, earliest, now).run()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    queue: str
    n: int
    type: str | None = None
    lease_for: timedelta | None = None
    consumer: str | None = None
    max_attempts: int | None = None
    lowest_first: bool = False
    durable: bool = False
    now: datetime | None = None


def lease(request: LeaseRequest, decode: Decode[P], cursor: Cursor, timer: Callable[[], float]) -> Op[list[Lease[P]]]:
    """Up to n leases in order. What is exhausted or cannot be decoded is buried, and others take its place.

    A message whose decoder raised anything else has failed this attempt. The round that meets one is the last, so that a bug
    of a decoder costs one call at most n attempts, and not one of every message that waits.
    """
    taken: list[Lease[P]] = []
    broken: list[Failed] = []
    from_head = False
    while (missing := request.n - len(taken)) > 0:
        started = timer()
        scan = HEAD if from_head else cursor.scan(started)
        look = statements.lease(
            request.queue,
            missing,
            scan,
            type=request.type,
            lease_for=request.lease_for,
            consumer=request.consumer,
            max_attempts=request.max_attempts,
            lowest_first=request.lowest_first,
            durable=request.durable,
            now=request.now,
        )
        rows = yield from _unless_locked(look.run(), [], begun=bool(taken))
        ended = timer()
        cursor.learn(scan, ended - started, ended, rows)
        taken_before = len(taken)
        unfit = _judge(rows, decode, taken, broken)
        if unfit:
            yield from _nack_leased(request, unfit)
        if broken:
            break
        if len(taken) - taken_before < len(rows):
            continue
        if len(rows) < missing and scan is not HEAD and not (cursor.head_is_dear and ended < cursor.head_due):
            from_head = True  # nothing more behind the cursor, and the head may be looked at
        else:
            break
    if broken:
        yield from _nack_leased(request, broken)
    taken.sort(key=lambda lease: (-lease.priority, lease.due_at, lease.version))
    return taken


def _judge(rows: Sequence[LeasedRow], decode: Decode[P], taken: list[Lease[P]], broken: list[Failed]) -> list[Failed]:
    """Add leases of decoded messages to `taken` and failed attempts to `broken`; return the messages to bury."""
    unfit: list[Failed] = []
    for row in rows:
        if row.exhausted:
            unfit.append(Failed(Hold(row.key, row.token), reason="exhausted", lapsed=True))
            continue
        try:
            payload = decode(row.payload, row.content_type)
        except InvalidPayload as error:
            unfit.append(Failed(Hold(row.key, row.token), error=clip_error(str(error)), reason="undecodable"))
            continue
        except Exception as error:
            broken.append(Failed(Hold(row.key, row.token), error=decoder_error(row.key, error)))
            continue
        taken.append(Lease(row.key, payload, *row[2:12]))
    return unfit


def _nack_leased(request: LeaseRequest, failures: Sequence[Failed]) -> Op[None]:
    """Nack what this poll has leased and does not return. What another transaction has locked stays leased until that lease
    runs out: the other leases of this poll must be returned."""
    in_key_order = sorted(failures, key=lambda failure: failure.hold.key)
    nack = statements.nack(request.queue, in_key_order, request.now)
    yield from _unless_locked(nack.run(), NONE_SETTLED)


@dataclass(frozen=True, slots=True)
class Settlement:
    """One of ack, nack, touch, release, bury: the fenced statement that does it to a batch, each key once."""

    verb: str
    queue: str
    now: datetime | None
    statement: Callable[[str, Sequence[Hold]], Statement[SettledKeys]]
    """Takes the name of the queue: a message may be in another queue than the caller names, see `_unsettled`."""


def settle(how: Settlement, holds: Sequence[Hold], *, begun: bool = False) -> Op[list[Settled]]:
    """Run the statement, then tell for what it did not settle whether the message is gone or only the lease. `begun`: see
    `_unless_locked`."""
    first: dict[str, int] = {}
    again = [i for i, hold in enumerate(holds) if first.setdefault(hold.key, i) != i]
    answers = [Settled.DONE] * len(holds)
    unsettled = yield from _unsettled(how, [holds[i] for i in first.values()], begun=begun)
    for key, answer in unsettled.items():
        answers[first[key]] = answer
    if again:  # the same key twice in one batch: one after the other, as if said one after the other
        begun = begun or Settled.DONE in answers
        later = yield from settle(how, [holds[i] for i in again], begun=begun)
        for i, answer in zip(again, later, strict=True):
            answers[i] = answer
    return answers


def _unsettled(how: Settlement, holds: list[Hold], *, begun: bool) -> Op[dict[str, Settled]]:
    """Settle what is held, each key once, and return why the rest was not. A stale token is journaled.

    What is not found under the given name is settled in the queue that was called so before. So a settle that was in flight
    while its queue was renamed is done, and creates no queue. What meets a lock after something was settled is tried again
    here, a few times, and not with the whole batch, whose settled messages would then be gone.
    """
    answers: dict[str, Settled] = {}
    locked: set[str] = set()
    holds.sort(key=itemgetter(0))
    for _ in range(_MOST_TOUCHES):
        missed: list[Hold] = []
        for start in range(0, len(holds), CHUNK):
            chunk = holds[start : start + CHUNK]
            try:
                done, busy = yield from _unless_locked(how.statement(how.queue, chunk).run(), NONE_SETTLED, begun=begun)
            except MissingQueue:
                done, busy = NONE_SETTLED
            begun = begun or done is None or bool(done)
            locked |= busy
            if done is not None:
                missed += [hold for hold in chunk if hold.key not in done and hold.key not in busy]
        for hold in holds:
            answers.pop(hold.key, None)
        if not missed:
            break
        still_held = {hold.key: (how.queue, hold.token) for hold in missed}
        look = statements.live_holds(how.queue, missed)
        live = yield from _unless_locked(look.run(), still_held, begun=begun)
        answers |= {hold.key: Settled.LEASE_LOST if hold.key in live else Settled.GONE for hold in missed}
        # Still ours, yet not settled: another statement touched the row between finding and settling it.
        holds = [hold for hold in missed if live.get(hold.key) == (how.queue, hold.token)]
        elsewhere: dict[str, list[Hold]] = {}
        for hold in missed:
            name, token = live.get(hold.key, (how.queue, None))
            if name != how.queue and token == hold.token:
                elsewhere.setdefault(name, []).append(hold)
        for name, moved in elsewhere.items():
            for hold in moved:
                del answers[hold.key]
            answers |= yield from _unsettled(replace(how, queue=name), moved, begun=begun)
            begun = begun or any(hold.key not in answers for hold in moved)
        if not holds:
            break
    if stale := [key for key, answer in answers.items() if answer is Settled.LEASE_LOST]:
        yield from _unless_locked(statements.refused(how.queue, how.verb, stale, how.now).run(), None, begun=begun)
    return answers | dict.fromkeys(locked, Settled.BUSY)


def nack(queue: str, failures: Sequence[Failure], retry: Retry | None, now: datetime | None) -> Op[list[Settled]]:
    by_hold = {
        f.hold: Failed(f.hold, None if f.error is None else clip_error(f.error), f.delay) for f in reversed(failures)
    }
    how = Settlement(
        "nack", queue, now, lambda name, holds: statements.nack(name, [by_hold[h] for h in holds], now, retry)
    )
    return settle(how, [f.hold for f in failures])


def bury(
    queue: str, holds: Sequence[Hold], error: str | None, reason: BuryReason, now: datetime | None
) -> Op[list[Settled]]:
    text = None if error is None else clip_error(error)
    how = Settlement(
        "bury",
        queue,
        now,
        lambda name, some: statements.nack(name, [Failed(h, error=text, reason=reason) for h in some], now),
    )
    return settle(how, holds)


def ack(queue: str, holds: Sequence[Hold], now: datetime | None) -> Op[list[Settled]]:
    return settle(Settlement("ack", queue, now, lambda name, some: statements.ack(name, some, now)), holds)


def touch(queue: str, holds: Sequence[Hold], lease_for: timedelta | None, now: datetime | None) -> Op[list[Settled]]:
    how = Settlement("touch", queue, now, lambda name, some: statements.touch(name, some, lease_for, now))
    return settle(how, holds)


def release(
    queue: str,
    holds: Sequence[Hold],
    now: datetime | None,
    *,
    due_at: datetime | None = None,
    delay: timedelta | None = None,
) -> Op[list[Settled]]:
    how = Settlement(
        "release", queue, now, lambda name, some: statements.release(name, some, now, due_at=due_at, delay=delay)
    )
    return settle(how, holds)


def edit(queue: str, key: str, edit: Edit, version: int | None, now: datetime | None, *, force: bool) -> Op[Edited]:
    return _by_hand(key, edit_statements.edit(queue, key, edit, version, now, force=force), version, force=force)


def give_up(
    queue: str, key: str, error: str | None, version: int | None, now: datetime | None, *, force: bool
) -> Op[Edited]:
    text = None if error is None else clip_error(error)
    return _by_hand(key, edit_statements.give_up(queue, key, text, version, now, force=force), version, force=force)


def _by_hand(key: str, change: Statement[edit_statements.Found], version: int | None, *, force: bool) -> Op[Edited]:
    for _ in range(_MOST_TOUCHES):
        found = yield from change.run()
        if found.version is None:
            return Edited.GONE
        if found.edited:
            return Edited.UPDATED
        if found.same:
            return Edited.IGNORED
        if version is not None and found.version != version:
            return Edited.CHANGED
        if found.leased and not force:
            return Edited.LEASED
        # None of these, and yet not edited: something happened to the message between finding and changing it.
    raise Refused(f"message {key!r:.120} is changed by others all the time; it was left as it is", hint="try again")


def create_queue(name: str, settings: QueueSettings, now: datetime | None, *, exist_ok: bool) -> Op[QueueInfo]:
    made = yield from queue_statements.create(check_queue_name(name), settings, now).run()
    if made is not None:
        return made
    if not exist_ok:
        raise Refused(f"a queue named {name!r} exists already", hint=f"look at it: tarry queue show {name}")
    return (yield from queue_info(name))


def queue_info(name: str) -> Op[QueueInfo]:
    return _known(name, (yield from queue_statements.info(name).run()))


def edit_queue(name: str, settings: QueueSettings, only: frozenset[str], now: datetime | None) -> Op[QueueInfo]:
    return _known(name, (yield from queue_statements.edit(name, settings, only, now).run()))


def pause_queue(name: str, *, paused: bool, reason: str | None, now: datetime | None) -> Op[QueueInfo]:
    changed = yield from queue_statements.pause(name, paused=paused, reason=reason, now=now).run()
    return changed if changed is not None else (yield from queue_info(name))


def rename_queue(name: str, new_name: str, now: datetime | None) -> Op[QueueInfo]:
    renamed = yield from queue_statements.rename(name, check_queue_name(new_name), now).run()
    if renamed is not None:
        return renamed
    yield from queue_info(name)
    raise Refused(f"{name!r} cannot become {new_name!r}: a queue of that name exists")


def delete_queue(name: str, now: datetime | None, *, force: bool) -> Op[None]:
    """In one transaction. Writers are kept out while it looks, so no message can slip into a queue that is going."""
    yield from queue_statements.bounded_wait().run()
    yield from queue_statements.lock_writers().run()
    empty = yield from queue_statements.is_empty(name).run()
    if empty is None:
        raise UnknownQueue(name)
    if not empty:
        if not force:
            raise Refused(f"queue {name!r} still has messages", hint="purge it first, or delete it with force")
        yield from statements.drop_all(name, now).run()
        yield from dead_statements.purge_dead(name, EVERY_LETTER, now).run()
    yield from queue_statements.delete(name, now).run()


def _known(name: str, info: QueueInfo | None) -> QueueInfo:
    if info is None:
        raise UnknownQueue(name)
    return info
