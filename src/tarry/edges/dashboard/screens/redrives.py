"""Redrives: the wizard that starts a job, the list of jobs, and the page of a job with its controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from uuid import UUID, uuid4

from starlette.responses import Response

from tarry.core import limits
from tarry.core.dead_letters.redrive import (
    MOST_CANARIES,
    DeadFilter,
    RedriveJob,
    RedriveOptions,
    RedriveOutcome,
    RedrivePhase,
    RedriveState,
    check_canary,
    check_rate,
    check_stop_above,
)
from tarry.core.errors import InvalidInput, InvalidState, UnknownRedrive
from tarry.core.messages.model import Counted, MessagePosition
from tarry.core.search.bulk import Verb
from tarry.core.search.query import Period, Search, Span
from tarry.core.security.api_keys import Action
from tarry.edges.dashboard import commands
from tarry.edges.dashboard.commands import Commands, path
from tarry.edges.dashboard.listing import Column, Listing, whole
from tarry.edges.dashboard.screen import Page, View
from tarry.edges.dashboard.screens import dead_choice
from tarry.edges.dashboard.screens.dead import COUNTED_TO, screen
from tarry.edges.dashboard.screens.dead_choice import choice, query_of, words
from tarry.edges.formats import delay
from tarry.services.bulk import SeenMessage, apply

_STALLED_FOR = timedelta(seconds=15)
"""A job whose next step is overdue by this: no sweeper runs."""
DEFAULT_RATE = "50"
DEFAULT_CANARY = "5"
DEFAULT_STOP = "20"
"""Percent that may die again."""
_TARGETS = 200
"""Names of queues that are suggested."""
_UNDONE = 10_000
_PAGE = 500
"""Messages that one undo buries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivePlan:
    """How a redrive is to run."""

    rate: float | None
    canary: int
    target: str | None
    """None: their own queue."""
    after: timedelta = timedelta(0)
    jitter: timedelta = timedelta(0)
    stop_above: float | None = None
    max_attempts: int | None = None

    @classmethod
    def of(cls, queue: str, values: Mapping[str, str]) -> RedrivePlan:
        rate, canary = values.get("rate", DEFAULT_RATE).strip(), values.get("canary", DEFAULT_CANARY).strip() or "0"
        if (canaries := whole(canary, 5)) is None:
            raise InvalidInput(f"canary must be a number from 0 to {MOST_CANARIES:,}, not {canary!r:.40}")
        try:
            per_second = None if rate in ("", "0") else float(rate)
        except ValueError:
            raise InvalidInput(f"rate must be a number of messages per second, not {rate!r:.40}") from None
        percent = values.get("stop_above", DEFAULT_STOP).strip().removesuffix("%").strip()
        try:
            stop_above = float(percent) / 100 if percent else None
        except ValueError:
            raise InvalidInput(f"the share of failures must be a number of percent, not {percent!r:.40}") from None
        attempts = values.get("max_attempts", "").strip()
        if attempts and whole(attempts, 9) is None:
            raise InvalidInput(f"max_attempts must be a number, or empty for as many as before, not {attempts!r:.40}")
        named = values.get("target", "").strip() or queue
        target = None if named == queue else limits.check_queue_name(named)
        spans = {name: values.get(name, "").strip() for name in ("after", "jitter")}
        return cls(
            rate=check_rate(per_second),
            canary=check_canary(canaries),
            target=target,
            stop_above=check_stop_above(stop_above),
            max_attempts=limits.check_max_attempts(whole(attempts, 9)),
            **{name: delay(text, name) for name, text in spans.items() if text},
        )

    def takes(self, letters: Counted) -> timedelta | None:
        """How long the rate makes it take."""
        return None if self.rate is None else timedelta(seconds=letters.n / self.rate)


def job_path(job: int) -> str:
    return path("redrives", str(job))


@screen.page("/queues/{queue}/dead/redrive", Action.ADMIN)
async def wizard(view: View) -> Page:
    queue, where = view.path["queue"], choice(view)
    plan = await _plan(view, queue, view.query)
    role = view.app.store.dead_letters
    matching = await view.run(role.count(queue, where=where, limit=COUNTED_TO))
    groups = await view.run(role.groups(queue, limit=30, cap=1_000))
    return view.page(
        "dead_letters/redrive.html",
        f"Redrive dead letters of {queue}",
        queue=queue,
        where=query_of(where),
        words=words(where),
        plan=plan,
        takes=plan.takes(matching.letters),
        matching=matching,
        movable=matching.letters.n if plan.target else max(0, matching.letters.n - matching.blocked),
        targets=(await view.queues(Action.PRODUCE))[:_TARGETS],
        groups=groups,
        request=uuid4(),
        commands=dead_choice.redriven(view, queue, where, **asdict(plan)),
    )


