"""`DeadLettersRole` in memory. `core.dead_letters.redrive` decides the size of a step and when a job stops itself."""

import builtins
import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tarry.core.dead_letters.redrive import (
    EVERY_LETTER,
    Canary,
    DeadFilter,
    DeadGroup,
    DeadPosition,
    Matching,
    RedriveJob,
    RedriveOptions,
    RedrivePhase,
    RedriveState,
    groups_of,
    judged,
    may_turn,
)
from tarry.core.errors import InvalidState, UnknownRedrive
from tarry.core.journal.events import EventKind
from tarry.core.maintenance.leadership import Leadership
from tarry.core.messages.model import Counted, DeadLetter
from tarry.storage.memory.rows import DeadRow, Row
from tarry.storage.memory.state import MemoryOperation, MemoryQueue, MemoryRole, MemoryState, locked


@dataclass(slots=True, eq=False)
class _Running:
    """A job. It refers to the queue object, because the name may change."""

    queue: MemoryQueue
    target: MemoryQueue
    job: RedriveJob
    request: UUID
    before_version: int
    after: tuple[datetime, int] | None = None
    judged: tuple[datetime, int] | None = None

    @property
    def current(self) -> RedriveJob:
        return replace(self.job, queue=self.queue.name, target=None if self.target is self.queue else self.target.name)


class MemoryDeadLetters(MemoryRole):
    def __init__(self, state: MemoryState) -> None:
        super().__init__(state)
        self._jobs: dict[int, _Running] = {}

    @locked
    def list(
        self, queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 100, before: DeadPosition | None = None
    ) -> builtins.list[DeadLetter[bytes]]:
        listed = self._state.queue(queue)
        fitting = (dead for dead in listed.dead.values() if dead.fits(where))
        older = (dead for dead in fitting if before is None or dead.age_order < before)
        newest = heapq.nlargest(max(limit, 0), older, key=lambda dead: dead.age_order)
        return [dead.letter(listed.name) for dead in newest]

    @locked
    def groups(self, queue: str, *, limit: int = 100, cap: int = 10_000) -> builtins.list[DeadGroup]:
        listed = self._state.queue(queue)
        letters = (dead.letter(listed.name) for dead in reversed(listed.dead_fitting()))
        return groups_of(letters, limit, cap)

    @locked
    def count(self, queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 10_000) -> Matching:
        return _count(self._state.queue(queue), where, limit)

    @locked
    def redrive(self, queue: str, *, versions: Sequence[int] | None = None, limit: int = 1000) -> int:
        """Redrive letters whose key is free: of several with one key, only the oldest."""
        state = self._state.queue(queue)
        moved = 0
        for dead in state.dead_fitting(DeadFilter(versions=None if versions is None else tuple(versions))):
            if moved >= limit:
                break
            moved += _revive(state, dead, self._now) is not None
        return moved

    @locked
    def discard(self, queue: str, *, where: DeadFilter = EVERY_LETTER) -> int:
        return self._state.queue(queue).discard(where)

    @locked
    def start_redrive(self, queue: str, options: RedriveOptions) -> RedriveJob:
        state = self._state.queue(queue)
        into = state if options.target is None else self._state.queue(options.target)
        for running in self._jobs.values():
            if running.request == options.request:
                return running.current
        total = _count(state, options.where, 100_000).letters
        job = options.begin(len(self._jobs) + 1, queue, total, self._now)
        self._jobs[job.id] = _Running(state, into, job, options.request, before_version=state.next_version())
        return job

    @locked
    def redrive_job(self, job: int) -> RedriveJob | None:
        running = self._jobs.get(job)
        return None if running is None else running.current

    @locked
    def redrive_jobs(self, queue: str | None = None, *, limit: int = 100) -> builtins.list[RedriveJob]:
        jobs = [running.current for running in reversed(self._jobs.values())]
        return [job for job in jobs if queue is None or job.queue == queue][: max(limit, 0)]

    @locked
    def turn_redrive(self, job: int, state: RedriveState, *, reason: str | None = None) -> RedriveJob:
        running = self._jobs.get(job)
        if running is None:
            raise UnknownRedrive(job)
        if running.job.state in may_turn(state):
            running.job = running.job.changed(self._now, state=state, reason=reason)
        elif running.job.state is not state:
            raise InvalidState(f"redrive job {job} is {running.job.state}: it cannot become {state}")
        return running.current

    @locked
    def advance_redrive(self, job: int | None = None, *, leadership: Leadership | None = None) -> RedriveJob | None:
        now = self._now
        due = [
            running
            for running in self._jobs.values()
            if running.job.state is RedriveState.RUNNING
            and running.job.next_at <= now
            and (job is None or running.job.id == job)
        ]
        if not due or not self._state.leads(leadership):
            return None
        running = min(due, key=lambda running: (running.job.next_at, running.job.id))
        before = running.job.redriven
        gone = [queue for queue in (running.queue, running.target) if queue not in self._state.queues.values()]
        if gone:
            reason = f"the queue {gone[0].name} was deleted"
            running.job = running.job.changed(now, state=RedriveState.FAILED, reason=reason)
        elif (reason := running.job.stop_reason) is not None:
            running.job = running.job.stopped(now, reason)
        elif running.job.phase is RedrivePhase.VERDICT:
            canaries = zip(running.job.canaries, running.job.canary_keys, strict=True)
            verdict = judged([_canary(running.target, version, key) for version, key in canaries])
            running.job = running.job.decided(now, verdict)
        else:
            _step(running, now)
        return replace(running.current, moved=running.job.redriven - before)

    @locked
    def next_redrive_in(self) -> timedelta | None:
        jobs = [running.job for running in self._jobs.values() if running.job.state is RedriveState.RUNNING]
        return max(min(job.next_at for job in jobs) - self._now, timedelta(0)) if jobs else None

    def label(self, *, limit: int = 1000, leadership: Leadership | None = None) -> MemoryOperation[int]:
        """No-op: dead letters in memory always have a fingerprint."""
        return self._result(0)


