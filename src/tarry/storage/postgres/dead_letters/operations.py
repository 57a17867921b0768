"""Operations on dead letters of more than one statement: fingerprints of their errors, and the steps of a redrive job.

None needs a transaction around it. Each step of a job is one statement that names the step, so a process that stops in the
middle blocks no other one, and repeats nothing when it continues.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter

from tarry.core.dead_letters.fingerprints import fingerprint
from tarry.core.dead_letters.redrive import (
    LOOK_AGAIN_FOR,
    Canary,
    RedriveJob,
    RedrivePhase,
    RedriveState,
    judged,
    may_turn,
)
from tarry.core.errors import InvalidState, UnknownRedrive
from tarry.core.maintenance.leadership import Leadership
from tarry.storage.postgres.arrays import BigintArray, TextArray
from tarry.storage.postgres.dead_letters import statements
from tarry.storage.postgres.dead_letters.statements import leading, redrive_job
from tarry.storage.postgres.messages.statements import possible
from tarry.storage.postgres.statement import Op, bind, each, first, made

LABELS = 1_000
"""Fingerprints written by one statement."""
_ROUNDS = 10
"""How often in a row a reader writes fingerprints. The rest is left to the sweeper, and to the next reader."""


def label(queue: str | None, limit: int, lead: Leadership | None, now: datetime | None) -> Op[int]:
    """Give fingerprints to dead letters that have none, and return how many got one."""
    letters = yield from statements.without_fingerprint(queue, min(limit, LABELS)).run()
    if not letters:
        return 0
    letters.sort()
    names = [fingerprint(letter.reason, letter.error) for letter in letters]
    versions = BigintArray([letter.version for letter in letters])
    about = {"versions": versions, "fingerprints": TextArray(names), **leading(lead, now)}
    return (yield from bind("dead_letters/set_fingerprints", len, **about).run())


def label_queue(queue: str, now: datetime | None) -> Op[None]:
    for _ in range(_ROUNDS):
        if (yield from label(queue, LABELS, None, now)) < LABELS:
            return


def turn_redrive(job: int, state: RedriveState, reason: str | None, now: datetime | None) -> Op[RedriveJob]:
    turned = yield from statements.set_state(
        job, from_states=may_turn(state), state=state, reason=reason, now=now
    ).run()
    current = yield from statements.job(job).run()
    if current is None:
        raise UnknownRedrive(job)
    if not turned and current.state is not state:
        raise InvalidState(f"redrive job {job} is {current.state}: it cannot become {state}")
    return current


def advance_redrive(job: int | None, lead: Leadership | None, now: datetime | None) -> Op[RedriveJob | None]:
    """Make one step of this job, or of the one that has waited longest, and return the job; None: no step is due."""
    due = yield from bind("dead_letters/redrive_due", first(redrive_job), job=possible(job), now=now).run()
    if due is None:
        return None
    moved: int | None = 0
    change = partial(
        statements.set_state, due.id, from_states=(RedriveState.RUNNING,), step=due.step, lead=lead, now=now
    )
    if due.queue_is_gone:
        yield from change(state=RedriveState.FAILED, reason=f"the queue {due.queue} was deleted").run()
    elif due.phase is RedrivePhase.VERDICT:
        verdict = judged((yield from bind("dead_letters/redrive_canaries", each(made(Canary)), job=due.id).run()))
        rest_for = LOOK_AGAIN_FOR if verdict.state is None else timedelta(0)
        yield from change(state=verdict.state, phase=verdict.phase, reason=verdict.reason, rest_for=rest_for).run()
    else:
        stretch = yield from statements.walk(due).run()
        died_at, version = stretch.edge or (None, None)
        moved = yield from bind(  # None: another process has done the step
            "dead_letters/redrive_step", first(attrgetter("redriven")), job=due.id, step=due.step,
            versions=BigintArray(stretch.versions), ended=stretch.ended, edge_died_at=died_at, edge_version=version,
            **leading(lead, now),
        ).run()  # fmt: skip
    current = yield from statements.job(due.id).run()
    return None if current is None else replace(current, moved=moved or 0)
