"""Converts a caller's changes of a message to what a store accepts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, TypedDict, TypeVar

from tarry.core import limits
from tarry.core.codecs import Codec
from tarry.core.editing import Edit
from tarry.core.errors import InvalidInput
from tarry.core.retry import Retry, check_retry
from tarry.handles.drafting import checked_due

P = TypeVar("P")


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
    said: dict[str, Any] = dict(changes)
    unknown = said.keys() - Changes.__annotations__.keys()
    if unknown or not said:
        wrong = (
            f"a message has no {', '.join(sorted(unknown))} that could be edited" if unknown else "nothing is to change"
        )
        raise InvalidInput(f"{wrong}; there are {', '.join(sorted(Changes.__annotations__))}")
    named = set(said) - {"at", "after"}
    if "at" in said or "after" in said:
        named.add("due_at")
        if said.get("at") is None and said.get("after") is None:
            raise InvalidInput("at and after cannot be None: leave them away to keep the time as it is")
    due_at, delay = checked_due(said.get("at"), said.get("after"))
    retry = check_retry(said.get("retry"))
    if retry is not None and retry.max_attempts is not None and "max_attempts" not in said:
        named.add("max_attempts")
        said["max_attempts"] = retry.max_attempts
    data, content_type = codec.encode(said["payload"]) if "payload" in said else (None, None)
    lease_for = said.get("lease_for")
    return Edit(
        named=frozenset(named),
        payload=None if data is None else limits.check_payload_size(data, payload_limit),
        content_type=content_type,
        due_at=due_at,
        delay=delay,
        priority=limits.check_priority(said["priority"]) if "priority" in said else None,
        type=limits.check_type(said.get("type")),
        headers=limits.check_headers(said.get("headers")) or None,
        lease_for=None if lease_for is None else limits.check_lease_for(lease_for),
        max_attempts=limits.check_max_attempts(said.get("max_attempts")),
        retry=retry,
    )
