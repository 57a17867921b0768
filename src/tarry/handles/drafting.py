"""Converts a caller's arguments to what a store accepts: all input validation, before anything is stored."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from tarry.core import limits
from tarry.core.codecs import Codec
from tarry.core.errors import InvalidInput
from tarry.core.ids import uuid7
from tarry.core.messages import KEEP, REPLACE, Conflict, ConflictRule, Draft, Message
from tarry.core.retry import Retry, check_retry
from tarry.handles.tracing import TRACING, traced

P = TypeVar("P")

_NO_DELAY = timedelta(0)


class Drafter(Generic[P]):
    def __init__(self, codec: Codec[P], payload_limit: int) -> None:
        self._encode = codec.encode
        self._payload_limit = payload_limit

    def draft(
        self,
        key: str | None,
        payload: P,
        *,
        at: datetime | None = None,
        after: timedelta | None = None,
        priority: int = 0,
        type: str | None = None,
        headers: Mapping[str, str] | None = None,
        lease_for: timedelta | None = None,
        max_attempts: int | None = None,
        retry: Retry | None = None,
        conflict: Conflict | None = None,
        can_update: bool = True,
    ) -> Draft:
        if at is not None and after is not None:
            raise InvalidInput("give either at or after, not both")
        if conflict is not None and not isinstance(conflict, Conflict):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"conflict must be a tarry.Conflict, as Conflict.keep(), not {_name_of(conflict)}")
        check_retry(retry)
        if conflict is not None and not can_update and conflict.rule is not ConflictRule.KEEP:
            raise InvalidInput("can_update=False means conflict=Conflict.keep(), and another conflict policy was given")
        data, content_type = self._encode(payload)
        if retry is not None and max_attempts is None:
            max_attempts = retry.max_attempts
        if TRACING in sys.modules:
            headers = traced(headers)
        # Positional arguments, and no checks of absent values: this runs once per message of a large batch.
        return Draft(
            fresh_key() if key is None else limits.check_key(key),
            limits.check_payload_size(data, self._payload_limit),
            content_type,
            None if at is None else limits.check_instant(at),
            _NO_DELAY if after is None else limits.check_delay(after),
            limits.check_priority(priority),
            None if type is None else limits.check_type(type),
            None if headers is None else limits.check_headers(headers) or None,
            None if lease_for is None else limits.check_lease_for(lease_for),
            None if max_attempts is None else limits.check_max_attempts(max_attempts),
            retry,
            (conflict or REPLACE) if can_update else KEEP,
            key is None,
        )

    def draft_message(self, message: Message[P]) -> Draft:
        if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"offer_many takes tarry.Message values, not {_name_of(message)}")
        return self.draft(
            message.key,
            message.payload,
            at=message.at,
            after=message.after,
            priority=message.priority,
            type=message.type,
            headers=message.headers,
            lease_for=message.lease_for,
            max_attempts=message.max_attempts,
            retry=message.retry,
            conflict=message.conflict,
        )


def checked_due(at: datetime | None, after: timedelta | None) -> tuple[datetime | None, timedelta | None]:
    if at is not None and after is not None:
        raise InvalidInput("give either at or after, not both")
    return None if at is None else limits.check_instant(at), None if after is None else limits.check_delay(after)


def fresh_key() -> str:
    """Sortable and random. Its timestamp only helps the index: no decision depends on it."""
    return uuid7(time.time_ns(), os.urandom(8))


def _name_of(value: Any) -> str:
    return type(value).__name__