def _count(queue: MemoryQueue, where: DeadFilter, limit: int) -> Matching:
    letters = queue.dead_fitting(where)[:limit]
    counted = Counted(len(letters), capped=len(queue.dead) > limit)
    return Matching(counted, sum(dead.row.key in queue.rows for dead in letters))


def _revive(
    queue: MemoryQueue,
    dead: DeadRow,
    now: datetime,
    target: MemoryQueue | None = None,
    jitter: timedelta = timedelta(0),
    max_attempts: int | None = None,
    **detail: int,
) -> Row | None:
    """Redrive a letter as a new ready version with attempts reset and a link to the old one; None if the key is live. With
    another target, it is offered there and discarded here."""
    into = target or queue
    if dead.row.key in into.rows:
        return None
    due_at = now + random.random() * jitter  # noqa: S311
    row = replace(
        dead.row,
        version=queue.next_version(),
        planned_at=due_at,
        due_at=due_at,
        created_at=now,
        due_limit=None,
        attempt=0,
        max_attempts=max_attempts or dead.row.max_attempts,
        last_error=None,
        expired_at=None,
        origin=dead.row.version,
    )
    del queue.dead[dead.row.version]
    into.add(row)
    origin: dict[str, Any] = {"from_version": dead.row.version, **detail}
    if into is queue:
        queue.note(EventKind.REDRIVEN, row, detail=origin)
    else:
        into.note(EventKind.OFFERED, row, detail=origin | {"from_queue": queue.name})
        queue.note(EventKind.DISCARDED, dead.row, detail={"redriven_to": into.name, **detail})
    return row


def _canary(queue: MemoryQueue, version: int, key: str) -> Canary:
    row, dead = queue.rows.get(key), queue.dead.get(version)
    again = row is not None and row.origin == version
    return Canary(
        key,
        live=row is not None and row.version == version,
        dead=dead is not None or again,
        error=None if dead is None else dead.error,
    )


def _step(running: _Running, now: datetime) -> None:
    queue, job = running.queue, running.job
    letters = [
        dead
        for dead in queue.dead_fitting(job.where)
        if dead.row.version < running.before_version
        and dead.died_at <= job.created_at
        and (running.after is None or dead.age_order > running.after)
    ]
    chosen, ended = letters[: job.at_once], len(letters) <= job.at_once
    died_again = _died_again(running) if job.stop_above is not None else 0
    revivals = (_revive(queue, dead, now, running.target, job.jitter, job.max_attempts, job=job.id) for dead in chosen)
    revived = [row for row in revivals if row is not None]
    if chosen:
        running.after = chosen[-1].age_order
    versions = [(row.version, row.key) for row in revived]
    running.job = job.stepped(now, versions, len(chosen), ended=ended, died_again=died_again)


def _died_again(running: _Running) -> int:
    """The number of redriven messages that died since the last step."""
    deaths = [
        dead for dead in running.target.dead.values() if running.judged is None or dead.age_order > running.judged
    ]
    running.judged = max((dead.age_order for dead in deaths), default=running.judged)
    before = running.before_version
    return sum(dead.row.origin is not None and dead.row.origin < before < dead.row.version for dead in deaths)
