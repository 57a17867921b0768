"""Validation and encoding of offered messages and of edits, before anything is stored."""

import os
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, TypedDict, TypeVar

from tarry.api.validation import checked_due
from tarry.core import limits
from tarry.core.codecs import Codec
from tarry.core.errors import InvalidInput
from tarry.core.ids import uuid7_with, uuid7s, uuid_tails
from tarry.core.messages.edits import Edit
from tarry.core.messages.model import KEEP, REPLACE, TRACE_HEADERS, Conflict, ConflictRule, Draft, Message
from tarry.core.messages.retry import Retry, check_retry

P = TypeVar("P")

_NO_DELAY = timedelta(0)
_TRACING = "opentelemetry.trace"
"""A program with an active span has imported this module; other programs pay nothing for the check."""


class Drafter(Generic[P]):
    def __init__(self, codec: Codec[P], payload_limit: int) -> None:
        self._encode = codec.encode
        self._payload_limit = payload_limit

    def draft_messages(self, messages: Iterable[Message[P]]) -> list[Draft]:
        """Generated keys ascend, in index order."""
        given = list(messages)
        return list(map(self.draft_message, given, fresh_keys(len(given))))

    def draft_message(self, message: Message[P], new_key: str | None = None) -> Draft:
        """`new_key`: the generated key of a message that has none."""
        if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"offer_many takes tarry.Message values, not {_name_of(message)}")
        key, at, after, type, headers = message.key, message.at, message.after, message.type, message.headers
        lease_for, max_attempts, retry = message.lease_for, message.max_attempts, message.retry
        if at is not None and after is not None:
            raise InvalidInput("give either at or after, not both")
        if retry is not None and check_retry(retry) is not None and max_attempts is None:
            max_attempts = retry.max_attempts
        data, content_type = self._encode(message.payload)
        if _TRACING in sys.modules:
            headers = _traced(headers)
        # Positional arguments, and no checks of absent values: this runs once per message of a large batch.
        return Draft(
            limits.check_key(key) if key is not None else fresh_key() if new_key is None else new_key,
            limits.check_payload_size(data, self._payload_limit),
            content_type,
            None if at is None else limits.check_instant(at),
            _NO_DELAY if after is None else limits.check_delay(after),
            limits.check_priority(message.priority),
            None if type is None else limits.check_type(type),
            None if headers is None else limits.check_headers(headers) or None,
            None if lease_for is None else limits.check_lease_for(lease_for),
            None if max_attempts is None else limits.check_max_attempts(max_attempts),
            retry,
            REPLACE if message.conflict is REPLACE else checked_conflict(message.conflict),
            key is None,
        )


def checked_conflict(conflict: Conflict | None, *, can_update: bool = True) -> Conflict:
    if conflict is not None and not isinstance(conflict, Conflict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"conflict must be a tarry.Conflict, as Conflict.keep(), not {_name_of(conflict)}")
    if can_update:
        return conflict or REPLACE
    if conflict is not None and conflict.rule is not ConflictRule.KEEP:
        raise InvalidInput("can_update=False means conflict=Conflict.keep(), and another conflict policy was given")
    return KEEP


def fresh_key() -> str:
    """Sortable and random. Its timestamp only helps the index: no decision depends on it."""
    try:
        tail = _tails.pop()
    except IndexError:
        tail, *more = uuid_tails(os.urandom(8 * 256))  # one system call for many keys
        _tails.extend(more)
    return uuid7_with(time.time_ns(), tail)


def fresh_keys(n: int) -> list[str]:
    """`n` keys as of `fresh_key`, in a quarter of its time per key."""
    return uuid7s(time.time_ns(), uuid_tails(os.urandom(8 * n)))


_tails: list[str] = []
os.register_at_fork(after_in_child=_tails.clear)  # otherwise the child would generate its parent's keys


def _name_of(value: Any) -> str:
    return type(value).__name__


def _traced(headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """The headers with the active span's `traceparent`. Headers that already have one are unchanged."""
    trace: Any = sys.modules.get(_TRACING)
    if trace is None or not trace.get_current_span().get_span_context().is_valid:
        return headers
    if headers is not None and TRACE_HEADERS[0] in headers:
        return headers
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = dict(headers or {})
    TraceContextTextMapPropagator().inject(carrier)
    return carrier


class Changes(TypedDict, Generic[P], total=False):
    """Absent fields stay unchanged. None removes a type, headers, or a message's own setting."""

    payload: P
    at: datetime
    after: timedelta
    priority: int
    type: str | None
    headers: Mapping[str, str] | None
    lease_for: timedelta | None
    max_attempts: int | None
    retry: Retry | None


def checked_edit(changes: Changes[P], codec: Codec[P], payload_limit: int) -> Edit:
    values: dict[str, Any] = dict(changes)
    unknown = values.keys() - Changes.__annotations__.keys()
    if unknown or not values:
        wrong = (
            f"a message has no {', '.join(sorted(unknown))} that could be edited" if unknown else "nothing is to change"
        )
        raise InvalidInput(f"{wrong}; there are {', '.join(sorted(Changes.__annotations__))}")
    named = set(values) - {"at", "after"}
    if "at" in values or "after" in values:
        named.add("due_at")
        if values.get("at") is None and values.get("after") is None:
            raise InvalidInput("at and after cannot be None: leave them away to keep the time as it is")
    due_at, after = checked_due(values.get("at"), values.get("after"))
    retry = check_retry(values.get("retry"))
    if retry is not None and retry.max_attempts is not None and "max_attempts" not in values:
        named.add("max_attempts")
        values["max_attempts"] = retry.max_attempts
    data, content_type = codec.encode(values["payload"]) if "payload" in values else (None, None)
    lease_for = values.get("lease_for")
    return Edit(
        named=frozenset(named),
        payload=None if data is None else limits.check_payload_size(data, payload_limit),
        content_type=content_type,
        due_at=due_at,
        after=after,
        priority=limits.check_priority(values["priority"]) if "priority" in values else None,
        type=limits.check_type(values.get("type")),
        headers=limits.check_headers(values.get("headers")) or None,
        lease_for=None if lease_for is None else limits.check_lease_for(lease_for),
        max_attempts=limits.check_max_attempts(values.get("max_attempts")),
        retry=retry,
    )
