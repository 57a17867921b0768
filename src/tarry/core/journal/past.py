"""The state of a queue at a past instant, from the events around that instant and the current live messages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from tarry.core.journal.events import Event
from tarry.core.journal.events import EventKind as K
from tarry.core.journal.replay import BEGINS, ENDS, NEUTRAL
from tarry.core.messages.model import StoredMessage
from tarry.core.messages.states import State, live_state


class StateSource(StrEnum):
    """The evidence for the state of a message."""

    BEFORE = "its last event before"
    AFTER = "its first event after"
    NOW = "what it is now"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastMessage:
    key: str
    state: State
    due_at: datetime | None
    attempt: int | None
    priority: int | None
    version: int | None
    source: StateSource
    consumer: str | None = None
    lease_until: datetime | None = None
    last_at: datetime | None = None
    """Time of the event that is the evidence."""
    error: str | None = None


def past_messages(
    at: datetime, before: Iterable[Event], after: Iterable[Event], live: Sequence[StoredMessage[Any]]
) -> list[PastMessage]:
    """The known messages that were live or dead at the instant: live ones first, in due order.

    `before`: the last events up to the instant, newest first; `after`: all later events, oldest first, or none; `live`:
    current messages that were created before the instant.
    """
    known: dict[str, PastMessage | None] = {}
    for event in before:
        if event.key is not None and event.kind not in NEUTRAL and event.key not in known:
            known[event.key] = _until(event, at)
    for event in after:
        if event.key is not None and event.kind not in NEUTRAL and event.key not in known:
            known[event.key] = None if event.kind in BEGINS else _since(event, at)
    for message in live:
        if message.key not in known:
            state = live_state(due_at=message.due_at, lease_until=None, now=at)
            known[message.key] = _known(message, state, StateSource.NOW)
    messages = [message for message in known.values() if message is not None]
    return sorted(
        messages, key=lambda message: (message.state is State.DEAD, message.due_at or at, message.version or 0)
    )


def _until(event: Event, at: datetime) -> PastMessage | None:
    if event.kind in ENDS and event.kind is not K.BURIED:
        return None
    held = event.lease_until if event.kind in (K.LEASED, K.TOUCHED) else None
    state = State.DEAD if event.kind is K.BURIED else live_state(due_at=event.due_at or at, lease_until=held, now=at)
    return _of(event, state, held, StateSource.BEFORE)


def _since(event: Event, at: datetime) -> PastMessage:
    """A message known by its next event; the values which that event changed are unknown."""
    held = event.leased_at is not None and event.leased_at <= at and event.kind is not K.LEASED
    state = State.LEASED if held else live_state(due_at=event.due_at or at, lease_until=None, now=at)
    return _of(event, state, None, StateSource.AFTER)


def _of(event: Event, state: State, held: datetime | None, source: StateSource) -> PastMessage:
    consumer = event.consumer if state is State.LEASED else None
    return _known(event, state, source, consumer=consumer, lease_until=held, last_at=event.at, error=event.error)


def _known(by: Event | StoredMessage[Any], state: State, source: StateSource, **more: Any) -> PastMessage:
    return PastMessage(
        key=by.key or "",
        state=state,
        due_at=by.due_at,
        attempt=by.attempt,
        priority=by.priority,
        version=by.version,
        source=source,
        **more,
    )
