"""Redrive jobs in memory. `core.redriving` decides the size of a step and when a job stops itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from uuid import UUID

from tarry.core.errors import Refused, UnknownRedrive
from tarry.core.messages import Counted
from tarry.core.redriving import (
    ENDED,
    LOOK_AGAIN_FOR,
    Canary,
    DeadFilter,
    DeadGroup,
    Matching,
    Phase,
    RedriveJob,
    RedriveState,
    judged,
    may_turn,
)
from tarry.storage.memory import removals
from tarry.storage.memory.queues import MemoryQueue
from tarry.storage.memory.rows import DeadRow


def fitting(queue: MemoryQueue, where: DeadFilter) -> list[DeadRow]:
    """Matching dead letters, oldest first."""
    return sorted((dead for dead in queue.dead.values() if dead.fits(where)), key=lambda dead: dead.age_order)


def counted(queue: MemoryQueue, where: DeadFilter, limit: int) -> Matching:
    found = fitting(queue, where)
    seen = found[:limit]
    return Matching(
        Counted(len(seen), capped=len(queue.dead) > limit), sum(dead.row.key in queue.rows for dead in seen)
    )


def groups(queue: MemoryQueue, limit: int, cap: int) -> list[DeadGroup]:
    by_fingerprint: dict[str, list[DeadRow]] = {}
    for dead in fitting(queue, DeadFilter()):
        by_fingerprint.setdefault(dead.fingerprint, []).append(dead)
    found = [_group(letters, cap) for letters in by_fingerprint.values()]
    return sorted(found, key=lambda group: (group.last_died_at, group.example), reverse=True)[: max(limit, 0)]


def _group(letters: Sequence[DeadRow], cap: int) -> DeadGroup:
    newest, oldest = letters[-1], letters[0]
    return DeadGroup(
        fingerprint=newest.fingerprint,
        reason=newest.reason,
        pattern=newest.pattern,
        error=newest.error,
        count=Counted(min(len(letters), cap), capped=len(letters) > cap),
        first_died_at=oldest.died_at,
        last_died_at=newest.died_at,
        example=newest.row.version,
        example_key=newest.row.key,
        types=tuple(sorted({dead.row.type for dead in letters if dead.row.type is not None})),
        fewest_attempts=min(dead.row.attempt for dead in letters),
        most_attempts=max(dead.row.attempt for dead in letters),
    )


@dataclass(slots=True, eq=False)
class _Running:
    queue: MemoryQueue
    job: RedriveJob
    request: UUID
    before_version: int
    after: tuple[datetime, int] | None = None

    @property
    def told(self) -> RedriveJob:
        return replace(self.job, queue=self.queue.name)


class Redrives:
    """Not thread-safe: the store's lock is held around every call."""

    def __init__(self) -> None:
        self._ids = count(1)
        self._jobs: dict[int, _Running] = {}

    def start(
        self,
        queue: MemoryQueue,
        where: DeadFilter,
        now: datetime,
        *,
        rate: float | None,
        canary: int,
        who: str | None,
        request: UUID,
    ) -> RedriveJob:
        for running in self._jobs.values():
            if running.request == request:
                return running.told
        job = RedriveJob(
            id=next(self._ids),
            queue=queue.name,
            where=where,
            state=RedriveState.RUNNING,
            phase=Phase.CANARY if canary else Phase.REST,
            total=counted(queue, where, 100_000).letters,
            created_at=now,
            updated_at=now,
            next_at=now,
            rate=rate,
            canary=canary,
            who=who,
        )
        self._jobs[job.id] = _Running(queue, job, request, before_version=queue.next_version())
        return job

    def get(self, job: int) -> RedriveJob | None:
        running = self._jobs.get(job)
        return None if running is None else running.told

    def list(self, queue: str | None, limit: int) -> list[RedriveJob]:
        jobs = [running.told for running in reversed(self._jobs.values())]
        return [job for job in jobs if queue is None or job.queue == queue][: max(limit, 0)]

    def turn(self, job: int, state: RedriveState, reason: str | None, now: datetime) -> RedriveJob:
        running = self._jobs.get(job)
        if running is None:
            raise UnknownRedrive(job)
        if running.job.state in may_turn(state):
            self._change(running, now, state=state, reason=reason)
        elif running.job.state is not state:
            raise Refused(f"redrive job {job} is {running.job.state}: it cannot become {state}")
        return running.told

    def advance(self, job: int | None, now: datetime, live: Sequence[MemoryQueue]) -> RedriveJob | None:
        due = [
            running
            for running in self._jobs.values()
            if running.job.state is RedriveState.RUNNING
            and running.job.next_at <= now
            and (job is None or running.job.id == job)
        ]
        if not due:
            return None
        running = min(due, key=lambda one: (one.job.next_at, one.job.id))
        before = running.job.redriven
        if running.queue not in live:
            reason = f"the queue {running.queue.name} was deleted"
            self._change(running, now, state=RedriveState.FAILED, reason=reason)
        elif running.job.phase is Phase.VERDICT:
            self._judge(running, now)
        else:
            self._step(running, now)
        return replace(running.told, moved=running.job.redriven - before)

    def next_in(self, now: datetime) -> timedelta | None:
        jobs = [running.job for running in self._jobs.values() if running.job.state is RedriveState.RUNNING]
        return max(min(job.next_at for job in jobs) - now, timedelta(0)) if jobs else None

    def _judge(self, running: _Running, now: datetime) -> None:
        canaries = zip(running.job.canaries, running.job.canary_keys, strict=True)
        verdict = judged([_canary(running.queue, version, key) for version, key in canaries])
        if verdict.state is None:
            self._change(running, now)
            running.job = replace(running.job, next_at=now + LOOK_AGAIN_FOR)
        else:
            self._change(running, now, state=verdict.state, reason=verdict.reason, phase=verdict.phase)

    def _step(self, running: _Running, now: datetime) -> None:
        queue, job = running.queue, running.job
        letters = [
            dead
            for dead in fitting(queue, job.where)
            if dead.row.version < running.before_version
            and dead.died_at <= job.created_at
            and (running.after is None or dead.age_order > running.after)
        ]
        chosen, ended = letters[: job.at_once], len(letters) <= job.at_once
        revived = [row for row in (removals.revive(queue, dead, now, job=job.id) for dead in chosen) if row is not None]
        if chosen:
            running.after = chosen[-1].age_order
        canaries, keys = job.canaries, job.canary_keys
        phase, state = job.phase, job.state
        if job.phase is Phase.CANARY:
            canaries += tuple(row.version for row in revived)
            keys += tuple(row.key for row in revived)
            if ended or len(canaries) >= job.canary:
                phase = Phase.VERDICT
        if ended and (job.phase is Phase.REST or not canaries):
            state = RedriveState.DONE
        self._change(running, now, state=state, phase=phase)
        running.job = replace(
            running.job,
            redriven=job.redriven + len(revived),
            skipped=job.skipped + len(chosen) - len(revived),
            canaries=canaries,
            canary_keys=keys,
            next_at=now + job.rest_for(len(revived)),
        )

    def _change(
        self,
        running: _Running,
        now: datetime,
        *,
        state: RedriveState | None = None,
        reason: str | None = None,
        phase: Phase | None = None,
    ) -> None:
        job = running.job
        running.job = replace(
            job,
            state=state or job.state,
            phase=phase or job.phase,
            reason=reason if state is not None else job.reason,
            step=job.step + 1,
            updated_at=now,
            next_at=now,
            ended_at=now if state in ENDED else None,
        )


def _canary(queue: MemoryQueue, version: int, key: str) -> Canary:
    row, dead = queue.rows.get(key), queue.dead.get(version)
    again = row is not None and row.origin == version
    return Canary(
        key,
        live=row is not None and row.version == version,
        dead=dead is not None or again,
        error=None if dead is None else dead.error,
    )
