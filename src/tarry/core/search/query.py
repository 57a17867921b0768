"""The query language for messages: `queue:orders state:ready attempts:>3 error:~timeout due:<+1h payload.user.id:42`.

All terms must match. A word without a qualifier is a key prefix. Values with spaces are quoted.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, cast

import msgspec

from tarry.core import durations, limits
from tarry.core.errors import InvalidInput
from tarry.core.messages.states import State
from tarry.core.search.hits import Hit

LONGEST = 400
"""Maximum length of a query, in characters."""
MOST_TERMS = 20
QUALIFIERS: Mapping[str, str] = {
    "id": "id:1234, the version of a message",
    "queue": "queue:orders",
    "key": "key:order-17, or key:order-* for all that begin so",
    "state": "state:delayed, ready, leased, dead or done",
    "type": "type:invoice",
    "consumer": "consumer:worker-1",
    "attempts": "attempts:>3",
    "priority": "priority:>=5",
    "due": "due:<+1h, due:<-30s for what is late, or an instant",
    "lag": "lag:>30s, from when it was due until it was delivered, or until now",
    "created": "created:>-2h, or an instant",
    "error": "error:~timeout",
    "trace": "trace:4bf92f3577b34da6a3ce929d0e0e4736, or its beginning",
    "payload": "payload.user.id:42",
}
"""Each qualifier with an example."""
_TERM = re.compile(
    r'(?P<name>[A-Za-z_]+(?:\.[^\s:"]+)?):(?P<value>"(?:[^"\\]|\\.)*"|~"(?:[^"\\]|\\.)*"|[^\s"]*)(?=\s|$)'
)
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"(?=\s|$)|[^\s"]+(?=\s|$)')
_COMPARED = re.compile(r"(>=|<=|>|<|=)?(.*)", re.DOTALL)
_BEHIND_ALL = "\U0010ffff"


class Term(NamedTuple):
    """One term as written. `name`: its qualifier; empty for a word."""

    text: str
    name: str
    value: str


class Span(NamedTuple):
    """From `low` to `high`, both inclusive; None: no bound."""

    low: int | None = None
    high: int | None = None

    def __contains__(self, value: object) -> bool:
        return (
            isinstance(value, int)
            and (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
        )


class Period(NamedTuple):
    """From `since` (inclusive) to `until` (exclusive); None: no bound."""

    since: datetime | None = None
    until: datetime | None = None

    def __contains__(self, at: object) -> bool:
        return (
            isinstance(at, datetime)
            and (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
        )


class LagSpan(NamedTuple):
    """At least `least` and less than `below`; counted until `now` for undelivered messages. Without `now`: no bound."""

    now: datetime | None = None
    least: timedelta = timedelta(0)
    below: timedelta = timedelta.max

    def __contains__(self, hit: object) -> bool:
        if self.now is None:
            return True
        if not isinstance(hit, Hit) or hit.state is State.DEAD:
            return False
        is_delivered = hit.state in (State.LEASED, State.DONE)
        until = hit.leased_at if is_delivered else self.now
        return until is not None and self.least <= until - hit.due_at < self.below


ANY: Final = Span()
ANY_LAG: Final = LagSpan()
EVER: Final = Period()


class PayloadTerm(NamedTuple):
    path: tuple[str, ...]
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Conditions on a message. Absent fields do not restrict."""

    queue: str | None = None
    version: int | None = None
    key: str | None = None
    key_prefix: str | None = None
    state: State | None = None
    type: str | None = None
    consumer: str | None = None
    error: str | None = None
    """Substring of the last error, ignoring case."""
    attempts: Span = ANY
    priority: Span = ANY
    due: Period = EVER
    created: Period = EVER
    lag: LagSpan = ANY_LAG
    trace: str | None = None
    """Prefix of a trace id."""
    payload: tuple[PayloadTerm, ...] = ()
    terms: tuple[Term, ...] = field(default=(), compare=False)

    @property
    def keys(self) -> tuple[str, str] | None:
        """The key range (end exclusive), if keys are restricted."""
        if self.key is not None:
            return self.key, self.key + "\x01"
        return None if self.key_prefix is None else (self.key_prefix, self.key_prefix + _BEHIND_ALL)

    def admits(self, hit: Hit) -> bool:
        """Check all terms except queue, state and payload, for hits that SQL did not filter."""
        return (
            self.key in (None, hit.key)
            and self.version in (None, hit.version)
            and (self.trace is None or (hit.trace or "").startswith(self.trace))
            and hit in self.lag
            and (self.key_prefix is None or hit.key.startswith(self.key_prefix))
            and self.type in (None, hit.type)
            and self.consumer in (None, hit.consumer)
            and (self.error is None or self.error.lower() in (hit.error or "").lower())
            and hit.attempt in self.attempts
            and hit.priority in self.priority
            and hit.due_at in self.due
            and (self.created == EVER or hit.created_at in self.created)
        )

    def admits_payload(self, payload: bytes) -> bool:
        if not self.payload:
            return True
        try:
            value = msgspec.json.decode(payload)
        except msgspec.DecodeError:
            return False
        return all(_has(value, term.path, term.value) for term in self.payload)


