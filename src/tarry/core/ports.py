"""The interface of a store: its roles, and how their operations run. `tests/contracts` checks it."""

import builtins
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol, TypeVar

from tarry.core.analytics.port import AnalyticsRole
from tarry.core.cron.model import DueCount, ScheduleChange, ScheduleState, TickRecord
from tarry.core.dead_letters.redrive import (
    EVERY_LETTER,
    DeadFilter,
    DeadGroup,
    DeadPosition,
    Matching,
    RedriveJob,
    RedriveOptions,
    RedriveState,
)
from tarry.core.journal.events import Event
from tarry.core.journal.positions import EventPage
from tarry.core.maintenance.database import DatabaseStatus
from tarry.core.maintenance.leadership import Leadership
from tarry.core.maintenance.sweeping import Partitions, PrunedDay, SweepCursor, Swept, VacuumProblem
from tarry.core.messages.edits import Edit
from tarry.core.messages.model import (
    DEFAULT_POLL,
    EVERYTHING,
    BuryReason,
    Counts,
    DeadLetter,
    Decode,
    Draft,
    Failure,
    Filter,
    Lease,
    LeaseId,
    PollOptions,
    StoredMessage,
)
from tarry.core.messages.outcomes import Edited, Outcome, Settled
from tarry.core.messages.retry import Retry
from tarry.core.messages.states import State
from tarry.core.operation import Operation
from tarry.core.rollups.port import RollupsRole
from tarry.core.search.port import SearchRole
from tarry.core.security.api_keys import ApiKey
from tarry.core.security.audit import Audited, AuditEntry
from tarry.core.security.idempotency import AsyncIdempotentCall, IdempotencyKey, StoredResponse
from tarry.core.settings import QueueInfo, QueueSettings, StoreSettings
from tarry.core.wakeup.wait_queue import WaitHint, WaitQueue
from tarry.core.workers.port import WorkersRole

P = TypeVar("P")
R = TypeVar("R")


class MessagesRole(Protocol):
    """The live messages of a queue."""

    def offer(self, queue: str, draft: Draft) -> Operation[Outcome]: ...
    def offer_many(self, queue: str, drafts: Sequence[Draft]) -> Operation[builtins.list[Outcome]]:
        """All or none, with one outcome per draft."""
        ...

    def poll(
        self, queue: str, n: int, decode: Decode[P], options: PollOptions = DEFAULT_POLL
    ) -> Operation[builtins.list[Lease[P]]]:
        """Lease at most `n` messages, by priority, due time and version. Undecodable messages are buried."""
        ...

    def ack(self, queue: str, lease_ids: Sequence[LeaseId]) -> Operation[builtins.list[Settled]]: ...
    def nack(
        self, queue: str, failures: Sequence[Failure], *, retry: Retry | None = None
    ) -> Operation[builtins.list[Settled]]:
        """`retry` overrides the queue's policy and attempt limit, but not the message's."""
        ...

    def touch(
        self, queue: str, lease_ids: Sequence[LeaseId], *, lease_for: timedelta | None = None
    ) -> Operation[builtins.list[Settled]]: ...
    def release(
        self,
        queue: str,
        lease_ids: Sequence[LeaseId],
        *,
        due_at: datetime | None = None,
        after: timedelta | None = None,
    ) -> Operation[builtins.list[Settled]]:
        """Ready immediately; or due at an instant, or after a delay by the store's clock (not both)."""
        ...

    def bury(
        self, queue: str, lease_ids: Sequence[LeaseId], *, error: str | None = None, reason: BuryReason = "buried"
    ) -> Operation[builtins.list[Settled]]: ...
    def bury_by_key(
        self, queue: str, key: str, *, error: str | None = None, version: int | None = None, force: bool = False
    ) -> Operation[Edited]:
        """Bury a message without its lease. `version` and `force` as in `edit`."""
        ...

    def edit(
        self, queue: str, key: str, edit: Edit, *, version: int | None = None, force: bool = False
    ) -> Operation[Edited]:
        """Store a new version with the same number of attempts, which voids a lease on the old one. If that lease is still
        valid, the edit must be forced, and its attempt does not count, as after a release. `version`: only if unchanged."""
        ...

    def drop(
        self, queue: str, key: str, *, version: int | None = None, unless_leased: bool = False
    ) -> Operation[bool]: ...
    def purge(self, queue: str) -> Operation[int]: ...
    def read(self, queue: str, key: str) -> Operation[StoredMessage[bytes] | None]: ...
    def contains(self, queue: str, key: str) -> Operation[bool]: ...
    def list(
        self, queue: str, *, state: State | None = None, limit: int = 100, filter: Filter = EVERYTHING
    ) -> Operation[builtins.list[StoredMessage[bytes]]]: ...


