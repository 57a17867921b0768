"""What the rest of Tarry asks of a store, by role, blocking and awaitable.

Every store runs `tests/contracts`. `conn` is the caller's own connection: the verb then becomes part of the caller's
transaction, is not retried, and holds only if the caller commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol, TypeVar

from tarry.core.audit import Audited
from tarry.core.chores import (
    AsyncDeadLettering,
    AsyncLeading,
    AsyncRedriving,
    AsyncSweeping,
    DeadLettering,
    Leading,
    Redriving,
    Sweeping,
)
from tarry.core.editing import Edit
from tarry.core.events import Event
from tarry.core.following import AsyncFollowing, Following
from tarry.core.insights import Insights
from tarry.core.keys import ApiKey
from tarry.core.messages import (
    EVERYTHING,
    BuryReason,
    Counts,
    Decode,
    Draft,
    Failure,
    Filter,
    Hold,
    Lease,
    StoredMessage,
)
from tarry.core.once import Answering, AsyncAnswering
from tarry.core.outcomes import Edited, Outcome, Settled
from tarry.core.retry import Retry
from tarry.core.scheduling import AsyncScheduling, Scheduling
from tarry.core.settings import QueueInfo, QueueSettings, StoreSettings
from tarry.core.states import State
from tarry.core.waiting import Lobby, Waited

P = TypeVar("P")


class Offering(Protocol):
    def offer(self, queue: str, draft: Draft, *, conn: Any = None) -> Outcome: ...
    def offer_many(self, queue: str, drafts: Sequence[Draft], *, conn: Any = None) -> list[Outcome]: ...


class Leasing(Protocol):
    def lease(
        self,
        queue: str,
        n: int,
        decode: Decode[P],
        *,
        type: str | None = None,
        lease_for: timedelta | None = None,
        consumer: str | None = None,
        max_attempts: int | None = None,
        lowest_first: bool = False,
        conn: Any = None,
    ) -> list[Lease[P]]:
        """At most `n`, by priority, due time and version. What cannot be decoded is buried on the way.

        `max_attempts` stands in for the queue's, where a message has none of its own. `lowest_first` begins with the lowest
        priority: asked for now and then, it keeps a flood of important messages from starving the others.
        """
        ...

    def wait(self, queue: str, *, sleep_for: timedelta, type: str | None = None) -> Waited:
        """Somebody is about to sleep for at most so long: until when, and who will ring the `lobby` before that?"""
        ...

    def ack(self, queue: str, holds: Sequence[Hold], *, conn: Any = None) -> list[Settled]: ...
    def nack(
        self, queue: str, failures: Sequence[Failure], *, retry: Retry | None = None, conn: Any = None
    ) -> list[Settled]:
        """`retry` stands in for the queue's policy and number of attempts, where a message has none of its own."""
        ...

    def touch(
        self, queue: str, holds: Sequence[Hold], *, lease_for: timedelta | None = None, conn: Any = None
    ) -> list[Settled]: ...
    def release(
        self,
        queue: str,
        holds: Sequence[Hold],
        *,
        due_at: datetime | None = None,
        delay: timedelta | None = None,
        conn: Any = None,
    ) -> list[Settled]:
        """Ready at once; or due at an instant, or after a delay by the store's clock (not both)."""
        ...

    def bury(
        self,
        queue: str,
        holds: Sequence[Hold],
        *,
        error: str | None = None,
        reason: BuryReason = "buried",
        conn: Any = None,
    ) -> list[Settled]: ...


class Browsing(Protocol):
    def read(self, queue: str, key: str, *, conn: Any = None) -> StoredMessage[bytes] | None: ...
    def contains(self, queue: str, key: str, *, conn: Any = None) -> bool: ...
    def messages(
        self,
        queue: str,
        *,
        state: State | None = None,
        limit: int = 100,
        filter: Filter = EVERYTHING,
        conn: Any = None,
    ) -> list[StoredMessage[bytes]]: ...
    def timeline(
        self, queue: str, key: str, *, limit: int = 1000, before: int | None = None, conn: Any = None
    ) -> list[Event]:
        """The last `limit` events of a key, oldest first; `before`: of those before the event of this id."""
        ...

    def counts(self, queue: str, *, limit: int = 10_000, conn: Any = None) -> Counts: ...


