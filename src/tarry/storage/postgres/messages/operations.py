"""Message operations of more than one statement, for the blocking and the awaiting runner alike."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any, LiteralString, TypeVar

from msgspec import structs
from psycopg.errors import LockNotAvailable

from tarry.core.dead_letters.fingerprints import fingerprint
from tarry.core.errors import InvalidPayload, InvalidState
from tarry.core.limits import clip_error
from tarry.core.messages import batches
from tarry.core.messages.edits import Edit
from tarry.core.messages.failures import decoder_error
from tarry.core.messages.model import KEEP, Decode, Draft, Lease, LeaseId, PollOptions
from tarry.core.messages.outcomes import Edited, Outcome, Settled
from tarry.storage.postgres import copy_encoder
from tarry.storage.postgres.arrays import FloatArray, TextArray
from tarry.storage.postgres.messages import statements
from tarry.storage.postgres.messages.cursor import HEAD, Cursor
from tarry.storage.postgres.messages.depth import DepthBudget
from tarry.storage.postgres.messages.lease_tokens import lease_tokens, new_poll_number, poll_number
from tarry.storage.postgres.messages.statements import (
    NONE_SETTLED,
    Failed,
    LeasedRow,
    MissingQueue,
    SettledKeys,
    known,
    possible,
    retry_numbers,
)
from tarry.storage.postgres.queues import statements as queue_statements
from tarry.storage.postgres.statement import Op, Statement, sql
from tarry.storage.postgres.wakeup import statements as wait_statements

P = TypeVar("P")
R = TypeVar("R")

CHUNK = 5_000
"""Rows per statement: enough to amortize the call, few enough to be in memory twice."""
COPY_FROM = 2_000
"""From this number of new messages on, COPY is faster than array parameters."""
_KEY, _TID = attrgetter("key"), attrgetter("tid")
_PRIORITY, _DUE = attrgetter("priority"), attrgetter("due_at", "version")
_MOST_TOUCHES = 5
"""Tries of a settle or an edit that concurrent changes of its rows interrupt."""


def _unless_locked(step: Op[R], otherwise: R, *, begun: bool = True) -> Op[R]:
    """Run a step. `begun`: earlier steps have committed a change. The runner must then not repeat the operation after a lock
    timeout, because the repetition would not report that change; the result is `otherwise`."""
    try:
        return (yield from step)
    except LockNotAvailable:
        if not begun:
            raise
        return otherwise


def offer_many(queue: str, drafts: Sequence[Draft], now: datetime | None, *, fits: bool = True) -> Op[list[Outcome]]:
    """Offer messages; outcomes in the given order. Several chunks need a transaction, see `takes_several_steps`.
    `fits`: see `depth`; checked by the first statement."""
    if drafts and all(map(copy_encoder.is_copyable, drafts)):  # no key can occur twice
        if len(drafts) >= COPY_FROM:
            yield from _copy(drafts, queue, now, fits=fits)
        else:
            fresh = statements.offer_fresh(queue, drafts, now, fits=fits)
            fresh.decode((yield fresh))
        return [Outcome.CREATED] * len(drafts)
    decided: list[Outcome | None] = [None]
    kept = drafts
    if len(drafts) != 1:
        kept, decided = batches.fold(drafts, now)
    updated: set[str] = set()
    ignored: set[str] = set()
    # Sorted before the split into chunks: every writer locks rows in the same order.
    in_key_order = sorted(range(len(kept)), key=lambda i: kept[i].key)
    versions = None
    if len(kept) > CHUNK:
        versions = (yield from statements.reserve(queue, len(kept), now, fits=fits).run()).versions
        fits = True
    for start in range(0, len(in_key_order), CHUNK):
        indexes = in_key_order[start : start + CHUNK]
        chunk = [kept[i] for i in indexes]
        ranks = [i + 1 for i in indexes]
        offer = statements.offer(queue, chunk, ranks, versions, now, fits=fits)
        stored = offer.decode((yield offer))
        if stored.created is not None:
            updated |= stored.updated
            ignored |= {draft.key for draft in chunk} - stored.created - stored.updated
    return [
        outcome
        or (Outcome.UPDATED if draft.key in updated else Outcome.IGNORED if draft.key in ignored else Outcome.CREATED)
        for draft, outcome in zip(drafts, decided, strict=True)
    ]


def offer_within(queue: str, drafts: Sequence[Draft], now: datetime | None, budget: DepthBudget) -> Op[list[Outcome]]:
    """Offer messages. Raises `QueueFull` if the queue has a limit and they do not fit."""
    try:
        return (yield from offer_many(queue, drafts, now, fits=fits(queue, drafts, budget)))
    except MissingQueue:
        pass
    return (yield from offer_counted(queue, drafts, now, budget))


def fits(queue: str, drafts: Sequence[Draft], budget: DepthBudget) -> bool:
    """Whether the messages may be offered without a count. Raises `QueueFull` if a recent count found the queue full and all
    keys are new."""
    if queue not in budget.queues:
        return False
    if all(draft.fresh for draft in drafts):
        budget.require(queue)
    return budget.take(queue, len(drafts))


def offer_counted(queue: str, drafts: Sequence[Draft], now: datetime | None, budget: DepthBudget) -> Op[list[Outcome]]:
    return counted_first(queue, drafts, budget, lambda: offer_many(queue, drafts, now))


def counted_first(queue: str, drafts: Sequence[Draft], budget: DepthBudget, make: Callable[[], Op[R]]) -> Op[R]:
    """Count, then make an offer whose first try found no queue: it does not exist, or has a depth limit."""
    started = budget.timer()
    counted = yield from statements.depth(queue, sorted(draft.key for draft in drafts if not draft.fresh)).run()
    took_s, n = budget.timer() - started, len({draft.key for draft in drafts})
    budget.counted(queue, n, counted.max_depth, counted.depth, counted.live, took_s=took_s)
    return (yield from make())


def offer_again(queue: str, drafts: Sequence[Draft], now: datetime | None, budget: DepthBudget) -> Op[list[Outcome]]:
    """Repeat an offer whose reply was lost and which may be stored. No other caller uses a generated key, so a live message
    with it is the one of the first try. It is left unchanged, and the outcome is created."""
    kept = [structs.replace(d, fresh=False, conflict=KEEP) if d.fresh else d for d in drafts]
    try:
        outcomes = yield from offer_within(queue, kept, now, budget)
    except MissingQueue:
        # The queue was renamed after the first try. Its messages, if stored, are in the renamed queue; so must be these.
        renamed = yield from queue_statements.current_name(queue).run()
        if renamed is None:
            raise
        outcomes = yield from offer_within(renamed, kept, now, budget)
    return [
        Outcome.CREATED if draft.fresh and outcome is Outcome.IGNORED else outcome
        for draft, outcome in zip(drafts, outcomes, strict=True)
    ]


def takes_several_steps(drafts: Sequence[Draft]) -> bool:
    return len(drafts) >= min(COPY_FROM, CHUNK)


def _copy(drafts: Sequence[Draft], queue: str, now: datetime | None, *, fits: bool) -> Op[None]:
    reserved = yield from statements.reserve(queue, len(drafts), now, fits=fits).run()
    yield from copy_encoder.copy_messages(drafts, reserved).run()
    if reserved.journal != "off":
        yield from copy_encoder.copy_events(drafts, reserved).run()
    earliest = min(draft.due_at or reserved.now + draft.after for draft in drafts)
    yield from wait_statements.notify(queue, earliest, now).run()


def poll(
    queue: str,
    n: int,
    decode: Decode[P],
    options: PollOptions,
    cursor: Cursor,
    timer: Callable[[], float],
    now: datetime | None,
    *,
    durable: bool,
) -> Op[list[Lease[P]]]:
    """Lease up to n messages in order. Exhausted and undecodable messages are buried and replaced by the next ones.

    If the decoder raises any other error, this attempt of the message has failed and no further round follows: a bug in a
    decoder costs one call at most n attempts, not an attempt of every waiting message.
    """
    taken: list[Lease[P]] = []
    broken: list[Failed] = []
    from_head, rounds = False, 0
    while (missing := n - len(taken)) > 0:
        started = timer()
        scan = HEAD if from_head else cursor.scan(started)
        number = new_poll_number()
        statement = statements.poll(queue, missing, scan, options, number=number, durable=durable, now=now)
        try:
            rows = statement.decode((yield statement))
        except LockNotAvailable:
            if not taken:
                raise
            rows = []  # see `_unless_locked`
        ended = timer()
        sort_in_order(rows, lowest_first=options.lowest_first)
        cursor.learn(scan, ended - started, ended, rows)
        rounds += 1
        taken_before = len(taken)
        unfit = _judge(rows, number, decode, taken, broken)
        if unfit:
            yield from _nack_leased(queue, unfit, now)
        if broken:
            break
        if len(taken) - taken_before < len(rows):
            continue
        if len(rows) < missing and scan is not HEAD and not (cursor.head_is_expensive and ended < cursor.head_due):
            from_head = True  # nothing is left after the cursor, and a scan from the head is allowed
        else:
            break
    if broken:
        yield from _nack_leased(queue, broken, now)
    if rounds > 1:
        sign = 1 if options.lowest_first else -1
        taken.sort(key=lambda lease: (sign * lease.priority, lease.due_at, lease.version))
    return taken


def sort_in_order(rows: list[LeasedRow], *, lowest_first: bool = False) -> None:
    """Sort by priority, due time and version."""
    if len(rows) > 1:
        rows.sort(key=_DUE)
        rows.sort(key=_PRIORITY, reverse=not lowest_first)  # stable


def _judge(
    rows: Sequence[LeasedRow], number: int, decode: Decode[P], taken: list[Lease[P]], broken: list[Failed]
) -> list[Failed]:
    """Add leases of decoded messages to `taken` and failed attempts to `broken`; return the messages to bury."""
    unfit: list[Failed] = []
    if not rows:
        return unfit
    rest = _rest_of_lease(type(rows[0]))
    for row, token in zip(rows, lease_tokens(number, map(_TID, rows)), strict=True):
        if row.exhausted:
            unfit.append(Failed(LeaseId(row.key, token), reason="exhausted", lapsed=True))
            continue
        try:
            payload = decode(row.payload, row.content_type)
        except InvalidPayload as error:
            unfit.append(Failed(LeaseId(row.key, token), error=clip_error(error.message), reason="undecodable"))
            continue
        except Exception as error:
            broken.append(Failed(LeaseId(row.key, token), error=decoder_error(row.key, error)))
            continue
        taken.append(Lease(row.key, payload, row.version, token, *rest(row)))
    return unfit


@cache
def _rest_of_lease(row_type: type[LeasedRow]) -> Callable[[LeasedRow], tuple[Any, ...]]:
    """Getter of the lease fields after the token. Cached, because it is called for every message."""
    return itemgetter(*[row_type._fields.index(name) for name in Lease.__struct_fields__[4:]])


def _nack_leased(queue: str, failures: Sequence[Failed], now: datetime | None) -> Op[None]:
    """Nack messages that this poll has leased and does not return. A message that another transaction has locked stays leased
    until its lease expires: the other leases of this poll must be returned."""
    in_key_order = sorted(failures, key=lambda failure: failure.lease_id.key)
    nack = statements.nack(queue, in_key_order, now)
    yield from _unless_locked(nack.run(), NONE_SETTLED)


SettleStatement = Callable[[str, Sequence[LeaseId], datetime | None, bool], Statement[SettledKeys]]
"""Takes the queue name, since a message may be in another queue than the caller's, see `_settle_held`. The flag is set if the
first try did not settle these messages and they are still leased."""


@dataclass(slots=True, eq=False)
class Settlement:
    """One of ack, nack, touch, release and bury, with its fenced statement for a batch that has each key once."""

    verb: str
    queue: str
    now: datetime | None
    statement: SettleStatement


def settle(how: Settlement, lease_ids: Sequence[LeaseId], *, begun: bool = False) -> Op[list[Settled]]:
    """Run the statement, then read whether the unsettled messages are gone or their leases lost. `begun`: see
    `_unless_locked`."""
    if len(lease_ids) == 1:
        unsettled = yield from _settle_held(how, lease_ids, begun=begun)
        return [unsettled.get(lease_ids[0].key, Settled.DONE)]
    first: dict[str, int] = {}
    again = [i for i, lease_id in enumerate(lease_ids) if first.setdefault(lease_id.key, i) != i]
    outcomes = [Settled.DONE] * len(lease_ids)
    in_key_order = sorted([lease_ids[i] for i in first.values()], key=_KEY)
    unsettled = yield from _settle_held(how, in_key_order, begun=begun)
    for key, outcome in unsettled.items():
        outcomes[first[key]] = outcome
    if again:  # a key that occurs several times in a batch is settled once per occurrence, in sequence
        begun = begun or Settled.DONE in outcomes
        later = yield from settle(how, [lease_ids[i] for i in again], begun=begun)
        for i, outcome in zip(again, later, strict=True):
            outcomes[i] = outcome
    return outcomes


def _settle_held(how: Settlement, lease_ids: Sequence[LeaseId], *, begun: bool) -> Op[dict[str, Settled]]:
    """Settle leases in key order, each key once, and return the outcomes of the unsettled ones. A stale token is journaled.

    A message that is not in the named queue is settled in the queue that had this name before, so a settle that was in flight
    during a rename succeeds and creates no queue. A message that is locked after others were settled is retried here a few
    times, not with the whole batch, in which the settled messages would then be reported as gone.
    """
    outcomes: dict[str, Settled] = {}
    locked: set[str] = set()
    for tries in range(_MOST_TOUCHES):
        missed: list[LeaseId] = []
        for start in range(0, len(lease_ids), CHUNK):
            chunk = lease_ids[start : start + CHUNK]
            statement = how.statement(how.queue, chunk, how.now, tries > 0)
            try:
                done, busy = statement.decode((yield statement))
            except MissingQueue:
                done, busy = NONE_SETTLED
            except LockNotAvailable:
                if not begun:
                    raise
                done, busy = NONE_SETTLED  # see `_unless_locked`
            begun = begun or done is None or bool(done)
            locked |= busy
            if done is not None:
                missed += [lease_id for lease_id in chunk if lease_id.key not in done and lease_id.key not in busy]
        if outcomes:
            for lease_id in lease_ids:
                outcomes.pop(lease_id.key, None)
        if not missed:
            break
        held: dict[str, tuple[str, int | None]] = {
            lease_id.key: (how.queue, poll_number(lease_id.token)) for lease_id in missed
        }
        live = yield from _unless_locked(statements.live_leases(how.queue, missed).run(), held, begun=begun)
        outcomes |= {lease_id.key: Settled.LEASE_LOST if lease_id.key in live else Settled.GONE for lease_id in missed}
        # Still leased by this caller: another statement moved the row between the search and the settle.
        lease_ids = [lease_id for lease_id in missed if live.get(lease_id.key) == held[lease_id.key]]
        elsewhere: dict[str, list[LeaseId]] = {}
        for lease_id in missed:
            name, token = live.get(lease_id.key, (how.queue, None))
            if name != how.queue and token == held[lease_id.key][1]:
                elsewhere.setdefault(name, []).append(lease_id)
        for name, moved in elsewhere.items():
            for lease_id in moved:
                del outcomes[lease_id.key]
            outcomes |= yield from _settle_held(replace(how, queue=name), moved, begun=begun)
            begun = begun or any(lease_id.key not in outcomes for lease_id in moved)
        if not lease_ids:
            break
    if not outcomes and not locked:
        return outcomes
    if stale := [key for key, outcome in outcomes.items() if outcome is Settled.LEASE_LOST]:
        yield from _unless_locked(statements.refused(how.queue, how.verb, stale, how.now).run(), None, begun=begun)
    return outcomes | dict.fromkeys(locked, Settled.BUSY)


def edit(queue: str, key: str, edit: Edit, version: int | None, now: datetime | None, *, force: bool) -> Op[Edited]:
    params: dict[str, Any] = {field.name: getattr(edit, field.name) for field in fields(edit)} | {
        "named": TextArray(sorted(edit.named)),
        "headers": None if edit.headers is None else json.dumps(dict(edit.headers)),
        "retry": None if edit.retry is None else FloatArray(retry_numbers(edit.retry)),
        "detail": json.dumps(edit.detail),
    }
    return _change_by_key("messages/edit", queue, key, params, version, now, force=force)


def bury_by_key(
    queue: str, key: str, error: str | None, version: int | None, now: datetime | None, *, force: bool
) -> Op[Edited]:
    text = None if error is None else clip_error(error)
    params = {"error": text, "fingerprint": fingerprint("buried", text)}
    return _change_by_key("messages/bury", queue, key, params, version, now, force=force)


def _change_by_key(
    verb: LiteralString,
    queue: str,
    key: str,
    params: Mapping[str, Any],
    version: int | None,
    now: datetime | None,
    *,
    force: bool,
) -> Op[Edited]:
    """Change a message by key. The statement returns the message before the change, and whether it was changed."""
    about = {"queue": queue, "key": key, "version": possible(version), "now": now, "force": force}
    change = Statement(sql(verb), {**params, **about}, lambda rows: known(queue, rows)[0])
    for _ in range(_MOST_TOUCHES):
        result = yield from change.run()
        if result.version is None:
            return Edited.GONE
        if result.changed:
            return Edited.UPDATED
        if result.same:
            return Edited.IGNORED
        if version is not None and result.version != version:
            return Edited.CHANGED
        if result.leased and not force:
            return Edited.LEASED
        # No reason, and still unchanged: another statement changed the message between the search and the update.
    raise InvalidState(
        f"message {key!r:.120} is being changed by other processes and was not edited", hint="retry the request"
    )
