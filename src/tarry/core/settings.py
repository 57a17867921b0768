"""Settings: frozen dataclasses that validate themselves, with named presets."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta

from tarry.core import limits
from tarry.core.errors import InvalidInput
from tarry.core.journal.events import JournalLevel
from tarry.core.messages.retry import Retry


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """Settings of one queue. Messages, polls and handlers may override some: see docs/reference/settings-and-limits.md."""

    lease_for: timedelta = timedelta(seconds=30)
    max_attempts: int | None = None
    """None: a failing message is retried without limit."""
    retry: Retry = field(default_factory=Retry)
    journal: JournalLevel = JournalLevel.EVENTS
    retention_for: timedelta = timedelta(days=30)
    """How long the archive keeps this queue's history."""
    target_lag_for: timedelta = timedelta(seconds=60)
    """How late a delivery may be before the queue counts as slow."""
    max_depth: int | None = None
    """Number of live messages at which offers of new keys are rejected (`QueueFull`). None: no limit."""
    description: str | None = None
    handler_max_attempts: int | None = None
    """The limit of the handlers, which overrides `max_attempts`; recorded by workers for display."""

    def __post_init__(self) -> None:
        limits.check_lease_for(self.lease_for)
        limits.check_max_attempts(self.max_attempts)
        limits.check_max_attempts(self.handler_max_attempts)
        limits.check_delay(self.retention_for, "retention_for")
        limits.check_delay(self.target_lag_for, "target_lag_for")
        limits.check_max_depth(self.max_depth)
        if self.description is not None:
            limits.check_text(self.description, "a description", limits.DESCRIPTION_LENGTH)
        if not isinstance(self.journal, JournalLevel):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"journal must be a JournalLevel (off, events, payloads), not {self.journal!r:.120}")
        if not isinstance(self.retry, Retry):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"retry must be a tarry.Retry, not {self.retry!r:.120}")
        if self.retry.max_attempts is not None:
            raise InvalidInput("max_attempts of a queue is a separate setting, not part of its retry policy")

    @classmethod
    def for_relay(cls) -> QueueSettings:
        """For queues created by Relay's routes: three attempts, as in Relay."""
        return cls(max_attempts=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """A queue: its name, settings and whether it is paused."""

    name: str
    settings: QueueSettings
    created_at: datetime
    updated_at: datetime
    """Last change of settings, name or pause."""
    paused_at: datetime | None = None
    paused_reason: str | None = None

    @property
    def paused(self) -> bool:
        return self.paused_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """How often and how long an operation is retried while the database is unavailable. Only transient errors are retried."""

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
    def none(cls) -> RetrySettings:
        return cls(retries=0)

    def pause(self, failures: int) -> timedelta:
        return min(self.cap_for, self.initial_for * 2 ** min(max(failures - 1, 0), 30))

    def is_over(self, failures: int, spent_s: float) -> bool:
        """Whether to stop after this many failures; `spent_s`: time until the next try would begin."""
        return failures > self.retries or spent_s > self.total_for.total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """How a store uses its database."""

    pool_size: int = 10
    connection_retry: RetrySettings = field(default_factory=RetrySettings)
    payload_limit: int = limits.PAYLOAD_BYTES
    scan_every: timedelta = timedelta(milliseconds=500)
    """Interval at which a waiting poll checks for messages while notifications are not proven to arrive."""
    listening_scan_every: timedelta = timedelta(seconds=60)
    """The same interval while notifications are proven to arrive."""
    listen_dsn: str | None = field(default=None, repr=False)
    """Another DSN for LISTEN: bypasses a pooler that does not forward notifications."""
    connect_for: timedelta = timedelta(seconds=10)
    """How long to wait for a connection before the database counts as unavailable."""
    lock_for: timedelta = timedelta(seconds=5)
    """Total wait for rows and tables that other transactions have locked, before `LockTimeout`."""
    notify_with_conn: bool = True
    """Whether operations with `conn=` notify waiting consumers. False for two-phase commit: PostgreSQL cannot prepare a
    transaction that has notified. Consumers then find the message at their next scan."""
    statement_for: timedelta | None = timedelta(seconds=60)
    """Time limit of one statement, except for COPY, purge and deletion of a queue. None: the setting of the role."""
    create_queues: bool = True
    """Whether the first use of an unknown queue creates it with default settings."""

    def __post_init__(self) -> None:
        limits.check_positive(self, "pool_size", "payload_limit", "scan_every", "listening_scan_every")
        limits.check_positive(self, "connect_for", "lock_for", "statement_for")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweeperSettings:
    """How often and how much a sweeper works."""

    every: timedelta = timedelta(seconds=10)
    """How often the queues are swept; less often while another process leads."""
    lead_for: timedelta = timedelta(seconds=30)
    """The leader's lease: how long the others wait after a leader has crashed."""
    maintain_every: timedelta = timedelta(minutes=1)
    """How often partitions, journal retention, fingerprints and vacuum are checked."""
    batch: int = 1_000
    """Maximum number of rows that one statement scans per priority."""
    most_steps: int = 50
    """Maximum number of statements for one queue in one round; the next round continues."""
    work_for: timedelta = timedelta(seconds=5)
    """Time limit per round for each of redrive jobs, bulk jobs and rollups."""
    partition_days: int = 7
    responses_for: timedelta = timedelta(hours=24)
    """How long responses to requests with an Idempotency-Key are stored."""

    def __post_init__(self) -> None:
        limits.check_positive(self, *(field.name for field in fields(self)))