class QueuesRole(Protocol):
    def create(self, name: str, settings: QueueSettings, *, exist_ok: bool) -> Operation[QueueInfo]: ...
    def edit(self, name: str, settings: QueueSettings, *, only: frozenset[str]) -> Operation[QueueInfo]:
        """Change the settings named in `only`; concurrent edits of other settings are kept."""
        ...

    def rename(self, name: str, new_name: str) -> Operation[QueueInfo]: ...
    def delete(self, name: str, *, force: bool) -> Operation[None]: ...
    def info(self, name: str) -> Operation[QueueInfo]: ...
    def infos(self) -> Operation[list[QueueInfo]]: ...
    def counts(self, name: str, *, limit: int = 10_000) -> Operation[Counts]: ...
    def pause(self, name: str, *, reason: str | None = None) -> Operation[QueueInfo]: ...
    def resume(self, name: str) -> Operation[QueueInfo]: ...
    def now(self) -> Operation[datetime]:
        """The current time by the store's clock."""
        ...


class WakeupRole(Protocol):
    @property
    def wait_queue(self) -> WaitQueue: ...
    def announce(self, queue: str, *, sleep_for: timedelta, type: str | None = None) -> Operation[WaitHint]:
        """Register a consumer that is about to sleep for at most `sleep_for`. The hint contains the time until a message
        is due, and how long the wait queue is notified of earlier messages."""
        ...


class DeadLettersRole(Protocol):
    """Dead letters and redrive jobs; any process may advance a job step by step.

    With `leadership`, an operation has an effect only while that leadership is valid."""

    def list(
        self, queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 100, before: DeadPosition | None = None
    ) -> Operation[builtins.list[DeadLetter[bytes]]]: ...
    def groups(self, queue: str, *, limit: int = 100, cap: int = 10_000) -> Operation[builtins.list[DeadGroup]]:
        """At most `limit` groups by fingerprint, each counted up to `cap`."""
        ...

    def count(self, queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 10_000) -> Operation[Matching]: ...
    def redrive(self, queue: str, *, versions: Sequence[int] | None = None, limit: int = 1000) -> Operation[int]: ...
    def discard(self, queue: str, *, where: DeadFilter = EVERY_LETTER) -> Operation[int]: ...
    def start_redrive(self, queue: str, options: RedriveOptions) -> Operation[RedriveJob]: ...
    def redrive_job(self, job: int) -> Operation[RedriveJob | None]: ...
    def redrive_jobs(self, queue: str | None = None, *, limit: int = 100) -> Operation[builtins.list[RedriveJob]]: ...
    def turn_redrive(self, job: int, state: RedriveState, *, reason: str | None = None) -> Operation[RedriveJob]:
        """Pause, resume or cancel an unfinished job."""
        ...

    def advance_redrive(
        self, job: int | None = None, *, leadership: Leadership | None = None
    ) -> Operation[RedriveJob | None]:
        """Run one step of this job, or of the job that has waited longest. None: no step is due."""
        ...

    def next_redrive_in(self) -> Operation[timedelta | None]:
        """Time until the next step of a running job; None: no job is running."""
        ...

    def label(self, *, limit: int = 1000, leadership: Leadership | None = None) -> Operation[int]:
        """Add fingerprints to dead letters without one; returns how many."""
        ...