@screen.form("/queues/{queue}/dead/redrive", Action.ADMIN, "redrive dead letters")
async def start(view: View) -> Response:
    queue, where = view.path["queue"], choice(view, view.form)
    plan = await _plan(view, queue, view.form)
    try:
        request = UUID(view.form.get("request", ""))
    except ValueError:
        raise InvalidInput("the form names no request", hint="start again from the list of dead letters") from None
    options = RedriveOptions(
        where=where,
        rate=plan.rate,
        canary=plan.canary,
        started_by=view.visitor.id,
        request=request,
        target=plan.target,
        after=plan.after,
        jitter=plan.jitter,
        stop_above=plan.stop_above,
        max_attempts=plan.max_attempts,
    )
    job = await view.run(view.app.store.dead_letters.start_redrive(queue, options))
    # The first step at once, to be seen on its page; a sweeper makes the others.
    await view.run(view.app.store.dead_letters.advance_redrive(job.id))
    to = f" to {job.target}" if job.target else ""
    return view.done(f"job {job.id} redrives {job.total} dead letters of {queue}{to}", job_path(job.id))


async def _plan(view: View, queue: str, values: Mapping[str, str]) -> RedrivePlan:
    plan = RedrivePlan.of(queue, values)
    if plan.target is not None:
        view.visitor.require(Action.PRODUCE, plan.target)
        await view.app.queues.get(plan.target)
    return plan


