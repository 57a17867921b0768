"""What the rest of Tarry asks of a store about what went wrong or was left lying: the roles beside those of `ports`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol
from uuid import UUID

from tarry.core.leading import Leadership
from tarry.core.messages import DeadLetter
from tarry.core.redriving import EVERY_LETTER, DeadFilter, DeadGroup, DeadPlace, Matching, RedriveJob, RedriveState
from tarry.core.sweeping import Partitions, Strain, SweepPlace, Swept


class DeadLettering(Protocol):
    def dead_letters(
        self,
        queue: str,
        *,
        where: DeadFilter = EVERY_LETTER,
        limit: int = 100,
        before: DeadPlace | None = None,
        conn: Any = None,
    ) -> list[DeadLetter[bytes]]: ...
    def dead_groups(self, queue: str, *, limit: int = 100, cap: int = 10_000, conn: Any = None) -> list[DeadGroup]:
        """By what they died of; at most `limit` groups, none counted beyond `cap`."""
        ...

    def count_dead(
        self, queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 10_000, conn: Any = None
    ) -> Matching: ...
    def redrive(
        self, queue: str, *, versions: Sequence[int] | None = None, limit: int = 1000, conn: Any = None
    ) -> int: ...
    def purge_dead(self, queue: str, *, where: DeadFilter = EVERY_LETTER, conn: Any = None) -> int: ...


class Redriving(Protocol):
    """Redrives as jobs that any process may carry on, one step at a time."""

    def start_redrive(
        self,
        queue: str,
        *,
        where: DeadFilter,
        rate: float | None,
        canary: int,
        who: str | None,
        request: UUID,
        conn: Any = None,
    ) -> RedriveJob:
        """`request` names it: said again, it is the same job."""
        ...

    def redrive_job(self, job: int, *, conn: Any = None) -> RedriveJob | None: ...
    def redrive_jobs(self, queue: str | None = None, *, limit: int = 100, conn: Any = None) -> list[RedriveJob]: ...
    def turn_redrive(self, job: int, state: RedriveState, *, reason: str | None = None, conn: Any = None) -> RedriveJob:
        """Pause, resume or cancel; refused where the job has ended."""
        ...

    def advance_redrive(
        self, job: int | None = None, *, lead: Leadership | None = None, conn: Any = None
    ) -> RedriveJob | None:
        """One step of this job, or of the one that waits longest. None: no step is due."""
        ...

    def next_redrive_in(self, *, conn: Any = None) -> timedelta | None:
        """How long until a running job has a step due; None: no job runs."""
        ...


class Leading(Protocol):
    def lead(self, name: str, holder: str, lead_for: timedelta, *, conn: Any = None) -> Leadership | None:
        """Become the leader; None: somebody else is."""
        ...

    def lead_on(self, held: Leadership, lead_for: timedelta, *, conn: Any = None) -> Leadership | None:
        """Stay the leader for longer; None: it is too late."""
        ...

    def lead_end(self, held: Leadership, *, conn: Any = None) -> bool: ...
    def leader(self, name: str, *, conn: Any = None) -> Leadership | None: ...


class Sweeping(Protocol):
    """What a sweeper does. With `lead`, only for as long as that leadership holds."""

    def sweep(
        self,
        queue: str,
        *,
        after: SweepPlace | None = None,
        limit: int = 1000,
        lead: Leadership | None = None,
        conn: Any = None,
    ) -> Swept:
        """Tell of leases that ran out, and bury what has no attempt left; one step along the queue."""
        ...

    def label_dead(self, *, limit: int = 1000, lead: Leadership | None = None, conn: Any = None) -> int:
        """Give fingerprints to dead letters that have none."""
        ...

    def make_partitions(self, days: int, *, lead: Leadership | None = None, conn: Any = None) -> Partitions:
        """See to it that the journal has room for today and the next days, where this role may."""
        ...

    def strains(self, *, conn: Any = None) -> list[Strain]: ...


class AsyncDeadLettering(Protocol):
    async def dead_letters(
        self,
        queue: str,
        *,
        where: DeadFilter = EVERY_LETTER,
        limit: int = 100,
        before: DeadPlace | None = None,
        conn: Any = None,
    ) -> list[DeadLetter[bytes]]: ...
    async def dead_groups(
        self, queue: str, *, limit: int = 100, cap: int = 10_000, conn: Any = None
    ) -> list[DeadGroup]: ...

    async def count_dead(
        self, queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 10_000, conn: Any = None
    ) -> Matching: ...
    async def redrive(
        self, queue: str, *, versions: Sequence[int] | None = None, limit: int = 1000, conn: Any = None
    ) -> int: ...
    async def purge_dead(self, queue: str, *, where: DeadFilter = EVERY_LETTER, conn: Any = None) -> int: ...


class AsyncRedriving(Protocol):
    """Redrives as jobs that any process may carry on, one step at a time."""

    async def start_redrive(
        self,
        queue: str,
        *,
        where: DeadFilter,
        rate: float | None,
        canary: int,
        who: str | None,
        request: UUID,
        conn: Any = None,
    ) -> RedriveJob: ...

    async def redrive_job(self, job: int, *, conn: Any = None) -> RedriveJob | None: ...
    async def redrive_jobs(
        self, queue: str | None = None, *, limit: int = 100, conn: Any = None
    ) -> list[RedriveJob]: ...
    async def turn_redrive(
        self, job: int, state: RedriveState, *, reason: str | None = None, conn: Any = None
    ) -> RedriveJob: ...

    async def advance_redrive(
        self, job: int | None = None, *, lead: Leadership | None = None, conn: Any = None
    ) -> RedriveJob | None: ...
    async def next_redrive_in(self, *, conn: Any = None) -> timedelta | None: ...


class AsyncLeading(Protocol):
    async def lead(self, name: str, holder: str, lead_for: timedelta, *, conn: Any = None) -> Leadership | None: ...

    async def lead_on(self, held: Leadership, lead_for: timedelta, *, conn: Any = None) -> Leadership | None: ...

    async def lead_end(self, held: Leadership, *, conn: Any = None) -> bool: ...
    async def leader(self, name: str, *, conn: Any = None) -> Leadership | None: ...


class AsyncSweeping(Protocol):
    """What a sweeper does. With `lead`, only for as long as that leadership holds."""

    async def sweep(
        self,
        queue: str,
        *,
        after: SweepPlace | None = None,
        limit: int = 1000,
        lead: Leadership | None = None,
        conn: Any = None,
    ) -> Swept: ...

    async def label_dead(self, *, limit: int = 1000, lead: Leadership | None = None, conn: Any = None) -> int: ...

    async def make_partitions(self, days: int, *, lead: Leadership | None = None, conn: Any = None) -> Partitions: ...

    async def strains(self, *, conn: Any = None) -> list[Strain]: ...