class Editing(Protocol):
    def edit(
        self, queue: str, key: str, edit: Edit, *, version: int | None = None, force: bool = False, conn: Any = None
    ) -> Edited:
        """A new version, whose attempts go on counting. A lease on the old one is void; one that has not run out must be
        forced, and then its attempt does not count, as with a release. `version`: only if it is still this one."""
        ...

    def give_up(
        self,
        queue: str,
        key: str,
        *,
        error: str | None = None,
        version: int | None = None,
        force: bool = False,
        conn: Any = None,
    ) -> Edited:
        """A dead letter by hand, whatever attempts are left. Leases and versions as with an edit."""
        ...


class Dropping(Protocol):
    def drop(
        self, queue: str, key: str, *, version: int | None = None, unless_leased: bool = False, conn: Any = None
    ) -> bool: ...
    def drop_all(self, queue: str, *, conn: Any = None) -> int: ...


class Connections(NamedTuple):
    """How a store reaches its database, at this moment."""

    open: int
    idle: int
    most: int
    waiting: int
    """Requests that wait for one."""


NO_CONNECTIONS = Connections(0, 0, 0, 0)


class Registry(Protocol):
    def create_queue(self, name: str, settings: QueueSettings, *, exist_ok: bool, conn: Any = None) -> QueueInfo: ...
    def edit_queue(self, name: str, settings: QueueSettings, *, only: frozenset[str], conn: Any = None) -> QueueInfo:
        """Of these settings `only` those named: who edits another one at the same moment keeps theirs."""
        ...

    def rename_queue(self, name: str, new_name: str, *, conn: Any = None) -> QueueInfo: ...
    def delete_queue(self, name: str, *, force: bool, conn: Any = None) -> None: ...
    def queue_info(self, name: str, *, conn: Any = None) -> QueueInfo: ...
    def queue_infos(self, *, conn: Any = None) -> list[QueueInfo]: ...
    def pause(self, name: str, *, reason: str | None = None, conn: Any = None) -> QueueInfo: ...
    def resume(self, name: str, *, conn: Any = None) -> QueueInfo: ...
    def now(self, *, conn: Any = None) -> datetime: ...


class Keeping(Protocol):
    """API keys, and who did what with them."""

    def add_key(self, key: ApiKey, *, expires_for: timedelta | None, conn: Any = None) -> ApiKey:
        """It ends after `expires_for`, and at `key.expires_at` at the latest."""
        ...

    def find_keys(self, ids: Sequence[str], *, conn: Any = None) -> list[ApiKey]: ...
    def keys(self, *, conn: Any = None) -> list[ApiKey]: ...
    def revoke_key(self, id: str, *, conn: Any = None) -> ApiKey | None: ...
    def audit(
        self,
        actor: str,
        action: str,
        *,
        queue: str | None = None,
        detail: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        conn: Any = None,
    ) -> int:
        """Before the action; the number is for `audited`, with the answer."""
        ...

    def audited(self, id: int, status: int, *, detail: Mapping[str, Any] | None = None, conn: Any = None) -> None:
        """How it ended; `detail` is added to what the row has."""
        ...

    def audits(self, *, limit: int = 100, conn: Any = None) -> list[Audited]:
        """The newest first."""
        ...


class Store(
    Offering,
    Leasing,
    Browsing,
    Editing,
    Dropping,
    DeadLettering,
    Redriving,
    Leading,
    Sweeping,
    Registry,
    Scheduling,
    Answering,
    Keeping,
    Following,
    Protocol,
):
    settings: StoreSettings
    lobby: Lobby

    def connections(self) -> Connections: ...
    def close(self) -> None: ...


class AsyncOffering(Protocol):
    async def offer(self, queue: str, draft: Draft, *, conn: Any = None) -> Outcome: ...
    async def offer_many(self, queue: str, drafts: Sequence[Draft], *, conn: Any = None) -> list[Outcome]: ...


class AsyncLeasing(Protocol):
    async def lease(
        self,
        queue: str,
        n: int,
        decode: Decode[P],
        *,
        type: str | None = None,
        lease_for: timedelta | None = None,
        consumer: str | None = None,
        max_attempts: int | None = None,
        lowest_first: bool = False,
        conn: Any = None,
    ) -> list[Lease[P]]: ...
    async def wait(self, queue: str, *, sleep_for: timedelta, type: str | None = None) -> Waited: ...
    async def ack(self, queue: str, holds: Sequence[Hold], *, conn: Any = None) -> list[Settled]: ...
    async def nack(
        self, queue: str, failures: Sequence[Failure], *, retry: Retry | None = None, conn: Any = None
    ) -> list[Settled]: ...
    async def touch(
        self, queue: str, holds: Sequence[Hold], *, lease_for: timedelta | None = None, conn: Any = None
    ) -> list[Settled]: ...
    async def release(
        self,
        queue: str,
        holds: Sequence[Hold],
        *,
        due_at: datetime | None = None,
        delay: timedelta | None = None,
        conn: Any = None,
    ) -> list[Settled]: ...
    async def bury(
        self,
        queue: str,
        holds: Sequence[Hold],
        *,
        error: str | None = None,
        reason: BuryReason = "buried",
        conn: Any = None,
    ) -> list[Settled]: ...


