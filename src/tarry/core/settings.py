"""Settings: frozen, valid at birth, with named presets."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tarry.core import limits
from tarry.core.errors import InvalidInput
from tarry.core.events import JournalLevel
from tarry.core.retry import Retry


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """Settings of one queue. A message, a poll or a handler may have its own: see docs/reference/settings-and-limits.md."""

    lease_for: timedelta = timedelta(seconds=30)
    max_attempts: int | None = None
    """None: a message is tried for as long as it fails."""
    retry: Retry = field(default_factory=Retry)
    journal: JournalLevel = JournalLevel.EVENTS
    retention_for: timedelta = timedelta(days=30)
    """How long the archive keeps this queue's history."""
    target_lag_for: timedelta = timedelta(seconds=60)
    """How late a delivery may be before the queue counts as slow."""

    def __post_init__(self) -> None:
        limits.check_lease_for(self.lease_for)
        limits.check_max_attempts(self.max_attempts)
        limits.check_delay(self.retention_for, "retention_for")
        limits.check_delay(self.target_lag_for, "target_lag_for")
        if not isinstance(self.journal, JournalLevel):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"journal must be a JournalLevel (off, events, payloads), not {self.journal!r:.120}")
        if not isinstance(self.retry, Retry):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"retry must be a tarry.Retry, not {self.retry!r:.120}")
        if self.retry.max_attempts is not None:
            raise InvalidInput("max_attempts of a queue is a setting of its own, not part of its retry policy")

    @classmethod
    def for_http(cls) -> QueueSettings:
        """What a queue gets that was made through the broker: strangers' messages do not fail for ever."""
        return cls(max_attempts=3)

    def as_data(self) -> dict[str, Any]:
        """As JSON says it: durations are seconds."""
        return {
            "lease_for": self.lease_for.total_seconds(),
            "max_attempts": self.max_attempts,
            "retry": self.retry.as_data(),
            "journal": self.journal.value,
            "retention_for": self.retention_for.total_seconds(),
            "target_lag_for": self.target_lag_for.total_seconds(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """A queue as the registry knows it."""

    name: str
    settings: QueueSettings
    created_at: datetime
    paused_at: datetime | None = None
    paused_reason: str | None = None

    @property
    def paused(self) -> bool:
        return self.paused_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a verb keeps trying when the database is away. Only faults that pass by themselves are tried again."""

    retries: int = 5
    initial_for: timedelta = timedelta(milliseconds=100)
    cap_for: timedelta = timedelta(seconds=5)
    total_for: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise InvalidInput("retries must not be negative")
        for name in ("initial_for", "cap_for", "total_for"):
            limits.check_delay(getattr(self, name), name)

    @classmethod
    def none(cls) -> Patience:
        return cls(retries=0)

    def pause(self, failures: int) -> timedelta:
        """The wait after that many failures in a row."""
        return min(self.cap_for, self.initial_for * 2 ** min(max(failures - 1, 0), 30))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """How a store talks to its database."""

    pool_size: int = 10
    patience: Patience = field(default_factory=Patience)
    payload_limit: int = limits.PAYLOAD_BYTES
    scan_every: timedelta = timedelta(milliseconds=500)
    """How often a waiting poll looks again when nothing told it to, and it is not proven that anything would."""
    listening_scan_every: timedelta = timedelta(seconds=60)
    """How often it looks while it is proven that notifications arrive."""
    listen_dsn: str | None = field(default=None, repr=False)
    """Where to listen, if not where the statements go: a way around a pooler that does not pass notifications on."""
    connect_for: timedelta = timedelta(seconds=10)
    """How long to wait for a connection before the database counts as away."""
    lock_for: timedelta = timedelta(seconds=5)
    """How long to wait in all for a row or table that another transaction has locked, before `HeldUp`."""
    notify_with_conn: bool = True
    """Whether what is done with `conn=` wakes waiting consumers. False for two-phase commit: PostgreSQL prepares no
    transaction that has notified. Consumers then find the message at their next scan."""
    statement_for: timedelta | None = timedelta(seconds=60)
    """How long one statement may run, except for COPY, purge and deletion of a queue. None: as the role has it set."""
    create_queues: bool = True
    """Whether a queue that is used before it was created comes into being with the default settings."""

    def __post_init__(self) -> None:
        if self.pool_size < 1:
            raise InvalidInput("pool_size must be at least 1")
        if self.payload_limit < 1:
            raise InvalidInput("payload_limit must be at least 1 byte")
        for name in ("scan_every", "listening_scan_every", "connect_for", "lock_for"):
            if getattr(self, name) <= timedelta(0):
                raise InvalidInput(f"{name} must be positive, got {getattr(self, name)}")

        if self.statement_for is not None and self.statement_for <= timedelta(0):
            raise InvalidInput(f"statement_for must be positive, or None for no limit, got {self.statement_for}")

    @classmethod
    def for_tests(cls) -> StoreSettings:
        return cls(pool_size=4, scan_every=timedelta(milliseconds=20), connect_for=timedelta(seconds=30))


@dataclass(frozen=True, slots=True, kw_only=True)
class SweeperSettings:
    """How a sweeper goes about it."""

    every: timedelta = timedelta(seconds=10)
    """How often the queues are walked; less often while somebody else leads."""
    lead_for: timedelta = timedelta(seconds=30)
    """How long a sweeper that vanished is waited for."""
    upkeep_every: timedelta = timedelta(minutes=1)
    """How often partitions, fingerprints and the health of vacuum are seen to."""
    batch: int = 1_000
    """Rows that one statement walks, for each priority."""
    most_steps: int = 50
    """Statements for one queue in one round; what is left is left to the next."""
    work_for: timedelta = timedelta(seconds=5)
    """How long one round carries redrive jobs on before the queues are looked at again."""
    partition_days: int = 7
    answers_for: timedelta = timedelta(hours=24)
    """How long the answer to a request with an Idempotency-Key is kept, for when it is said again."""

    def __post_init__(self) -> None:
        for name in ("every", "lead_for", "upkeep_every", "work_for", "answers_for"):
            if getattr(self, name) <= timedelta(0):
                raise InvalidInput(f"{name} must be longer than nothing")
        for name in ("batch", "most_steps", "partition_days"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} must be at least 1")
