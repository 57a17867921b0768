"""Results of handlers: hooks, log lines and the final summary."""

import logging
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

from tarry.core.errors import InvalidInput
from tarry.services.worker.signatures import AnyDelivery

_log = logging.getLogger("tarry.worker")


class HandlerResult(Enum):
    """How the handling of one delivery ended."""

    ACKED = "acked"
    FAILED = "failed"
    """Retried later, or dead if it was the last attempt."""
    BURIED = "buried"
    SNOOZED = "snoozed"
    RELEASED = "released"
    SETTLED = "settled"
    """The handler itself called a verb of the delivery."""
    LOST = "lost"
    """The lease was lost and the result discarded."""


_TROUBLE = (HandlerResult.FAILED, HandlerResult.BURIED, HandlerResult.LOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """One handled delivery. `late_s`: due → leased, by the database's clock."""

    delivery: AnyDelivery
    queue: str
    handler: str
    result: HandlerResult
    took_s: float
    started: bool = True
    """False: the payload could not be decoded, so the handler was not called."""
    error: BaseException | None = None
    detail: str | None = None
    dead: bool = False
    """The message is a dead letter: it was buried, or this was its last attempt."""
    next_at: datetime | None = None
    """When a failed message is due again."""

    @property
    def late_s(self) -> float:
        return max(0.0, (self.delivery.leased_at - self.delivery.due_at).total_seconds())

    @property
    def fields(self) -> dict[str, Any]:
        """The fields, for structured logs."""
        return {
            "queue": self.queue,
            "key": self.delivery.key,
            "type": self.delivery.type,
            "attempt": self.delivery.attempt,
            "handler": self.handler,
            "ending": self.result.value,
            "took_s": round(self.took_s, 6),
            "late_s": round(self.late_s, 6),
            "error": self.why,
            "dead": self.dead,
            "next_at": self.next_at and self.next_at.isoformat(),
        }

    @property
    def why(self) -> str | None:
        # Not str(error), which may raise.
        return self.detail or (traceback.format_exception_only(self.error)[-1].strip() if self.error else None)

    def __str__(self) -> str:
        text = f"{self.queue} {self.delivery.key} attempt {self.delivery.attempt}: {self.result.value}"
        text = f"{text} after {self.took_s:.3f} s"
        if self.dead:
            text += ", now a dead letter"
        elif self.next_at is not None:
            text += f", next attempt at {self.next_at:%Y-%m-%dT%H:%M:%SZ}"
        return text + (f": {self.why}" if self.why else "")


@dataclass(slots=True)
class Totals:
    endings: Counter[HandlerResult] = field(default_factory=Counter[HandlerResult])
    released: int = 0
    """Leased, never started, and released."""
    dead: int = 0

    def add(self, results: list[HandlerResult]) -> None:
        for result in HandlerResult:  # counted by identity: an enum member's hash is computed in Python
            if count := results.count(result):
                self.endings[result] += count

    def __str__(self) -> str:
        failures = (HandlerResult.FAILED, HandlerResult.BURIED)  # last: what became of them follows
        order = [result for result in HandlerResult if result not in failures]
        text = ", ".join(f"{n:,} {result.value}" for result in (*order, *failures) if (n := self.endings[result]))
        failed = sum(self.endings[result] for result in failures)
        return (
            f"{text}: {failed - self.dead:,} to be retried, {self.dead:,} dead" if failed else text or "nothing to do"
        )


class Hooks:
    """The user's observer functions. Their exceptions are logged and affect nothing else."""

    def __init__(self) -> None:
        self._on: dict[str, list[Callable[[Any], None]]] = {"started": [], "finished": []}
        self.middleware: list[Callable[[AnyDelivery], AbstractContextManager[Any]]] = []

    def add(self, event: str, call: Callable[[Any], None]) -> None:
        if event not in self._on:
            raise InvalidInput(f"events of a worker are {' and '.join(self._on)}, not {event!r:.60}")
        self._on[event].append(call)

    def started(self, delivery: AnyDelivery) -> None:
        if self._on["started"]:
            self._notify("started", delivery)

    def is_interested(self, result: HandlerResult) -> bool:
        """Whether `finished` has anything to do; if not, no `Handled` is created."""
        return bool(self._on["finished"]) or result in _TROUBLE or _log.isEnabledFor(logging.DEBUG)

    def finished(self, handled: Handled) -> None:
        level = logging.WARNING if handled.result in _TROUBLE else logging.DEBUG
        if _log.isEnabledFor(level):
            _log.log(level, "%s", handled, extra={"fields": handled.fields}, exc_info=handled.error)
        self._notify("finished", handled)

    def _notify(self, event: str, subject: Any) -> None:
        for call in self._on[event]:
            try:
                call(subject)
            except Exception:
                _log.exception("a hook of the worker failed: %s", getattr(call, "__qualname__", call))