@screen.page("/redrives")
async def jobs(view: View) -> Page:
    queue = view.query.get("queue") or None
    if queue is not None:
        view.visitor.require(Action.READ, queue)
    newest = await view.run(view.app.store.dead_letters.redrive_jobs(queue, limit=view.limit))
    columns = (
        Column("id", "Job", "number", href=lambda job: job_path(job.id)),
        Column("queue", "Queue"),
        Column("state", "State", value=lambda job: job.state.value),
        Column("which", "Which", value=lambda job: words(job.where)),
        Column("redriven", "Redriven", "number"),
        Column("total", "Of", "number"),
        Column("skipped", "Skipped", "number"),
        Column("rate", "Rate", "number"),
        Column("canary", "Canaries", "number"),
        Column("started_by", "By"),
        Column("created_at", "Started", "time"),
        Column("ended_at", "Ended", "time"),
        Column("reason", "Reason"),
        Column("target", "To", value=lambda job: job.target or job.queue),
    )
    return view.page(
        "dead_letters/redrives.html",
        "Redrive jobs",
        topics=("dead", "clock"),
        listing=Listing(columns=columns, rows=[job for job in newest if view.sees(job.queue)], name="redrives"),
        limit=view.limit,
        is_full=len(newest) == view.limit,
        words=words,
        job_path=job_path,
        commands=Commands(
            curl=commands.curl(view.api("redrives")),
            cli=commands.cli("redrive", "list"),
            python=commands.python("for job in app.redrives.list():", "    print(job.id, job.state, job.redriven)"),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A job with what became of what it has revived."""

    job: RedriveJob
    outcome: RedriveOutcome

    @property
    def left(self) -> int:
        return max(0, self.job.total.n - self.job.redriven - self.job.skipped)

    @property
    def succeeded(self) -> int:
        return max(0, self.job.redriven - self.outcome.died_again.n - self.outcome.live.n)

    @property
    def is_exact(self) -> bool:
        return not (self.outcome.died_again.capped or self.outcome.live.capped)

    @property
    def per_second(self) -> float | None:
        """Since it began, pauses included."""
        seconds = ((self.job.ended_at or self.job.updated_at) - self.job.created_at).total_seconds()
        return self.job.redriven / seconds if seconds > 0 and self.job.redriven else None

    @property
    def ends_in(self) -> timedelta | None:
        speed = self.job.rate or self.per_second
        if self.job.ended or not speed or self.job.phase is not RedrivePhase.REST:
            return None
        return timedelta(seconds=self.left / speed)


@screen.page("/redrives/{job}")
async def job(view: View) -> Page:
    current = await _job(view, Action.READ)
    store = view.app.store
    outcome = await view.run(store.rollups.redrive_outcome(current.id))
    recent = await view.run(store.dead_letters.redrive_jobs(current.queue, limit=20)) if current.redriven else []
    return view.page(
        "dead_letters/redrive_job.html",
        f"Redrive job {current.id}",
        topics=("dead", "messages", "clock"),
        job=current,
        progress=Progress(job=current, outcome=outcome),
        words=words(current.where),
        where=query_of(current.where),
        is_waiting=current.step == 0 and current.next_at > view.now,
        is_stalled=current.state is RedriveState.RUNNING and view.now - current.next_at > _STALLED_FOR,
        overlapping=[other for other in recent if other.id != current.id and _overlap(current, other)],
        is_every=current.where == DeadFilter(),
        can_undo=current.state is not RedriveState.RUNNING
        and outcome.live.n > 0
        and view.may("admin", current.target or current.queue),
        commands=dead_choice.job_commands(view, current.id),
        verb_commands={
            verb: dead_choice.job_commands(view, current.id, verb) for verb in ("pause", "resume", "cancel")
        },
        undo=Commands(curl=commands.form(view.form_url("redrives", str(current.id), "undo"), {})),
    )


def _overlap(job: RedriveJob, other: RedriveJob) -> bool:
    return bool(other.redriven) and (other.ended_at is None or other.ended_at > job.created_at)


@screen.form("/redrives/{job}/pause", Action.ADMIN, "pause a redrive")
async def pause(view: View) -> Response:
    return await _turn(view, RedriveState.PAUSED, "is paused")


@screen.form("/redrives/{job}/resume", Action.ADMIN, "resume a redrive")
async def resume(view: View) -> Response:
    return await _turn(view, RedriveState.RUNNING, "continues")


@screen.form("/redrives/{job}/cancel", Action.ADMIN, "cancel a redrive")
async def cancel(view: View) -> Response:
    return await _turn(view, RedriveState.CANCELLED, "is cancelled: redriven messages stay live, the others stay dead")


@screen.form("/redrives/{job}/undo", Action.ADMIN, "undo a redrive")
async def undo(view: View) -> Response:
    """Bury again what the job has revived and no consumer has had yet."""
    current = await _job(view, Action.ADMIN)
    view.visitor.require(Action.ADMIN, current.target or current.queue)
    if current.state is RedriveState.RUNNING:
        raise InvalidState(f"redrive job {current.id} is running: pause or cancel it first")
    recent = await view.run(view.app.store.dead_letters.redrive_jobs(current.queue, limit=_TARGETS))
    if others := [other.id for other in recent if other.id != current.id and _overlap(current, other)]:
        numbers = ", ".join(map(str, others[:5]))
        raise InvalidState(f"job {numbers} redrove at the same time: what this job redrove cannot be distinguished")
    buried = await _bury_undelivered(view, current)
    word = "message is" if buried == 1 else "messages are"
    return view.done(f"{buried:,} undelivered {word} dead again", job_path(current.id))


async def _bury_undelivered(view: View, job: RedriveJob) -> int:
    store, queue = view.app.store, job.target or job.queue
    search = Search(attempts=Span(0, 0), created=Period(job.created_at, None))
    after, buried = None, 0
    while buried < _UNDONE:
        page = await view.run(store.search.messages(search, [queue], limit=_PAGE, after=after))
        for message in page.messages:
            if message.origin is not None:
                seen = SeenMessage(queue, message.key, message.version)
                buried += await apply(store, Verb.BURY, seen, error=f"redrive job {job.id} was undone")
        if len(page.messages) == _PAGE:
            after = MessagePosition(page.messages[-1].due_at, page.messages[-1].version)
        elif (after := page.horizon) is None:
            break
    return buried


async def _turn(view: View, state: RedriveState, sentence: str) -> Response:
    current = await _job(view, Action.ADMIN)
    handle = await view.app.redrives.get(current.id)
    if state is RedriveState.RUNNING:
        await handle.resume()
    else:
        reason = view.form.get("reason") or None
        await (handle.pause(reason) if state is RedriveState.PAUSED else handle.cancel(reason))
    return view.done(f"job {current.id} {sentence}", job_path(current.id))


async def _job(view: View, action: Action) -> RedriveJob:
    """The job of the path, if the visitor has the right on its queue."""
    number = whole(view.path["job"]) or 0
    current = await view.run(view.app.store.dead_letters.redrive_job(number))
    if current is None:
        raise UnknownRedrive(number)
    view.visitor.require(action, current.queue)
    return current
