"""`DeadLettersRole` on Redis. A letter's fingerprint follows from its reason and error, and is computed when it is read."""

from __future__ import annotations

import builtins
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from tarry.core.dead_letters.fingerprints import fingerprint
from tarry.core.dead_letters.redrive import (
    EVERY_LETTER,
    WALK,
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
from tarry.core.errors import InvalidState, LockTimeout, UnknownRedrive
from tarry.core.maintenance.leadership import Leadership
from tarry.core.messages.model import Counted, DeadLetter
from tarry.storage.redis.operation import Op, RedisOperation, RedisRole, instant, micros, operation
from tarry.storage.redis.rows import MessageRow, row_of

_PART = 500
"""Letters that one script reads or changes."""
_GROUPED = 100_000
"""Letters, from the newest on, that are counted by group."""
_COUNTED_AT_START = 100_000
_MOVED_AT_ONCE = 100
"""Letters that one step copies to another queue, with their payloads."""
_TRIES = 10
Revived = tuple[bytes, list[tuple[int, str]]]
"""The letters that a step chose, and the versions and keys of the redriven messages."""


class StoredJob(msgspec.Struct):
    """A job with the state that only its steps need."""

    job: RedriveJob
    queue_id: str
    before_version: int
    after: tuple[datetime, int] | None = None
    target_id: str | None = None
    judged: tuple[datetime, int] | None = None
    moves: int = 0
    """The number of the next step that redrives letters: a queue keeps the result of the last one by it. `job.step` counts
    every change, also a pause."""

    def change(self, now: datetime, **fields: Any) -> StoredJob:
        return msgspec.structs.replace(self, job=self.job.changed(now, **fields))


class Letter(msgspec.Struct):
    row: MessageRow
    payload: bytes
    blocked: bool
    """Its key is live."""

    @property
    def position(self) -> DeadPosition:
        return DeadPosition(instant(self.row.died_at or 0), self.row.version)

    def fits(self, where: DeadFilter) -> bool:
        row = self.row
        return where.fits(row.fingerprint or "", row.type, instant(row.died_at or 0), row.key, row.version)


class RedisDeadLetters(RedisRole):
    @operation
    def list(
        self, queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 100, before: DeadPosition | None = None
    ) -> Op[builtins.list[DeadLetter[bytes]]]:
        def enough(letters: builtins.list[Letter]) -> bool:
            return len(letters) >= limit

        letters = yield from self._scan(queue, where, before, newest_first=True, payloads=True, enough=enough)
        return [letter.row.letter(queue, letter.payload) for letter in letters[: max(limit, 0)]]

    def _scan(
        self,
        queue: str,
        where: DeadFilter,
        position: DeadPosition | None = None,
        *,
        newest_first: bool = False,
        payloads: bool = False,
        enough: Callable[[builtins.list[Letter]], bool] = lambda letters: False,
        most: int | None = None,
    ) -> Op[builtins.list[Letter]]:
        """Letters that fit, from a position on, until there are enough, `most` were read, or the end."""
        return (
            yield from self._walk(
                queue, where, position, newest_first=newest_first, payloads=payloads, enough=enough, most=most
            )
        )[0]

    def _walk(
        self,
        queue: str,
        where: DeadFilter,
        position: DeadPosition | None,
        *,
        newest_first: bool = False,
        payloads: bool = False,
        enough: Callable[[builtins.list[Letter]], bool],
        most: int | None,
    ) -> Op[tuple[builtins.list[Letter], DeadPosition | None]]:
        """As `_scan`, with the position at which it stopped; None: it reached the end."""
        fitting: builtins.list[Letter] = []
        scanned = 0
        while True:
            reply = yield from self._in_queue(
                queue,
                "dead_letters/scan",
                part=_PART,
                newest_first=newest_first,
                payloads=payloads,
                died=None if position is None else micros(position.died_at),
                version=None if position is None else position.version,
            )
            page = [
                Letter(row_of(packed), payload, bool(live))
                for packed, payload, live in zip(reply[::3], reply[1::3], reply[2::3], strict=True)
            ]
            for letter in page:
                letter.row.fingerprint = fingerprint(letter.row.reason, letter.row.error)
            fitting += [letter for letter in page if letter.fits(where)]
            scanned += len(page)
            if len(page) < _PART:
                return fitting, None
            position = page[-1].position
            if enough(fitting) or (most is not None and scanned >= most):
                return fitting, position

    @operation
    def groups(self, queue: str, *, limit: int = 100, cap: int = 10_000) -> Op[builtins.list[DeadGroup]]:
        letters = yield from self._scan(queue, EVERY_LETTER, newest_first=True, most=_GROUPED)
        return groups_of((letter.row.letter(queue, b"") for letter in letters), limit, cap)

    @operation
    def count(self, queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 10_000) -> Op[Matching]:
        return (yield from self._count(queue, where, limit))

    def _count(self, queue: str, where: DeadFilter, limit: int) -> Op[Matching]:
        letters = yield from self._scan(queue, where, enough=lambda letters: len(letters) > limit)
        counted = letters[: max(limit, 0)]
        return Matching(Counted(len(counted), capped=len(letters) > limit), sum(each.blocked for each in counted))

    @operation
    def redrive(self, queue: str, *, versions: Sequence[int] | None = None, limit: int = 1000) -> Op[int]:
        """Only where the key is free: of several dead letters of one key only the oldest is redriven."""
        where = DeadFilter(versions=None if versions is None else tuple(versions))
        yield from self._in_queue(queue, "queues/info")
        moved, position = 0, None
        while moved < limit:
            letters = yield from self._scan(queue, where, position, enough=bool)
            if not letters:
                break
            chosen = letters[: min(limit - moved, _PART)]
            position = chosen[-1].position
            moved += len((yield from self._revive(queue, chosen))[1])
        return moved

    def _revive(self, queue: str, letters: Sequence[Letter], **job: Any) -> Op[Revived]:
        versions = [str(letter.row.version) for letter in letters]
        chosen, revived, *_ = yield from self._in_queue(queue, "dead_letters/redrive", versions=versions, **job)
        return _revived(chosen, revived)

    def _move(self, stored: StoredJob, letters: Sequence[Letter], **job: Any) -> Op[Revived]:
        """Redrive to another queue: copy, receive once per step, delete last, so a letter is always in at least one queue. If
        the process ends in between, the next one repeats the step. Until then the letter is in both queues, and a manual
        redrive makes a second message."""
        queue, target = stored.job.queue, stored.job.target or ""
        versions = [str(letter.row.version) for letter in letters]
        copies = yield from self._in_queue(queue, "dead_letters/copy", versions=versions)
        chosen, revived, moved = yield from self._in_queue(
            target, "dead_letters/receive", [copies], from_queue=queue, **job
        )
        versions = [version.decode() for version in moved]
        if versions:
            yield from self._in_queue(queue, "dead_letters/moved", versions=versions, target=target, job=job["job"])
        return _revived(chosen, revived)

    @operation
    def discard(self, queue: str, *, where: DeadFilter = EVERY_LETTER) -> Op[int]:
        discarded, position = 0, None
        while True:
            letters = yield from self._scan(queue, where, position, enough=bool)
            if not letters:
                return discarded
            position = letters[-1].position
            versions = [str(letter.row.version) for letter in letters]
            discarded += yield from self._in_queue(queue, "dead_letters/discard", versions=versions)

    @operation
    def start_redrive(self, queue: str, options: RedriveOptions) -> Op[RedriveJob]:
        target = None if options.target == queue else options.target
        if target is not None:
            yield from self._in_queue(target, "queues/info")
        total = (yield from self._count(queue, options.where, _COUNTED_AT_START)).letters
        before_version = int((yield from self._in_queue(queue, "dead_letters/begin")))
        now = instant((yield from self._registry("dead_letters/jobs", id=0))[0])
        job = options.begin(0, queue, total, now)
        stored = StoredJob(job, (yield from self._ids(queue)).id or "", before_version)
        if target is not None:
            stored.target_id = (yield from self._ids(target)).id
        about = {"job_request": options.request.hex, "next_at": str(micros(job.next_at))}
        id, text = yield from self._registry("dead_letters/add_job", [msgspec.json.encode(stored)], **about)
        return (yield from self._current(id, _stored(text))).job

    @operation
    def redrive_job(self, job: int) -> Op[RedriveJob | None]:
        stored = yield from self._job(job)
        return None if stored is None else stored.job

    def _job(self, id: int) -> Op[StoredJob | None]:
        jobs = (yield from self._registry("dead_letters/jobs", id=id))[1]
        return (yield from self._current(id, _stored(jobs[1]))) if jobs else None

    def _current(self, id: int, stored: StoredJob) -> Op[StoredJob]:
        """The job with its number and the current names of its queues."""
        name = (yield from self._by_id(stored.queue_id, "queues/name")).decode()
        gone = None if name else stored.job.queue
        target = stored.job.target
        if stored.target_id is not None:
            target_name = (yield from self._by_id(stored.target_id, "queues/name")).decode()
            gone = gone or (None if target_name else target)
            target = target_name or target
        job = replace(stored.job, id=id, queue=name or stored.job.queue, target=target, gone_queue=gone)
        return msgspec.structs.replace(stored, job=job)

    @operation
    def redrive_jobs(self, queue: str | None = None, *, limit: int = 100) -> Op[builtins.list[RedriveJob]]:
        jobs: builtins.list[RedriveJob] = []
        before = None
        while True:
            page = (yield from self._registry("dead_letters/jobs", before=before))[1]
            for id, text in zip(page[::2], page[1::2], strict=True):
                job = (yield from self._current(id, _stored(text))).job
                jobs += [job] if queue in (None, job.queue) else []
            if not page or len(jobs) >= limit:
                return [replace(job, gone_queue=None) for job in jobs[: max(limit, 0)]]
            before = page[-2]

    @operation
    def turn_redrive(self, job: int, state: RedriveState, *, reason: str | None = None) -> Op[RedriveJob]:
        for _ in range(_TRIES):
            stored = yield from self._job(job)
            if stored is None:
                raise UnknownRedrive(job)
            if stored.job.state not in may_turn(state):
                if stored.job.state is not state:
                    raise InvalidState(f"redrive job {job} is {stored.job.state}: it cannot become {state}")
                return stored.job
            now = instant((yield from self._registry("dead_letters/jobs", id=0))[0])
            completed = yield from self._complete(stored, now)
            changed = completed if completed.job.ended else completed.change(now, state=state, reason=reason)
            if (yield from self._save(stored, changed)) and changed is not completed:
                return changed.job
        raise LockTimeout(f"redrive job {job} changes all the time", hint="try again")

    def _complete(self, stored: StoredJob, now: datetime) -> Op[StoredJob]:
        """Complete the step that a process began and did not save, if there is one. Otherwise an empty step takes its number,
        so a late process redrives nothing after the job was paused or cancelled."""
        if stored.job.gone_queue is not None or stored.job.phase is RedrivePhase.VERDICT:
            return stored
        return (yield from self._execute(stored, now, [], ended=False, last=stored.after))

    def _save(self, before: StoredJob, after: StoredJob) -> Op[bool]:
        """Compare-and-set by the number of the step."""
        is_running = after.job.state is RedriveState.RUNNING
        saved = yield from self._registry(
            "dead_letters/save_job",
            [msgspec.json.encode(after)],
            id=before.job.id,
            step=before.job.step,
            next_at=str(micros(after.job.next_at)) if is_running else None,
        )
        return bool(saved)

    @operation
    def advance_redrive(self, job: int | None = None, *, leadership: Leadership | None = None) -> Op[RedriveJob | None]:
        """Read the job, execute the step in the queue, which keeps the result by step number, then save the job. If the
        process ends in between, the next one repeats the step without effect and saves."""
        if not (yield from self._leads(leadership)):
            return None
        text_now, jobs = yield from self._registry("dead_letters/jobs", id=job, due_first=job is None)
        now = instant(text_now)
        if not jobs:
            return None
        stored = yield from self._current(jobs[0], _stored(jobs[1]))
        if stored.job.state is not RedriveState.RUNNING or stored.job.next_at > now:
            return None
        if stored.job.gone_queue is not None:
            reason = f"the queue {stored.job.gone_queue} was deleted"
            after = stored.change(now, state=RedriveState.FAILED, reason=reason)
        elif (reason := stored.job.stop_reason) is not None:
            after = msgspec.structs.replace(stored, job=stored.job.stopped(now, reason))
        elif stored.job.phase is RedrivePhase.VERDICT:
            after = yield from self._judge(stored, now)
        else:
            after = yield from self._step(stored, now)
        if not (yield from self._save(stored, after)):
            current = yield from self._job(stored.job.id)  # another process has saved this step
            return None if current is None else current.job
        return replace(after.job, moved=after.job.redriven - stored.job.redriven)

    def _judge(self, stored: StoredJob, now: datetime) -> Op[StoredJob]:
        job = stored.job
        versions = [str(version) for version in job.canaries]
        queue = job.target or job.queue
        reply = yield from self._in_queue(queue, "dead_letters/canaries", versions=versions, keys=job.canary_keys)
        canaries = [
            Canary(key, bool(live), bool(dead), error.decode() or None)
            for key, live, dead, error in zip(job.canary_keys, reply[::3], reply[1::3], reply[2::3], strict=True)
        ]
        return msgspec.structs.replace(stored, job=job.decided(now, judged(canaries)))

    def _step(self, stored: StoredJob, now: datetime) -> Op[StoredJob]:
        job = stored.job
        position = None if stored.after is None else DeadPosition(*stored.after)

        def is_old(letter: Letter) -> bool:
            return letter.row.version < stored.before_version and letter.position.died_at <= job.created_at

        at_once = job.at_once if job.target is None else min(job.at_once, _MOVED_AT_ONCE)
        letters, reached = yield from self._walk(
            job.queue, job.where, position, enough=lambda letters: len(letters) > at_once, most=WALK
        )
        fitting = [letter for letter in letters if is_old(letter)]
        chosen = fitting[:at_once]
        if len(fitting) > at_once or reached is None:
            last = (chosen[-1].position.died_at, chosen[-1].position.version) if chosen else stored.after
        else:
            last = (reached.died_at, reached.version)
        died_again = 0 if job.stop_above is None else (yield from self._died_again(stored))
        ended = len(fitting) <= at_once and (reached is None or reached.died_at > job.created_at)
        return (yield from self._execute(stored, now, chosen, ended=ended, last=last, died_again=died_again))

    def _died_again(self, stored: StoredJob) -> Op[int]:
        """Redriven messages of the job that died again since its last step."""
        position = DeadPosition(*stored.judged or (stored.job.created_at, 0))
        queue, before = stored.job.target or stored.job.queue, stored.before_version
        deaths = yield from self._scan(queue, EVERY_LETTER, position, most=WALK)
        if deaths:
            stored.judged = (deaths[-1].position.died_at, deaths[-1].position.version)
        return sum(each.row.origin is not None and each.row.origin < before < each.row.version for each in deaths)

    def _execute(
        self,
        stored: StoredJob,
        now: datetime,
        letters: Sequence[Letter],
        *,
        ended: bool,
        last: tuple[datetime, int] | None,
        died_again: int = 0,
    ) -> Op[StoredJob]:
        """Redrive these letters. If a step with this number was executed before, its result is used instead."""
        job = stored.job
        text = msgspec.json.encode((len(letters), ended, last)).decode()
        step: dict[str, Any] = {"job": str(job.id), "step": stored.moves, "chosen": text}
        if job.jitter:
            step |= {"jitter": job.jitter // timedelta(microseconds=1), "seed": random.getrandbits(31)}
        if job.max_attempts is not None:
            step["max_attempts"] = job.max_attempts
        if job.target is None:
            text, revived = yield from self._revive(job.queue, letters, **step)
        else:
            text, revived = yield from self._move(stored, letters, **step)
        n, ended, last = msgspec.json.decode(text, type=tuple[int, bool, tuple[datetime, int] | None])
        stepped = job.stepped(now, revived, n, ended=ended, died_again=died_again)
        return msgspec.structs.replace(stored, job=stepped, after=last, moves=stored.moves + 1)

    @operation
    def next_redrive_in(self) -> Op[timedelta | None]:
        now, jobs = yield from self._registry("dead_letters/jobs", due_first=True)
        return max(_stored(jobs[1]).job.next_at - instant(now), timedelta(0)) if jobs else None

    def label(self, *, limit: int = 1000, leadership: Leadership | None = None) -> RedisOperation[int]:
        """No-op: a fingerprint is computed when a letter is read."""
        return self._result(0)


def _revived(chosen: bytes, revived: Sequence[bytes]) -> Revived:
    return chosen, [(int(version), key.decode()) for version, key in zip(revived[::2], revived[1::2], strict=True)]


_stored = msgspec.json.Decoder(StoredJob).decode
