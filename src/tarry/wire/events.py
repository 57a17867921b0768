"""Events of the journal."""

from base64 import b64decode, b64encode
from dataclasses import replace
from typing import Annotated, Any, Self

from msgspec import Meta

from tarry.core.journal import events
from tarry.wire.base import At, Response


class LiveEvent(Response):
    """An event without its payload and headers."""

    id: int
    kind: str
    at: At
    queue: str
    key: str | None
    version: int | None
    attempt: int | None
    priority: int | None
    due_at: At | None
    leased_at: At | None
    lease_until: At | None
    consumer: str | None
    size: int | None
    payload_hash: str | None
    error: str | None
    detail: dict[str, Any] | None

    @classmethod
    def of(cls, value: events.Event, /, **fields: Any) -> Self:
        payload_hash = None if value.payload_hash is None else value.payload_hash.hex()
        detail = {name: item for name, item in (value.detail or {}).items() if name != "headers"}
        return super().of(value, **{"payload_hash": payload_hash, "detail": detail or None, **fields})

    def core(self) -> events.Event:
        payload_hash = None if self.payload_hash is None else bytes.fromhex(self.payload_hash)
        return self.as_core(events.Event, payload_hash=payload_hash, payload=None)


class Event(LiveEvent):
    payload_base64: str | None

    @classmethod
    def of(cls, value: events.Event, /, **fields: Any) -> Self:
        payload = None if value.payload is None else b64encode(value.payload).decode()
        return super().of(value, payload_base64=payload, detail=value.detail, **fields)

    def core(self) -> events.Event:
        return replace(super().core(), payload=None if self.payload_base64 is None else b64decode(self.payload_base64))


class Timeline(Response):
    events: list[Event]
    next: Annotated[int | None, Meta(description="Give it as `before` for the page before this; null on the last.")]


class GapEvent(Response):
    """Events are missing from a stream, with the reason."""

    reason: str
    detail: str
