"""The settings of a queue as options: the same for `queue create` and `queue edit`."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import typer

from tarry.core.errors import InvalidInput
from tarry.core.events import JournalLevel
from tarry.core.settings import QueueSettings
from tarry.edges.times import delay, duration


class JournalName(StrEnum):
    OFF = "off"
    EVENTS = "events"
    PAYLOADS = "payloads"


_PANEL = "Settings"

Lease = Annotated[
    str | None,
    typer.Option("--lease", metavar="DURATION", help="How long a delivery is held, 1s to 12h.", rich_help_panel=_PANEL),
]
MaxAttempts = Annotated[
    str | None,
    typer.Option(
        "--max-attempts", metavar="N|none", help="Deliveries before it is dead; none: no limit.", rich_help_panel=_PANEL
    ),
]
RetryInitial = Annotated[
    str | None,
    typer.Option("--retry-initial", metavar="DURATION", help="Wait after the first failure.", rich_help_panel=_PANEL),
]
RetryFactor = Annotated[
    float | None,
    typer.Option("--retry-factor", metavar="FACTOR", help="Growth of the wait, 1 to 10.", rich_help_panel=_PANEL),
]
RetryCap = Annotated[
    str | None, typer.Option("--retry-cap", metavar="DURATION", help="The longest wait.", rich_help_panel=_PANEL)
]
RetryJitter = Annotated[
    float | None,
    typer.Option(
        "--retry-jitter", metavar="SHARE", help="Random part taken off a wait, 0 to 1.", rich_help_panel=_PANEL
    ),
]
Journal = Annotated[
    JournalName | None,
    typer.Option("--journal", metavar="LEVEL", help="off, events or payloads.", rich_help_panel=_PANEL),
]
Retention = Annotated[
    str | None,
    typer.Option("--retention", metavar="DURATION", help="How long history is kept.", rich_help_panel=_PANEL),
]
TargetLag = Annotated[
    str | None,
    typer.Option("--target-lag", metavar="DURATION", help="Lateness that counts as slow.", rich_help_panel=_PANEL),
]


class Given(NamedTuple):
    """As typed; None was not said."""

    lease: str | None = None
    max_attempts: str | None = None
    retry_initial: str | None = None
    retry_factor: float | None = None
    retry_cap: str | None = None
    retry_jitter: float | None = None
    journal: JournalName | None = None
    retention: str | None = None
    target_lag: str | None = None


def created(given: Given) -> QueueSettings:
    settings = QueueSettings()
    return dataclasses.replace(settings, **changes(given, settings))


def changes(given: Given, current: QueueSettings) -> dict[str, Any]:
    """The settings that were named, checked; the parts of the retry policy that were not named stay as they are."""
    found: dict[str, Any] = {}
    if given.lease is not None:
        found["lease_for"] = duration(given.lease, "--lease")
    if given.max_attempts is not None:
        found["max_attempts"] = _max_attempts(given.max_attempts)
    retry: dict[str, Any] = {}
    if given.retry_initial is not None:
        retry["initial_for"] = delay(given.retry_initial, "--retry-initial")
    if given.retry_factor is not None:
        retry["factor"] = given.retry_factor
    if given.retry_cap is not None:
        retry["cap_for"] = delay(given.retry_cap, "--retry-cap")
    if given.retry_jitter is not None:
        retry["jitter"] = given.retry_jitter
    if retry:
        found["retry"] = dataclasses.replace(current.retry, **retry)
    if given.journal is not None:
        found["journal"] = JournalLevel(given.journal.value)
    if given.retention is not None:
        found["retention_for"] = delay(given.retention, "--retention")
    if given.target_lag is not None:
        found["target_lag_for"] = delay(given.target_lag, "--target-lag")
    return found


def _max_attempts(text: str) -> int | None:
    if text.lower() == "none":
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(f"--max-attempts is a whole number or none, not {text!r:.80}") from None
