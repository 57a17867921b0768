"""Message steps that several roles share: offers, and pages of live messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from struct import Struct
from typing import Any

import msgspec

from tarry.core.errors import InvalidInput, QueueFull
from tarry.core.messages.model import CONFLICT_CODES, Draft, Filter, LeaseId, MessagePosition, StoredMessage
from tarry.core.messages.outcomes import Outcome
from tarry.storage.redis.operation import Op, RedisRole, Repetition, duration, instant, micros
from tarry.storage.redis.rows import draft_fields, packed_options, payload_hash, row_of, split_headers

_OUTCOMES = {ord("c"): Outcome.CREATED, ord("u"): Outcome.UPDATED, ord("i"): Outcome.IGNORED}
_FULL = b"full:"
MOST_OFFERED, MOST_BYTES_OFFERED = 100_000, 256 << 20
_SCANNED_AT_ONCE = 500
"""Maximum number of messages of each priority that one script lists."""


_HEAD, _SHORT, _LONG = Struct("<dddBBB16sB"), Struct("<H"), Struct("<I")
_POLL_HEAD, _ACK_HEAD = Struct("<dddB32sB"), Struct("<ddB32sB")
_FRESH, _TYPED, _AGAIN = 1, 2, 4
_NO_TIME = -1


class OneOffer(msgspec.Struct, frozen=True, gc=False):
    """The parameters of `offer_one.lua`."""

    queue: str
    draft: Draft
    headers: str | None
    now: int | None

    def packed(self, slot: str, request: int, again: Repetition) -> bytes:
        draft = self.draft
        head = _HEAD.pack(
            request,
            _NO_TIME if self.now is None else self.now,
            duration(draft.after),
            _FRESH * draft.fresh | _TYPED * (draft.type is not None) | _AGAIN * again,
            draft.priority,
            CONFLICT_CODES[draft.conflict.rule],
            payload_hash(draft.payload).encode(),
            len(slot),
        )
        # As text: a double does not hold every instant of the calendar.
        due = b"" if draft.due_at is None else str(micros(draft.due_at)).encode()
        name, key = self.queue.encode(), draft.key.encode()
        options = packed_options(
            draft.content_type, draft.type, self.headers, draft.lease_for, draft.max_attempts, draft.retry
        )
        return b"%b%b%c%b%c%b%b%b%b%b" % (
            head, slot.encode(), len(due), due, len(name), name, _SHORT.pack(len(key)), key,
            _LONG.pack(len(options)), options,
        )  # fmt: skip


class OnePoll(msgspec.Struct, frozen=True, gc=False):
    """The parameters of `poll_one.lua`."""

    queue: str
    nonce: str
    lease_for: timedelta | None
    consumer: str | None
    now: int | None

    def packed(self, slot: str, request: int, again: Repetition) -> bytes:
        name, consumer, own_slot = self.queue.encode(), (self.consumer or "").encode(), slot.encode()
        head = _POLL_HEAD.pack(
            request,
            _NO_TIME if self.now is None else self.now,
            _NO_TIME if self.lease_for is None else duration(self.lease_for),
            again,
            self.nonce.encode(),
            len(own_slot),
        )
        return b"%b%b%c%b%b%b" % (head, own_slot, len(name), name, _SHORT.pack(len(consumer)), consumer)


class OneAck(msgspec.Struct, frozen=True, gc=False):
    """The parameters of `ack_one.lua`."""

    queue: str
    lease_id: LeaseId
    now: int | None

    def packed(self, slot: str, request: int, again: Repetition) -> bytes:
        name, key, own_slot = self.queue.encode(), self.lease_id.key.encode(), slot.encode()
        now = _NO_TIME if self.now is None else self.now
        head = _ACK_HEAD.pack(request, now, again, self.lease_id.token.hex.encode(), len(own_slot))
        return b"%b%b%c%b%b%b" % (head, own_slot, len(name), name, _SHORT.pack(len(key)), key)


class Offers(RedisRole):
    def offer_one(self, queue: str, draft: Draft) -> Op[Outcome]:
        headers, trace = split_headers(draft.headers)
        if trace is not None or draft.conflict.max_wait is not None:
            return (yield from self.offer(queue, [draft]))[0]
        params = OneOffer(queue, draft, headers, self._now())
        reply = yield from self._with_params(queue, "messages/offer_one", params, [draft.payload], create=True)
        return _outcomes(queue, reply)[0]

    def offer(self, queue: str, drafts: Sequence[Draft], **once: Any) -> Op[list[Outcome]]:
        """`once` names a request that another process may repeat."""
        payloads = [draft.payload for draft in drafts]
        if len(drafts) > MOST_OFFERED or sum(map(len, payloads)) > MOST_BYTES_OFFERED:
            raise InvalidInput(
                f"one call offers at most {MOST_OFFERED:,} messages and {MOST_BYTES_OFFERED >> 20} MiB to Redis",
                hint="offer them in parts: a batch is one script, and other clients wait until it has ended",
            )
        params = {
            "keys": [draft.key for draft in drafts],
            "hashes": "".join(map(payload_hash, payloads)),
            "fresh": all(draft.fresh for draft in drafts) or None,
            **_shared(drafts),
        }
        reply = yield from self._in_queue(queue, "messages/offer", payloads, create=True, **params, **once)
        return _outcomes(queue, reply)


def _outcomes(queue: str, reply: bytes) -> list[Outcome]:
    if reply.startswith(_FULL):
        raise QueueFull.of(queue, int(reply.removeprefix(_FULL)))
    return [_OUTCOMES[letter] for letter in reply]


def _shared(drafts: Sequence[Draft]) -> dict[str, Any]:
    """The distinct kinds of drafts, and the kind of each message: most batches have one kind."""
    if len(drafts) == 1:
        return {"drafts": [draft_fields(drafts[0])]}
    numbers: dict[Any, int] = {}
    fields: list[dict[str, Any]] = []
    uses: list[int] = []
    for draft in drafts:
        kind = (
            draft.due_at, draft.after, draft.priority, draft.conflict, draft.type, draft.content_type, draft.lease_for,
            draft.max_attempts, draft.retry,
        ) if not draft.headers else draft.key  # fmt: skip
        number = numbers.setdefault(kind, len(fields) + 1)
        if number > len(fields):
            fields.append(draft_fields(draft))
        uses.append(number)
    return {"drafts": fields, "uses": None if len(fields) == 1 else uses}


class MessageScan(RedisRole):
    def page(
        self, queue: str, after: MessagePosition | None, filter: Filter
    ) -> Op[tuple[list[StoredMessage[bytes]], MessagePosition | None]]:
        """Messages from a bounded scan, and the position at which it stopped; None: it reached the end."""
        now, attempts, member, due, rows = yield from self._in_queue(
            queue,
            "messages/list",
            type=filter.type,
            priority=filter.priority,
            prefix=filter.key_prefix,
            payloads=filter.payloads,
            part=_SCANNED_AT_ONCE,
            after_due=None if after is None else micros(after.due_at),
            after_version=None if after is None else after.version,
        )
        messages = [
            row_of(packed).message(queue, key.decode(), payload, instant(now), whole(attempts))
            for key, packed, payload in zip(rows[::3], rows[1::3], rows[2::3], strict=True)
        ]
        return messages, None if member is None else MessagePosition(instant(due), int(member[:16]))


def whole(text: bytes | None) -> int | None:
    return None if text is None else int(text)