def parse(text: str, now: datetime) -> Search:
    """Raises `InvalidInput` that names the qualifier. `now`: the base of relative times such as `-2h`."""
    if len(text) > LONGEST:
        raise InvalidInput(f"a search has at most {LONGEST} characters, got {len(text):,}")
    if "\x00" in text:
        raise InvalidInput("a search must not contain NUL (U+0000)")
    terms = _terms(text)
    if len(terms) > MOST_TERMS:
        raise InvalidInput(f"a search has at most {MOST_TERMS} terms, got {len(terms)}")
    search = Search(terms=tuple(terms))
    seen: set[str] = set()
    for term in terms:
        name = term.name or "key"
        if name in seen and name not in _REPEATED and not name.startswith("payload."):
            hint = 'quote a key that contains spaces: "two words"' if not term.name else "all terms must hold together"
            raise InvalidInput(f"{name}: is there twice", hint=hint)
        seen.add(name)
        if not term.value:
            example = QUALIFIERS[name.partition(".")[0]]
            raise InvalidInput(f"{name}: has no value", hint=f"for example {example}")
        search = _with(search, term, now)
    return search


def without(search: Search, term: Term) -> str:
    """The query without one of its terms."""
    return " ".join(other.text for other in search.terms if other is not term)


def quoted(value: str) -> str:
    """A value, quoted for use in a term."""
    if _WORD.fullmatch(value) and not value.startswith(('"', "~")):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _terms(text: str) -> list[Term]:
    terms: list[Term] = []
    at, rest = 0, text.rstrip()
    while at < len(rest):
        if rest[at].isspace():
            at += 1
            continue
        if match := _TERM.match(rest, at):
            name = match["name"]
            head = name.partition(".")[0].lower()
            if head not in QUALIFIERS or (head != "payload" and "." in name):
                known = ", ".join(QUALIFIERS)
                hint = f'there are {known}; quote a key that contains a colon: "{match[0][:60]}"'
                raise InvalidInput(f"{name[:40]}: there is no such qualifier", hint=hint)
            if name == "payload":
                raise InvalidInput("payload: needs the name of a field", hint="for example payload.user.id:42")
            name = head if head != "payload" else f"payload{name[len('payload') :]}"
            terms.append(Term(match[0], name, _unquoted(match["value"])))
        elif match := _WORD.match(rest, at):
            terms.append(Term(match[0], "", _unquoted(match[0])))
        else:
            raise InvalidInput(
                f"this cannot be read: {rest[at : at + 40]!r}", hint='a quotation ends with " and a space'
            )
        at = match.end()
    return terms


def _unquoted(value: str) -> str:
    part, text = ("~", value[1:]) if value.startswith('~"') else ("", value)
    return part + (re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text)


def _with(search: Search, term: Term, now: datetime) -> Search:
    name, value = term.name, term.value
    match name:
        case "":
            return replace(search, key_prefix=value.removesuffix("*") or None)
        case "key" if value.endswith("*"):
            return replace(search, key_prefix=value[:-1] or None)
        case "key" | "type" | "consumer":
            return replace(search, **{name: value})
        case "id":
            return replace(search, version=_version(value))
        case "trace":
            return replace(search, trace=_trace(value))
        case "lag":
            return replace(search, lag=_lag(value, search.lag._replace(now=now)))
        case "queue":
            return replace(search, queue=_queue(value))
        case "state":
            return replace(search, state=_state(value))
        case "error":
            return replace(search, error=value.removeprefix("~") or None)
        case "attempts" | "priority":
            return replace(search, **{name: _span(name, value, getattr(search, name))})
        case "due" | "created":
            return replace(search, **{name: _period(name, value, getattr(search, name), now)})
        case _:
            return replace(search, payload=(*search.payload, PayloadTerm(_path(name), value)))


