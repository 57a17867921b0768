"""Requests about messages and their events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from tarry.core.errors import InvalidPayload
from tarry.core.journal.events import Event
from tarry.core.limits import clip_error
from tarry.core.messages.edits import Edit
from tarry.core.messages.failures import decoder_error
from tarry.core.messages.model import (
    DEFAULT_POLL,
    EVERYTHING,
    BuryReason,
    Decode,
    Draft,
    Failure,
    Filter,
    Lease,
    LeaseId,
    PollOptions,
    StoredMessage,
)
from tarry.core.messages.outcomes import Edited, Outcome, Settled
from tarry.core.messages.retry import Retry
from tarry.core.messages.states import State
from tarry.storage.http import call
from tarry.storage.http.call import HttpOperation, Op, fetch, fetch_pages, fetch_unless, operation, queue_call, reply_to
from tarry.storage.http.queues import in_queues
from tarry.wire import events, queues
from tarry.wire import messages as wire
from tarry.wire.base import same_fields
from tarry.wire.ids import MessageId, position_text

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

VERSIONS = range(1, 2**63)
BATCH = 1_000
"""The largest batch, and the largest page, of a broker."""
_BODY_BYTES = 700_000
"""Payload bytes in one request; a broker accepts a body of 1 MiB."""
_UNCHANGED = ("gone", "leased", "changed")
Outcomes = list[Outcome]
Settlements = list[Settled]
StoredMessages = list[StoredMessage[bytes]]
Leases = list[Lease[P]]


class HttpMessages:
    def __init__(self, *, create: bool) -> None:
        """`create`: an offer or a poll creates its queue if it is missing."""
        self.create = create

    def _creating(self, queue: str, make: Callable[[], Op[R]], *, by_poll: bool = False) -> HttpOperation[R]:
        """An operation that creates its queue if it is missing."""
        return HttpOperation(lambda: in_queues([queue], make, create=self.create, by_poll=by_poll))

    def offer(self, queue: str, draft: Draft) -> HttpOperation[Outcome]:
        """Offer one message. The broker commits offers of many clients together."""

        def op() -> Op[Outcome]:
            offer = queue_call("POST", queue, "/messages", wire.OfferRequest.of(draft), key=call.new_key())
            return Outcome((yield from fetch(wire.Offered, offer)).outcome)

        return self._creating(queue, op)

    def offer_many(self, queue: str, drafts: Sequence[Draft]) -> HttpOperation[Outcomes]:
        """Offer messages in batches of 1,000, or of as many as fit into one request. Each batch is stored as a whole."""

        def op() -> Op[Outcomes]:
            outcomes: Outcomes = []
            for batch in _batches_of_drafts(drafts):
                body = wire.OfferBatch([wire.OfferRequest.of(draft) for draft in batch])
                offer = queue_call("POST", queue, "/messages:batch", body, key=call.new_key())
                offered = yield from fetch(wire.OfferedBatch, offer)
                outcomes += [Outcome(message.outcome) for message in offered.messages]
            return outcomes

        return self._creating(queue, op)

    def poll(
        self,
        queue: str,
        n: int,
        decode: Decode[P],
        options: PollOptions = DEFAULT_POLL,
        *,
        wait_for: timedelta = timedelta(0),
    ) -> HttpOperation[Leases[P]]:
        return self._creating(queue, lambda: _poll(queue, n, decode, options, wait_for), by_poll=True)

    @operation
    def ack(self, queue: str, lease_ids: Sequence[LeaseId]) -> Op[Settlements]:
        return _settle(queue, "ack", lease_ids)

    @operation
    def nack(self, queue: str, failures: Sequence[Failure], *, retry: Retry | None = None) -> Op[Settlements]:
        return _nack(queue, failures, retry)

    @operation
    def touch(self, queue: str, lease_ids: Sequence[LeaseId], *, lease_for: timedelta | None = None) -> Op[Settlements]:
        return _settle(queue, "touch", lease_ids, lease_for=lease_for)

    @operation
    def release(
        self,
        queue: str,
        lease_ids: Sequence[LeaseId],
        *,
        due_at: datetime | None = None,
        after: timedelta | None = None,
    ) -> Op[Settlements]:
        return _settle(queue, "release", lease_ids, at=due_at, after=after)

    @operation
    def bury(
        self, queue: str, lease_ids: Sequence[LeaseId], *, error: str | None = None, reason: BuryReason = "buried"
    ) -> Op[Settlements]:
        return _settle(queue, "bury", lease_ids, error=error, reason=reason)

    @operation
    def edit(self, queue: str, key: str, edit: Edit, *, version: int | None = None, force: bool = False) -> Op[Edited]:
        body, params = wire.EditRequest.of(edit), _condition(version, force=force)
        reply = yield from reply_to(_message_call("PATCH", queue, key, body=body, params=params), *_UNCHANGED)
        return Edited(reply.read(wire.Edited).outcome if reply.status == 200 else reply.problem["code"])

    @operation
    def drop(self, queue: str, key: str, *, version: int | None = None, unless_leased: bool = False) -> Op[bool]:
        params = _condition(version, unless_leased=unless_leased)
        return (yield from reply_to(_message_call("DELETE", queue, key, params=params), *_UNCHANGED)).status == 200

    @operation
    def purge(self, queue: str) -> Op[int]:
        purge = queue_call("POST", queue, "/purge", queues.PurgeRequest(queue), key=call.new_key())
        return (yield from fetch(queues.Purged, purge)).purged

    @operation
    def read(self, queue: str, key: str) -> Op[StoredMessage[bytes] | None]:
        return _read(queue, key)

    @operation
    def contains(self, queue: str, key: str) -> Op[bool]:
        return (yield from _read(queue, key)) is not None

    @operation
    def list(
        self, queue: str, *, state: State | None = None, limit: int = 100, filter: Filter = EVERYTHING
    ) -> Op[StoredMessages]:
        params = {"state": state and state.value, "after": filter.after and position_text(filter.after)}
        params |= same_fields(filter, Filter, "after", "payloads")
        listing = queue_call("GET", queue, "/messages", params=params)
        return fetch_pages(wire.Messages, "messages", listing, limit, BATCH)


class HttpJournal:
    @operation
    def timeline(self, queue: str, key: str, *, limit: int = 1000, before: int | None = None) -> Op[list[Event]]:
        newest: list[Event] = []
        while (missing := limit - len(newest)) > 0:
            params = {"limit": min(missing, 10_000), "before": before}
            page = yield from fetch(events.Timeline, _message_call("GET", queue, key, "/timeline", params=params))
            newest = [*(event.core() for event in page.events), *newest]
            before = page.next
            if before is None:
                break
        return newest


def _poll(queue: str, n: int, decode: Decode[P], options: PollOptions, wait_for: timedelta) -> Op[Leases[P]]:
    """Lease up to n messages. The broker waits for the first, at most a minute. A message that cannot be decoded is
    buried, and another one is leased for it. A message whose decoder raised is nacked, and no further request follows: a
    bug of a decoder costs at most n attempts per call."""
    leases: Leases[P] = []
    failures: list[Failure] = []
    while not failures and (missing := min(n - len(leases), BATCH)) > 0:
        wait = timedelta(0) if leases else wait_for
        poll = queue_call(
            "POST",
            queue,
            "/messages:poll",
            wire.PollRequest.of_core(options, max=missing, wait=wait),
            wait_s=wait.total_seconds(),
        )
        reply = yield from reply_to(poll)
        if reply.status == 204:
            break
        rows = [delivery.core() for delivery in reply.read(wire.Deliveries).messages]
        undecodable: list[tuple[LeaseId, str]] = []
        for row in rows:
            try:
                payload = decode(row.payload, row.content_type)
            except InvalidPayload as error:
                undecodable.append((row.lease_id, clip_error(error.message)))
            except Exception as error:
                failures.append(Failure(row.lease_id, decoder_error(row.key, error)))
            else:
                leases.append(row.decoded(payload))
        for lease_id, error in undecodable:
            yield from _settle(queue, "bury", [lease_id], error=error, reason="undecodable")
        if not undecodable and len(rows) < missing:
            break
    if failures:
        yield from _nack(queue, failures, None)
    return leases


def _nack(queue: str, failures: Sequence[Failure], retry: Retry | None) -> Op[Settlements]:
    policy = None if retry is None else wire.ConsumerRetryPolicy.of_core(retry)
    return _settle_batches(queue, "nack", [wire.Nack.of_failure(queue, failure) for failure in failures], retry=policy)


def _settle(queue: str, verb: str, lease_ids: Sequence[LeaseId], **options: Any) -> Op[Settlements]:
    return _settle_batches(queue, verb, [wire.Settle.of(queue, lease_id) for lease_id in lease_ids], **options)


def _settle_batches(queue: str, verb: str, items: Sequence[wire.Settle], **options: Any) -> Op[Settlements]:
    outcomes: Settlements = []
    body = {name: value for name, value in options.items() if value is not None}
    for batch in batches(items):
        settle = call.Call("POST", f"/v1/messages:{verb}", {"messages": batch, **body}, queue=queue)
        outcomes += [Settled(message.outcome) for message in (yield from fetch(wire.SettledBatch, settle)).messages]
    return outcomes


def _read(queue: str, key: str) -> Op[StoredMessage[bytes] | None]:
    message = yield from fetch_unless("gone", wire.Message, _message_call("GET", queue, key))
    return message and message.core()


def _message_call(method: str, queue: str, key: str, path: str = "", **options: Any) -> call.Call:
    return call.Call(method, f"/v1/messages/{MessageId(queue, key)}{path}", queue=queue, **options)


def _condition(version: int | None, **flags: bool) -> dict[str, Any]:
    # A number that is not a version becomes one that no message has.
    expected = {} if version is None else {"version": version if version in VERSIONS else VERSIONS[-1]}
    return expected | {name: "true" for name, is_set in flags.items() if is_set}


def _batches_of_drafts(drafts: Sequence[Draft]) -> Iterator[Sequence[Draft]]:
    start, size = 0, 0
    for position, draft in enumerate(drafts):
        if position > start and (position - start == BATCH or size + len(draft.payload) > _BODY_BYTES):
            yield drafts[start:position]
            start, size = position, 0
        size += len(draft.payload)
    if start < len(drafts):
        yield drafts[start:]


def batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]