class CronRole(Protocol):
    def schedules(self, name: str | None = None) -> Operation[list[ScheduleState]]:
        """The schedule of this name, if it exists, or all schedules by name."""
        ...

    def due(self, owned: Sequence[str], *, limit: int = 1000) -> Operation[list[ScheduleState]]:
        """Schedules that need a scheduler now. `owned`: names whose payloads the caller can generate."""
        ...

    def next_wake_in(self, owned: Sequence[str]) -> Operation[timedelta | None]:
        """Time until a schedule needs a scheduler; negative if one is overdue, None if none ever will."""
        ...

    def apply_changes(self, changes: Sequence[ScheduleChange], *, together: bool = True) -> Operation[list[bool]]:
        """Apply changes, each to a different schedule, in one transaction. False: the schedule has changed since it was read,
        so this change was not applied, or none with `together`. Without `together`, a change that only moves a schedule does
        not wait for a lock on it, and is False as well."""
        ...

    def ticks(
        self, name: str, *, since: datetime | None = None, until: datetime | None = None, limit: int = 100
    ) -> Operation[list[TickRecord]]:
        """The ledger of a schedule, newest first."""
        ...

    def waiting_ticks(self, name: str) -> Operation[list[TickRecord]]:
        """Ticks of any configuration whose messages are undelivered."""
        ...

    def forget_ticks(self, before: datetime) -> Operation[int]:
        """Delete a batch of old ledger entries; returns how many."""
        ...

    def due_counts(self, since: datetime, until: datetime, every: timedelta) -> Operation[list[DueCount]]: ...


class JournalRole(Protocol):
    def timeline(self, queue: str, key: str, *, limit: int = 1000, before: int | None = None) -> Operation[list[Event]]:
        """The last `limit` events of a key, oldest first; `before`: only events before this id."""
        ...

    def tail(
        self, after: str | None, *, until: str | None = None, limit: int = 1_000, most: int = 20_000
    ) -> Operation[EventPage]:
        """Events committed after a position, without payloads; None: no events, only the current position.

        `until`: an upper bound, the position of a complete page. A position with more than `most` events after it is
        rejected as too far back."""
        ...


class SecurityRole(Protocol):
    """API keys, the audit log, and stored responses of idempotency keys."""

    def add_key(self, key: ApiKey, *, expires_for: timedelta | None) -> Operation[ApiKey]:
        """Store a key that expires after `expires_for`, at the latest at `key.expires_at`."""
        ...

    def keys(self, ids: Sequence[str] | None = None) -> Operation[list[ApiKey]]: ...
    def revoke_key(self, id: str) -> Operation[ApiKey | None]: ...
    def audit(self, entry: AuditEntry) -> Operation[int]:
        """Record an action before it begins; returns the id for `audited`."""
        ...

    def audited(self, id: int, status: int, *, detail: Mapping[str, Any] | None = None) -> Operation[None]:
        """Record the result of an action; `detail` is added to the row's."""
        ...

    def audits(
        self, *, limit: int = 100, before: int | None = None, actor: str | None = None, action: str | None = None
    ) -> Operation[list[Audited]]:
        """Newest first; `before`: only rows before this id. `actor` and `action` match substrings, ignoring case, in the
        preceding `AUDITS_SEARCHED` rows."""
        ...

    def offer_idempotent(
        self, queue: str, draft: Draft, request: IdempotencyKey, show: Callable[[Outcome], StoredResponse]
    ) -> Operation[StoredResponse | None]:
        """Offer and store the response that `show` returns for the outcome, or return the stored response. None: the key was
        used for another request."""
        ...

    def forget_responses(
        self, older_than: timedelta, *, limit: int = 1000, leadership: Leadership | None = None
    ) -> Operation[int]:
        """Delete at most `limit` old responses; returns how many. `leadership`: only while that leadership is valid."""
        ...


