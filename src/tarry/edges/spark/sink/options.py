"""The sink's options, validated once, where the write is planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar

from tarry.core import limits
from tarry.core.errors import InvalidInput
from tarry.core.messages import Conflict, ConflictRule
from tarry.core.sinking import Rules
from tarry.edges.env import dsn_from

T = TypeVar("T")

OPTIONS = {
    "dsn": "where the database is; else `TARRY_DSN` or libpq's `PG*` variables, as Spark was started with them",
    "queue": "where all rows go; else the column `queue` says it",
    "write_id": "the name of the write: under one name rows are offered once, however often it is said; else each write is a "
    "new one, and a stream names its batches by its checkpoint",
    "conflict": "what happens to a live message of the same key: `replace` (default), `keep`, `earliest` or `debounce`",
    "max_wait_s": "with `debounce`: how long a message may be put off, in seconds",
    "payload_format": "`json`, `text` or `binary`: what a string or binary payload is; else a string is text, binary is "
    "bytes, anything else becomes JSON",
    "payload_limit": "the most bytes of a payload; 262144 (256 KiB) by default",
    "create_queues": "`true` (default) or `false`: whether a queue that is not there comes into being",
}
"""Names and meanings of the options: used by error messages; a test compares docs/reference/spark.md with them."""
# Options that Spark sets itself, or that users set for Spark.
_SPARKS_OWN = ("path", "checkpointlocation", "queryname")


class PayloadFormat(StrEnum):
    JSON = "json"
    TEXT = "text"
    BINARY = "binary"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    dsn: str
    queue: str | None = None
    """Target of all rows; None: the column `queue`."""
    payload_format: PayloadFormat | None = None
    """None: by the type of the column; a string is text."""
    rules: Rules = field(default_factory=Rules)
    payload_limit: int = limits.PAYLOAD_BYTES
    write_id: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        said = {name.lower(): value for name, value in options.items()}
        unknown = sorted(set(said) - set(OPTIONS) - set(_SPARKS_OWN))
        if unknown:
            raise InvalidInput(f"the sink has no option {unknown[0]!r}", hint=f"there are: {', '.join(OPTIONS)}")
        dsn = said.get("dsn", dsn_from())
        if dsn is None:
            raise InvalidInput("the sink needs the option dsn: which database to write to")
        queue = said.get("queue")
        return cls(
            dsn=dsn,
            queue=None if queue is None else limits.check_queue_name(queue),
            payload_format=_one_of(PayloadFormat, "payload_format", said.get("payload_format")),
            rules=Rules(conflict=_conflict(said), create_queues=_boolean(said, "create_queues", default=True)),
            payload_limit=_payload_limit(said),
            write_id=said.get("write_id"),
        )


def _conflict(said: Mapping[str, str]) -> Conflict:
    rule = _one_of(ConflictRule, "conflict", said.get("conflict")) or ConflictRule.REPLACE
    wait = _number(said, "max_wait_s", float)
    return Conflict(rule, None if wait is None else limits.check_delay(timedelta(seconds=wait), "max_wait_s"))


def _payload_limit(said: Mapping[str, str]) -> int:
    limit = _number(said, "payload_limit", int)
    if limit is not None and limit < 1:
        raise InvalidInput(f"payload_limit must be at least 1, not {limit}")
    return limits.PAYLOAD_BYTES if limit is None else limit


def _one_of(kind: Any, name: str, value: str | None) -> Any:
    if value is None:
        return None
    try:
        return kind(value.lower())
    except ValueError:
        raise InvalidInput(f"{name} is one of {', '.join(each.value for each in kind)}, not {value!r:.80}") from None


def _number(said: Mapping[str, str], name: str, kind: Callable[[str], T]) -> T | None:
    try:
        return kind(said[name]) if name in said else None
    except ValueError:
        raise InvalidInput(f"{name} must be a number, not {said[name]!r:.80}") from None


def _boolean(said: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = said.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise InvalidInput(f"{name} is true or false, not {value!r:.80}")
    return value == "true"
