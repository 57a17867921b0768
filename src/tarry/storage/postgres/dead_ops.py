"""What is decided about dead letters in more than one statement: naming their errors, and carrying a redrive job on.

No op here needs a transaction around it. Each step of a job is one statement that names the step it means, so whoever stops
in the middle, for ever or for an hour, holds nothing up, and does nothing twice when it goes on.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from tarry.core.errors import Refused, UnknownRedrive
from tarry.core.fingerprints import fingerprint
from tarry.core.leading import Leadership
from tarry.core.messages import Counted, DeadLetter
from tarry.core.redriving import (
    LOOK_AGAIN_FOR,
    DeadFilter,
    DeadGroup,
    DeadPlace,
    Matching,
    Phase,
    RedriveJob,
    RedriveState,
    judged,
    may_turn,
)
from tarry.storage.postgres import dead_statements as statements
from tarry.storage.postgres.statement import Op

LABELS = 1_000
"""Fingerprints written by one statement."""
_ROUNDS = 10
"""How often in a row whoever looks writes fingerprints. What is left then is left to the sweeper, and to the next look."""
COUNTED = 100_000


def label(queue: str | None, limit: int, lead: Leadership | None, now: datetime | None) -> Op[int]:
    """Give fingerprints to dead letters that have none, and say how many got one."""
    found = yield from statements.unlabelled(queue, min(limit, LABELS)).run()
    if not found:
        return 0
    found.sort()
    names = [fingerprint(letter.reason, letter.error) for letter in found]
    return (yield from statements.label([letter.version for letter in found], names, lead, now).run())


def _label_all(queue: str, now: datetime | None) -> Op[None]:
    for _ in range(_ROUNDS):
        if (yield from label(queue, LABELS, None, now)) < LABELS:
            return


def groups(queue: str, limit: int, cap: int, now: datetime | None) -> Op[list[DeadGroup]]:
    yield from _label_all(queue, now)
    return (yield from statements.groups(queue, limit, cap).run())


def dead_letters(
    queue: str, where: DeadFilter, limit: int, before: DeadPlace | None, now: datetime | None
) -> Op[list[DeadLetter[bytes]]]:
    if where.fingerprint is not None:
        yield from _label_all(queue, now)
    return (yield from statements.dead_letters(queue, where, limit, before).run())


def count(queue: str, where: DeadFilter, limit: int, now: datetime | None) -> Op[Matching]:
    if where.fingerprint is not None:
        yield from _label_all(queue, now)
    return (yield from statements.count(queue, where, limit).run())


def purge_dead(queue: str, where: DeadFilter, now: datetime | None) -> Op[int]:
    if where.fingerprint is not None:
        yield from _label_all(queue, now)
    return (yield from statements.purge_dead(queue, where, now).run())


def start_redrive(
    queue: str,
    where: DeadFilter,
    *,
    rate: float | None,
    canary: int,
    who: str | None,
    request: UUID,
    now: datetime | None,
) -> Op[RedriveJob]:
    total: Counted = (yield from count(queue, where, COUNTED, now)).letters
    yield from statements.start(
        queue, where, rate=rate, canary=canary, who=who, request=request, total=total, now=now
    ).run()
    return (yield from statements.jobs(request=request).run())[0]


def redrive_job(job: int) -> Op[RedriveJob | None]:
    found = yield from statements.jobs(job=job).run()
    return found[0] if found else None


def turn_redrive(job: int, state: RedriveState, reason: str | None, now: datetime | None) -> Op[RedriveJob]:
    turned = yield from statements.turn(job, from_states=may_turn(state), state=state, reason=reason, now=now).run()
    found = yield from redrive_job(job)
    if found is None:
        raise UnknownRedrive(job)
    if not turned and found.state is not state:
        raise Refused(f"redrive job {job} is {found.state}: it cannot become {state}")
    return found


def advance_redrive(job: int | None, lead: Leadership | None, now: datetime | None) -> Op[RedriveJob | None]:
    """One step of this job, or of the one that has waited longest. The job as it is then; None: nothing is to be done."""
    due = yield from statements.due(job, now).run()
    if due is None:
        return None
    moved: int | None = 0
    running = (RedriveState.RUNNING,)
    if due.queue_is_gone:
        yield from statements.turn(
            due.id, from_states=running, state=RedriveState.FAILED, reason=f"the queue {due.queue} was deleted", now=now,
            step=due.step, lead=lead,
        ).run()  # fmt: skip
    elif due.phase is Phase.VERDICT:
        verdict = judged((yield from statements.canaries(due).run()))
        yield from statements.turn(
            due.id, from_states=running, state=verdict.state, phase=verdict.phase, reason=verdict.reason, now=now,
            step=due.step, lead=lead, rest_for=LOOK_AGAIN_FOR if verdict.state is None else LOOK_AGAIN_FOR * 0,
        ).run()  # fmt: skip
    else:
        stretch = yield from statements.walk(due).run()
        moved = yield from statements.step(due, stretch, lead, now).run()
    found = yield from redrive_job(due.id)
    return None if found is None else replace(found, moved=moved or 0)