class MaintenanceRole(Protocol):
    """Maintenance by the elected process. With `leadership`, an operation has an effect only while that leadership is
    valid."""

    def acquire(self, name: str, holder: str, lead_for: timedelta) -> Operation[Leadership | None]:
        """Become the leader; None: another process leads."""
        ...

    def renew(self, held: Leadership, lead_for: timedelta) -> Operation[Leadership | None]:
        """Stay the leader; None: the lease has expired."""
        ...

    def resign(self, held: Leadership) -> Operation[bool]: ...
    def leader(self, name: str) -> Operation[Leadership | None]: ...
    def leaders(self) -> Operation[list[Leadership]]:
        """The last leader of every name, even if its lease has expired."""
        ...

    def needing_sweep(self, queues: Sequence[str]) -> Operation[list[str]]:
        """The queues that may need a sweep; may include others."""
        ...

    def sweep(
        self, queue: str, *, after: SweepCursor | None = None, limit: int = 1000, leadership: Leadership | None = None
    ) -> Operation[Swept]:
        """Record expired leases and bury messages without attempts left, for one step through the queue."""
        ...

    def remove_leftovers(self) -> Operation[int]:
        """Remove a batch of messages of force-deleted queues; returns how many, 0 when none is left."""
        ...

    def make_partitions(self, days: int, *, leadership: Leadership | None = None) -> Operation[Partitions]:
        """Create the journal partitions of today and the next days, if the database role has the permission."""
        ...

    def prune_journal(self, *, archived: bool = False, limit: int = 10) -> Operation[list[PrunedDay]]:
        """Drop the oldest `limit` journal days that are beyond the longest retention of all queues and whose events are in
        the rollups. If a lake exists, drop nothing; or, with `archived`, the days that every lake has completely."""
        ...

    def vacuum_problems(self) -> Operation[list[VacuumProblem]]: ...
    def database(self) -> Operation[DatabaseStatus | None]:
        """None: the store has no database."""
        ...


class Connections(NamedTuple):
    """The current database connections of a store."""

    open: int
    idle: int
    most: int
    waiting: int
    """Requests waiting for a connection."""


NO_CONNECTIONS = Connections(0, 0, 0, 0)


class Roles(Protocol):
    """The roles of a store, for blocking and async code alike."""

    @property
    def messages(self) -> MessagesRole: ...
    @property
    def queues(self) -> QueuesRole: ...
    @property
    def wakeup(self) -> WakeupRole: ...
    @property
    def dead_letters(self) -> DeadLettersRole: ...
    @property
    def cron(self) -> CronRole: ...
    @property
    def journal(self) -> JournalRole: ...
    @property
    def security(self) -> SecurityRole: ...
    @property
    def maintenance(self) -> MaintenanceRole: ...
    @property
    def rollups(self) -> RollupsRole: ...
    @property
    def search(self) -> SearchRole: ...
    @property
    def workers(self) -> WorkersRole: ...
    @property
    def analytics(self) -> AnalyticsRole: ...


class AsyncStore(Roles, Protocol):
    @property
    def settings(self) -> StoreSettings: ...

    async def run(self, operation: Operation[R], conn: Any = None) -> R:
        """`conn`: the caller's connection. The operation is then part of the caller's transaction, is not retried, and takes
        effect when the caller commits."""
        ...

    async def run_idempotent(self, request: IdempotencyKey, do: AsyncIdempotentCall) -> StoredResponse | None:
        """Return the response of `do`, or its stored response. The changes that `do` makes with its connection are committed
        together with its response; it must not wait for another connection. None: the key was used for another request."""
        ...

    async def connections(self) -> Connections: ...
    async def close(self) -> None: ...