class AsyncBrowsing(Protocol):
    async def read(self, queue: str, key: str, *, conn: Any = None) -> StoredMessage[bytes] | None: ...
    async def contains(self, queue: str, key: str, *, conn: Any = None) -> bool: ...
    async def messages(
        self,
        queue: str,
        *,
        state: State | None = None,
        limit: int = 100,
        filter: Filter = EVERYTHING,
        conn: Any = None,
    ) -> list[StoredMessage[bytes]]: ...
    async def timeline(
        self, queue: str, key: str, *, limit: int = 1000, before: int | None = None, conn: Any = None
    ) -> list[Event]:
        """The last `limit` events of a key, oldest first; `before`: of those before the event of this id."""
        ...

    async def counts(self, queue: str, *, limit: int = 10_000, conn: Any = None) -> Counts: ...


class AsyncEditing(Protocol):
    async def edit(
        self, queue: str, key: str, edit: Edit, *, version: int | None = None, force: bool = False, conn: Any = None
    ) -> Edited: ...
    async def give_up(
        self,
        queue: str,
        key: str,
        *,
        error: str | None = None,
        version: int | None = None,
        force: bool = False,
        conn: Any = None,
    ) -> Edited: ...


class AsyncDropping(Protocol):
    async def drop(
        self, queue: str, key: str, *, version: int | None = None, unless_leased: bool = False, conn: Any = None
    ) -> bool: ...
    async def drop_all(self, queue: str, *, conn: Any = None) -> int: ...


class AsyncRegistry(Protocol):
    async def create_queue(
        self, name: str, settings: QueueSettings, *, exist_ok: bool, conn: Any = None
    ) -> QueueInfo: ...
    async def edit_queue(
        self, name: str, settings: QueueSettings, *, only: frozenset[str], conn: Any = None
    ) -> QueueInfo: ...
    async def rename_queue(self, name: str, new_name: str, *, conn: Any = None) -> QueueInfo: ...
    async def delete_queue(self, name: str, *, force: bool, conn: Any = None) -> None: ...
    async def queue_info(self, name: str, *, conn: Any = None) -> QueueInfo: ...
    async def queue_infos(self, *, conn: Any = None) -> list[QueueInfo]: ...
    async def pause(self, name: str, *, reason: str | None = None, conn: Any = None) -> QueueInfo: ...
    async def resume(self, name: str, *, conn: Any = None) -> QueueInfo: ...
    async def now(self, *, conn: Any = None) -> datetime: ...


class AsyncKeeping(Protocol):
    async def add_key(self, key: ApiKey, *, expires_for: timedelta | None, conn: Any = None) -> ApiKey: ...
    async def find_keys(self, ids: Sequence[str], *, conn: Any = None) -> list[ApiKey]: ...
    async def keys(self, *, conn: Any = None) -> list[ApiKey]: ...
    async def revoke_key(self, id: str, *, conn: Any = None) -> ApiKey | None: ...
    async def audit(
        self,
        actor: str,
        action: str,
        *,
        queue: str | None = None,
        detail: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        conn: Any = None,
    ) -> int: ...
    async def audited(
        self, id: int, status: int, *, detail: Mapping[str, Any] | None = None, conn: Any = None
    ) -> None: ...
    async def audits(self, *, limit: int = 100, conn: Any = None) -> list[Audited]: ...


class AsyncStore(
    AsyncOffering,
    AsyncLeasing,
    AsyncBrowsing,
    AsyncEditing,
    AsyncDropping,
    AsyncDeadLettering,
    AsyncRedriving,
    AsyncLeading,
    AsyncSweeping,
    AsyncRegistry,
    AsyncScheduling,
    AsyncAnswering,
    AsyncKeeping,
    AsyncFollowing,
    Protocol,
):
    settings: StoreSettings
    lobby: Lobby
    insights: Insights
    """What the pipeline has worked out; code that blocks has `App.pipeline`."""

    async def connections(self) -> Connections: ...
    async def close(self) -> None: ...
