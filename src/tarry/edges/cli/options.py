"""Options and arguments that several commands share, and their parsers."""

import dataclasses
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from tarry.core.errors import InvalidInput
from tarry.core.messages.retry import Retry
from tarry.edges.cli.exit_codes import Usage
from tarry.edges.cli.help import argument, option
from tarry.edges.formats import delay, moment

T = TypeVar("T")
S = TypeVar("S")
NONE = "none"
"""The value that unsets an optional setting."""


QueueName = Annotated[str, argument("QUEUE", "The queue.")]
Key = Annotated[str, argument("KEY", "The key of the message.")]
Limit = Annotated[int, option("--limit N", "At most this many.", min=1, max=10_000)]
Yes = Annotated[bool, option("--yes -y", "Do not ask for confirmation.")]
DryRun = Annotated[bool, option("--dry-run -n", "Show what would happen, and change nothing.")]
Reason = Annotated[str | None, option("--reason TEXT", "Why; stored and shown.")]
OnlyQueue = Annotated[str | None, option("--queue QUEUE", "Only this queue.")]
Version = Annotated[int | None, option("--version V", "Only if it is still this version.")]
Type = Annotated[str | None, option("--type TYPE", "Only messages of this type.")]
Header = Annotated[list[str] | None, option("--header NAME=VALUE", "May be repeated.")]
Priority = Annotated[int | None, option("--priority N", "0 (last) to 9 (first).")]
Text = Annotated[bool, option("--text", "The payload is text, not JSON.")]
Binary = Annotated[bool, option("--bytes", "The payload is bytes, not JSON.")]
After = Annotated[str | None, option("--after DURATION", "Due after this long: 90s, 1h30m.")]
At = Annotated[str | None, option("--at TIME", "Due at: RFC 3339 with zone, or +10m.")]
LeaseFor = Annotated[str | None, option("--lease-for DURATION", "Length of the lease, 1s to 12h; else the queue's.")]
Lake = Annotated[
    str | None, option("--lake URI", "Path or URI that Spark can write; default: beside the embedded data.")
]
Master = Annotated[str | None, option("--master M", "Spark master; default: SPARK_MASTER, else all local cores.")]
Port = Annotated[int, option("--port N", "Port of the broker; 0 for any free one.", min=0, max=65535)]


_retry = partial(option, panel="Retries")


@dataclasses.dataclass(frozen=True)
class RetryOptions:
    """A retry policy as options; None: not given."""

    retry_initial: Annotated[str | None, _retry("--retry-initial DURATION", "Wait after the first failure.")] = None
    retry_factor: Annotated[float | None, _retry("--retry-factor FACTOR", "Growth of the wait, 1 to 10.")] = None
    retry_cap: Annotated[str | None, _retry("--retry-cap DURATION", "The longest wait.")] = None
    retry_jitter: Annotated[float | None, _retry("--retry-jitter SHARE", "Random cut of a wait, 0 to 1.")] = None

    def retry(self) -> Retry | None:
        """The policy, with defaults of `Retry` for missing options. None if no option was given."""
        return None if self == RetryOptions() else changed(Retry(), self, group="retry_")


def parsed(parse: Callable[[str, str], T], text: str | None, name: str) -> T | None:
    """`parse(text, name)`, or None for an option that was not given."""
    return None if text is None else parse(text, name)


def instant_of(text: str, name: str) -> datetime:
    """An absolute time; `+10m`, a time from now, is refused."""
    at = moment(text, name)
    if isinstance(at, timedelta):
        raise Usage(f"{name} must be an instant, got {text!r:.80}", hint="write it like 2030-01-31T18:00:00Z")
    return at


def one_of(text: str, allowed: Iterable[str], name: str) -> str:
    if text not in allowed:
        raise Usage(f"{name} must be one of {', '.join(allowed)}, got {text!r:.80}")
    return text


def due_of(after: str | None, at: str | None) -> dict[str, Any]:
    """`at` or `after` as the library takes them; empty if neither was given."""
    if after is not None and at is not None:
        raise InvalidInput("give either --after or --at, not both")
    due = parsed(delay, after, "--after") if at is None else moment(at, "--at")
    return {} if due is None else {"at" if isinstance(due, datetime) else "after": due}


def headers_of(pairs: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidInput(f"--header must be NAME=VALUE, got {pair!r:.80}")
        headers[name] = value
    return headers


def changed(settings: S, options: Any, *, flags: bool = True, group: str = "") -> S:
    """The settings with the given `options` replaced.

    An option has the name of its field, with or without `_for` or `_at`; options of a nested value begin with its name.
    `flags`: errors name the option (`--retry-cap`), not the key of a file (`retry_cap`).
    """
    changes: dict[str, Any] = {}
    kinds = get_type_hints(type(settings))
    for field in dataclasses.fields(settings):  # type: ignore[arg-type]
        name = group + field.name
        if not hasattr(options, name):
            name = name.removesuffix("_for").removesuffix("_at")
        current = getattr(settings, field.name)
        if dataclasses.is_dataclass(current):
            changes[field.name] = changed(current, options, flags=flags, group=f"{name}_")
        elif (value := getattr(options, name, None)) is not None:
            shown = f"--{name.replace('_', '-')}" if flags else name
            changes[field.name] = _value(kinds[field.name], value, shown)
    return dataclasses.replace(settings, **changes)  # type: ignore[type-var]


def _value(kind: Any, value: Any, name: str) -> Any:
    """The setting value of an option. Options that are not text were parsed already."""
    kinds = get_args(kind) or (kind,)
    if not isinstance(value, str):
        return value
    if NoneType in kinds and value.lower() == NONE:
        return None
    if timedelta in kinds:
        return delay(value, name)
    if datetime in kinds:
        return instant_of(value, name)
    if int in kinds:
        try:
            return int(value)
        except ValueError:
            raise InvalidInput(f"{name} must be a whole number or {NONE}, got {value!r:.80}") from None
    return value
