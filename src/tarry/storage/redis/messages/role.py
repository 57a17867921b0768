"""`MessagesRole` on Redis."""

from __future__ import annotations

import builtins
import os
import random
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, LiteralString, TypeVar

from tarry.core.errors import InvalidPayload
from tarry.core.limits import clip_error
from tarry.core.messages import batches
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
from tarry.storage.redis.messages.steps import MessageScan, Offers, OneAck, OnePoll, whole
from tarry.storage.redis.operation import (
    LOOKUPS,
    Op,
    RedisOperation,
    RedisRole,
    RoleContext,
    ScriptCall,
    duration,
    in_change,
    instant,
    key_of,
    micros,
    operation,
    stored_retry,
)
from tarry.storage.redis.rows import payload_hash, row_of, split_headers
from tarry.storage.redis.script import script

P = TypeVar("P")

_MOST_AT_ONCE = 1_000
"""Maximum number of messages that one script leases or settles."""
_SETTLED = {"d": Settled.DONE, "l": Settled.LEASE_LOST, "g": Settled.GONE, "-": Settled.GONE}
_POLL_OPTIONS = tuple(field.name for field in fields(PollOptions))


@lru_cache(1_000)
def _poll_params(options: PollOptions) -> dict[str, Any]:
    return {name: getattr(options, name) for name in _POLL_OPTIONS} | {"lease_for": duration(options.lease_for)}


