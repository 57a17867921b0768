"""A message as a line of JSON: the format of export and import, equal to the body of an offer over HTTP."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from tarry.core import limits
from tarry.core.errors import InvalidInput
from tarry.core.messages import Conflict, Message, StoredMessage
from tarry.core.retry import Retry
from tarry.core.times import INSTANTS, duration, exact, moment
from tarry.handles.content import Content

_CONTENT_TYPE = re.compile(r"[A-Za-z0-9.+-]{1,60}/[A-Za-z0-9.+-]{1,60}")
_CONFLICTS = {"replace": Conflict.replace, "keep": Conflict.keep, "earliest": Conflict.earliest}

Duration = int | float | str


class _Retry(msgspec.Struct, forbid_unknown_fields=True):
    initial_for: Duration = 1
    factor: float = 2.0
    cap_for: Duration = 600
    jitter: float = 0.1


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    payload: msgspec.Raw = msgspec.Raw()
    payload_base64: str | None = None
    content_type: str | None = None
    key: str | None = None
    at: str | None = None
    delay: Duration | None = None
    priority: int = 0
    type: str | None = None
    headers: dict[str, str] | None = None
    max_attempts: int | None = None
    lease_for: Duration | None = None
    retry: _Retry | None = None
    on_conflict: Literal["replace", "keep", "earliest", "debounce"] = "replace"
    max_wait: Duration | None = None


_DECODER = msgspec.json.Decoder(_Line)
_PLACE = re.compile(r"(?P<problem>.*?)(?: - at `\$\.?(?P<place>[^`]*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>.*)`", re.DOTALL)


def written(found: StoredMessage[bytes]) -> bytes:
    """The line, including its line end. All fields of an offer, but no state: attempts, leases, versions."""
    said = {
        "type": found.type,
        "headers": found.headers,
        "max_attempts": found.own_max_attempts,
        "lease_for": None if found.lease_for is None else found.lease_for.total_seconds(),
        "retry": None if found.retry is None else found.retry.as_data(),
    }
    line = {
        "key": found.key,
        "at": exact(found.due_at),
        "priority": found.priority,
        **{name: value for name, value in said.items() if value is not None},
        **Content(found.payload, found.content_type).offered(),
    }
    return msgspec.json.encode(line) + b"\n"


def read(line: bytes) -> Message[Content]:
    """Raises `InvalidInput` with the problem."""
    try:
        said = _DECODER.decode(line)
    except msgspec.ValidationError as error:
        raise InvalidInput(_problem(str(error))) from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidInput(f"not JSON: {error}"[:200]) from None
    if said.at is not None and said.delay is not None:
        raise InvalidInput("give either at or delay, not both")
    return Message(
        payload=_content(said),
        key=said.key,
        at=None if said.at is None else _instant(said.at),
        after=_span(said.delay, "delay"),
        priority=said.priority,
        type=said.type,
        headers=said.headers,
        lease_for=_span(said.lease_for, "lease_for"),
        max_attempts=said.max_attempts,
        retry=None if said.retry is None else _retry(said.retry),
        conflict=_conflict(said),
    )


def _content(said: _Line) -> Content:
    payload = bytes(said.payload)
    if bool(payload) == (said.payload_base64 is not None):
        raise InvalidInput("give a payload, or a payload_base64, and not both")
    if said.payload_base64 is None:
        if said.content_type is not None:
            raise InvalidInput("content_type goes with payload_base64; a payload is JSON, or text if it is a string")
        return Content.of_value(_value(payload))
    content_type = said.content_type or "application/octet-stream"
    if not _CONTENT_TYPE.fullmatch(content_type):
        raise InvalidInput("content_type is written like text/plain")
    return Content.of_base64(said.payload_base64, content_type)


def _value(payload: bytes) -> Any:
    try:
        return json.loads(payload)  # not msgspec, which rounds integers of more than 64 bits
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"not JSON: {error}"[:200]) from None


def _instant(text: str) -> datetime:
    found = None if text.startswith("+") else moment(text, "at")
    if not isinstance(found, datetime):
        raise InvalidInput("at is an instant, and not a time from now: that is delay", hint=INSTANTS)
    return found


def _span(said: Duration | None, name: str) -> timedelta | None:
    return None if said is None else _length(said, name)


def _length(said: Duration, name: str) -> timedelta:
    if isinstance(said, str):
        return limits.check_delay(duration(said, name), name)
    if not 0 <= said <= limits.LONGEST_DELAY.total_seconds():
        raise InvalidInput(f"{name} must be between 0 seconds and 10 years")
    return timedelta(seconds=said)


def _retry(said: _Retry) -> Retry:
    return Retry(
        initial_for=_length(said.initial_for, "initial_for"),
        factor=said.factor,
        cap_for=_length(said.cap_for, "cap_for"),
        jitter=said.jitter,
    )


def _conflict(said: _Line) -> Conflict:
    max_wait = _span(said.max_wait, "max_wait")
    if (said.on_conflict == "debounce") != (max_wait is not None):
        raise InvalidInput("max_wait goes with on_conflict debounce, and debounce needs it")
    return _CONFLICTS[said.on_conflict]() if max_wait is None else Conflict.debounce(max_wait)


def _problem(text: str) -> str:
    """The msgspec error, with the field first: `priority: Expected …`."""
    found = _PLACE.fullmatch(text)
    problem, place = (text, None) if found is None else (found["problem"], found["place"])
    if unknown := _UNKNOWN.fullmatch(problem):
        problem, place = "this field is not known", ".".join(filter(None, (place, unknown["field"])))
    return f"{place[:100]}: {problem[:300]}" if place else problem[:300]