def _queue(value: str) -> str:
    try:
        return limits.check_queue_name(value)
    except InvalidInput as error:
        raise InvalidInput(f"queue: {error.message}") from None


def _version(value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 19):
        raise InvalidInput(f"id: {value!r:.40} is not the version of a message", hint="for example id:1234")
    return int(value)


def _trace(value: str) -> str:
    trace = value.lower()
    if len(trace) > 32 or not set(trace) <= set("0123456789abcdef"):
        raise InvalidInput(
            f"trace: {value!r:.40} is not the beginning of a trace id", hint="it has 32 of the characters 0-9 and a-f"
        )
    return trace


def _lag(value: str, lag: LagSpan) -> LagSpan:
    compare, text = _compared(value)
    try:
        bound = durations.delay(text, "lag")
    except InvalidInput:
        raise InvalidInput(f"lag: {text!r:.40} is not a duration", hint="for example lag:>30s") from None
    match compare:
        case ">" | ">=":
            return lag._replace(least=bound)
        case "<" | "<=":
            return lag._replace(below=bound)
        case _:
            raise InvalidInput("lag: begins with < or >", hint="for example lag:>30s")


def _state(value: str) -> State:
    try:
        return State(value.lower())
    except ValueError:
        known = ", ".join(state.value for state in State)
        raise InvalidInput(f"state: must be one of {known}, not {value!r:.40}") from None


def _path(name: str) -> tuple[str, ...]:
    path = tuple(name.removeprefix("payload.").split("."))
    if not all(path):
        raise InvalidInput(f"{name}: has an empty field", hint="for example payload.user.id:42")
    return path


def _span(name: str, value: str, span: Span) -> Span:
    compare, text = _compared(value)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidInput(f"{name}: {text!r:.40} is not a number", hint=f"for example {QUALIFIERS[name]}")
    number = int(text)
    match compare:
        case ">" | ">=":
            return span._replace(low=number + (compare == ">"))
        case "<" | "<=":
            return span._replace(high=number - (compare == "<"))
        case _:
            return Span(number, number)


def _period(name: str, value: str, period: Period, now: datetime) -> Period:
    compare, text = _compared(value)
    at = _instant(name, text, now)
    match compare:
        case ">" | ">=":
            return period._replace(since=at)
        case "<" | "<=":
            return period._replace(until=at)
        case _:
            raise InvalidInput(f"{name}: begins with < or >", hint=f"for example {QUALIFIERS[name]}")


def _instant(name: str, text: str, now: datetime) -> datetime:
    if text == "now":
        return now
    try:
        if text.startswith("-"):
            return now - durations.delay(text[1:], name)
        at = durations.moment(text, name)
    except InvalidInput as error:
        hint = f"for example {QUALIFIERS[name]} such as {now:%Y-%m-%dT%H:%MZ}"
        raise InvalidInput(f"{name}: {text!r:.40} is not a time", hint=error.hint and hint) from None
    return now + at if isinstance(at, timedelta) else at


def _compared(value: str) -> tuple[str, str]:
    match = _COMPARED.fullmatch(value)
    return ("", value) if match is None else (match[1] or "", match[2])


_REPEATED = frozenset({"attempts", "priority", "due", "created", "lag"})
"""Qualifiers that may occur twice, for both ends of a range."""


def _has(value: Any, path: tuple[str, ...], sought: str) -> bool:
    for name in path:
        if isinstance(value, dict):
            value = cast("dict[str, Any]", value).get(name, _ABSENT)
        elif isinstance(value, list):
            items = cast("list[Any]", value)
            is_index = name.isascii() and name.isdigit() and len(name) < 6 and int(name) < len(items)
            value = items[int(name)] if is_index else _ABSENT
        else:
            return False
    if isinstance(value, str):
        return value == sought
    return (
        value is not _ABSENT and not isinstance(value, (dict, list)) and msgspec.json.encode(value).decode() == sought
    )


_ABSENT: Final = object()