class RedisMessages(RedisRole):
    def __init__(self, context: RoleContext, offers: Offers, scan: MessageScan) -> None:
        super().__init__(context)
        self._offers, self._scan = offers, scan

    def offer(self, queue: str, draft: Draft) -> RedisOperation[Outcome]:
        return RedisOperation(lambda: self._offers.offer_one(queue, draft))

    @operation
    def offer_many(self, queue: str, drafts: Sequence[Draft]) -> Op[builtins.list[Outcome]]:
        kept, decided = batches.fold(drafts, self._context.clock.pinned())
        stored = iter((yield from self._offers.offer(queue, kept)))
        return [outcome or next(stored) for outcome in decided]

    @operation
    def poll(
        self, queue: str, n: int, decode: Decode[P], options: PollOptions = DEFAULT_POLL
    ) -> Op[builtins.list[Lease[P]]]:
        """Lease, then decode. Undecodable messages are buried and replaced by others. A round in which the decoder raised
        another error is the last, so a decoder bug costs at most n attempts per call."""
        leases: builtins.list[Lease[P]] = []
        params = _poll_params(options)
        is_plain = options.type is None and options.max_attempts is None and not options.lowest_first
        while (missing := min(n - len(leases), _MOST_AT_ONCE)) > 0:
            nonce = os.urandom(16).hex()
            if missing == 1 and is_plain:
                single = OnePoll(queue, nonce, options.lease_for, options.consumer, self._now())
                reply = yield from self._with_params(queue, "messages/poll_one", single, (), create=True)
            else:
                reply = yield from self._in_queue(queue, "messages/poll", create=True, n=missing, nonce=nonce, **params)
            undecodable: builtins.list[tuple[LeaseId, str]] = []
            failures: builtins.list[Failure] = []
            for name, packed, payload in zip(*reply, strict=True):
                row, key = row_of(packed), name.decode()
                try:
                    leases.append(row.lease(key, decode(payload, row.content_type)))
                except InvalidPayload as error:
                    undecodable.append((row.lease_id(key), error.message))
                except Exception as error:
                    failures.append(Failure(row.lease_id(key), decoder_error(key, error)))
            for lease_id, error in undecodable:
                reason: BuryReason = "undecodable"
                yield from self._settle(queue, "messages/bury", [lease_id], reason=reason, error=clip_error(error))
            if failures:
                yield from self._nack(queue, failures, None)
                break
            if len(reply[0]) < missing:
                break
        return leases

    @operation
    def ack(self, queue: str, lease_ids: Sequence[LeaseId]) -> Op[builtins.list[Settled]]:
        ids = (yield from self._ids(queue)) if len(lease_ids) == 1 else None
        if ids is not None and ids.id is not None and not ids.former:
            single = OneAck(queue, lease_ids[0], self._now())
            settled = yield ScriptCall(script("messages/ack_one"), key_of(ids.id), single)
            if settled is not None:
                return [_SETTLED[settled.decode()]]
        return (yield from self._settle(queue, "messages/ack", lease_ids))

    @operation
    def nack(
        self, queue: str, failures: Sequence[Failure], *, retry: Retry | None = None
    ) -> Op[builtins.list[Settled]]:
        return (yield from self._nack(queue, failures, retry))

    def _nack(self, queue: str, failures: Sequence[Failure], retry: Retry | None) -> Op[builtins.list[Settled]]:
        details = [
            {
                "error": None if failure.error is None else clip_error(failure.error),
                "after": duration(failure.after),
                "due_at": None if failure.due_at is None else str(micros(failure.due_at)),
                "spread": random.random(),  # noqa: S311 - jitter
            }
            for failure in failures
        ]
        attempts = None if retry is None else retry.max_attempts
        return (
            yield from self._settle(
                queue,
                "messages/nack",
                [failure.lease_id for failure in failures],
                failures=details,
                retry=stored_retry(retry),
                max_attempts=attempts,
            )
        )

    @operation
    def touch(
        self, queue: str, lease_ids: Sequence[LeaseId], *, lease_for: timedelta | None = None
    ) -> Op[builtins.list[Settled]]:
        return (yield from self._settle(queue, "messages/touch", lease_ids, lease_for=duration(lease_for)))

    @operation
    def release(
        self,
        queue: str,
        lease_ids: Sequence[LeaseId],
        *,
        due_at: datetime | None = None,
        after: timedelta | None = None,
    ) -> Op[builtins.list[Settled]]:
        due = None if due_at is None else str(micros(due_at))
        return (yield from self._settle(queue, "messages/release", lease_ids, due_at=due, after=duration(after)))

    @operation
    def bury(
        self, queue: str, lease_ids: Sequence[LeaseId], *, error: str | None = None, reason: BuryReason = "buried"
    ) -> Op[builtins.list[Settled]]:
        clipped = None if error is None else clip_error(error)
        return (yield from self._settle(queue, "messages/bury", lease_ids, reason=reason, error=clipped))

    def _settle(
        self,
        queue: str,
        name: LiteralString,
        leases: Sequence[LeaseId],
        failures: Sequence[dict[str, Any]] | None = None,
        **params: Any,
    ) -> Op[builtins.list[Settled]]:
        """Settle in the queues that had the name before, where messages may be leased, then in the queue that has it."""
        results = ["g"] * len(leases)
        left: builtins.list[int] = [*range(len(leases))]
        tried: set[str] = set()
        looked_up = 0
        while left and looked_up < LOOKUPS:
            ids = yield from self._ids(queue)
            former = next((id for id in ids.former if id not in tried), None)
            id = former or ids.id
            if id is None:
                break
            tried.add(id)
            settled, unsettled = None, builtins.list[int]()
            for start in range(0, len(left), _MOST_AT_ONCE):
                part = left[start : start + _MOST_AT_ONCE]
                settled = yield from self._by_id(
                    id,
                    name,
                    keys=[leases[index].key for index in part],
                    tokens="".join([leases[index].token.hex for index in part]),
                    failures=None if failures is None else [failures[index] for index in part],
                    queue=None if former else queue,
                    quiet=bool(former),
                    **params,
                )
                if settled is None:
                    unsettled += left[start:]
                    break
                for index, result in zip(part, settled.decode(), strict=True):
                    results[index] = result
                unsettled += [index for index in part if results[index] == "-"]
            left = unsettled
            if settled is None and former is None:
                yield from self._lost_name(queue, id, ids.reservation, looked_up)
                tried.discard(id)
                looked_up += 1
        if left and looked_up == LOOKUPS:
            raise in_change(queue)
        return [_SETTLED[result] for result in results]

    @operation
    def bury_by_key(
        self, queue: str, key: str, *, error: str | None = None, version: int | None = None, force: bool = False
    ) -> Op[Edited]:
        clipped = None if error is None else clip_error(error)
        params: dict[str, Any] = {"key": key, "error": clipped, "version": _text(version), "force": force}
        return Edited((yield from self._in_queue(queue, "messages/bury_by_key", **params)).decode())

    @operation
    def edit(self, queue: str, key: str, edit: Edit, *, version: int | None = None, force: bool = False) -> Op[Edited]:
        headers, trace = split_headers(edit.headers)
        values = {
            "priority": edit.priority,
            "type": edit.type,
            "headers": headers,
            "trace": trace,
            "lease_for": duration(edit.lease_for),
            "max_attempts": edit.max_attempts,
            "retry": stored_retry(edit.retry),
            "content_type": edit.content_type,
        }
        named = set(edit.named)
        named |= {"trace"} if "headers" in named else set()
        named |= {"content_type"} if "payload" in named else set()
        params: dict[str, Any] = {
            "key": key,
            "version": _text(version),
            "force": force,
            "named": sorted(named - {"payload"}),
            "set": {name: value for name, value in values.items() if name in named and value is not None},
            "with_due": "due_at" in named,
            "due_at": None if edit.due_at is None else str(micros(edit.due_at)),
            "after": duration(edit.after or timedelta(0)),
            "with_payload": edit.payload is not None,
            "hash": None if edit.payload is None else payload_hash(edit.payload),
            "fields": edit.detail["fields"],
        }
        payloads = [] if edit.payload is None else [edit.payload]
        return Edited((yield from self._in_queue(queue, "messages/edit", payloads, **params)).decode())

    @operation
    def drop(self, queue: str, key: str, *, version: int | None = None, unless_leased: bool = False) -> Op[bool]:
        params: dict[str, Any] = {"key": key, "version": _text(version), "force": not unless_leased}
        return bool((yield from self._in_queue(queue, "messages/drop", **params)))

    @operation
    def purge(self, queue: str) -> Op[int]:
        cursor, count = "0", 0
        while True:
            reply = yield from self._in_queue(queue, "messages/purge", cursor=cursor, count=count)
            cursor, count = reply[0].decode(), reply[1]
            if cursor == "0":
                return count

    @operation
    def read(self, queue: str, key: str) -> Op[StoredMessage[bytes] | None]:
        packed, payload, now, attempts = yield from self._in_queue(queue, "messages/read", key=key)
        if packed is None:
            return None
        return row_of(packed).message(queue, key, payload, instant(now), whole(attempts))

    @operation
    def contains(self, queue: str, key: str) -> Op[bool]:
        return (yield from self._in_queue(queue, "messages/read", key=key))[0] is not None

    @operation
    def list(
        self, queue: str, *, state: State | None = None, limit: int = 100, filter: Filter = EVERYTHING
    ) -> Op[builtins.list[StoredMessage[bytes]]]:
        messages: builtins.list[StoredMessage[bytes]] = []
        after = filter.after
        while True:
            page, after = yield from self._scan.page(queue, after, filter)
            messages += [message for message in page if state in (None, message.state)]
            if after is None or len(messages) >= limit:
                return messages[: max(limit, 0)]


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
