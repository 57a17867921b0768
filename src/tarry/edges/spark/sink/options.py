"""Options of the sink, validated where the write is planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from tarry.core import limits
from tarry.core.analytics.bulk_offer import CommitUnit, Rules
from tarry.core.errors import InvalidInput
from tarry.core.messages.model import Conflict, ConflictRule
from tarry.edges.spark.source.options import boolean, dsn_of, positive

OPTIONS = (
    "dsn", "queue", "write_id", "commit", "conflict", "max_wait_s", "payload_format", "payload_limit", "create_queues",
)  # fmt: skip
"""Documented in docs/reference/spark.md."""
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
    """Target queue of all rows; None: the column `queue`."""
    payload_format: PayloadFormat | None = None
    """None: by the type of the column; a string is text."""
    rules: Rules = field(default_factory=Rules)
    payload_limit: int = limits.PAYLOAD_BYTES
    write_id: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        given = {name.lower(): value for name, value in options.items()}
        unknown = sorted(set(given) - set(OPTIONS) - set(_SPARKS_OWN))
        if unknown:
            raise InvalidInput(f"the sink has no option {unknown[0]!r}", hint=f"there are: {', '.join(OPTIONS)}")
        queue = given.get("queue")
        return cls(
            dsn=dsn_of(given),
            queue=None if queue is None else limits.check_queue_name(queue),
            payload_format=_one_of(PayloadFormat, "payload_format", given.get("payload_format")),
            rules=Rules(
                conflict=_conflict(given),
                create_queues=boolean(given, "create_queues") is not False,
                commit=_one_of(CommitUnit, "commit", given.get("commit")) or CommitUnit.WRITE,
            ),
            payload_limit=positive(given, "payload_limit") or limits.PAYLOAD_BYTES,
            write_id=given.get("write_id"),
        )


def _conflict(given: Mapping[str, str]) -> Conflict:
    rule = _one_of(ConflictRule, "conflict", given.get("conflict")) or ConflictRule.REPLACE
    try:
        wait = float(given["max_wait_s"]) if "max_wait_s" in given else None
    except ValueError:
        raise InvalidInput(f"max_wait_s must be a number, not {given['max_wait_s']!r:.80}") from None
    return Conflict(rule, None if wait is None else limits.check_delay(timedelta(seconds=wait), "max_wait_s"))


def _one_of(kind: Any, name: str, value: str | None) -> Any:
    if value is None:
        return None
    try:
        return kind(value.lower())
    except ValueError:
        raise InvalidInput(f"{name} is one of {', '.join(each.value for each in kind)}, not {value!r:.80}") from None
