"""What groups of dead letters and redrive jobs look like: as data for programs, as cells for people."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tarry.core.messages import DeadLetter
from tarry.core.redriving import DeadFilter, DeadGroup, Phase, RedriveJob, RedriveState
from tarry.edges.cli.output import Cell, Column, Value
from tarry.edges.cli.payloads import payload_line
from tarry.edges.cli.text import plural, shortened
from tarry.edges.cli.views import counted_data, due, raw
from tarry.edges.times import exact, instant, relative

_ERROR_WIDTH = 80
_STYLES = {
    RedriveState.RUNNING: "green",
    RedriveState.PAUSED: "yellow",
    RedriveState.CANCELLED: "yellow",
    RedriveState.DONE: "",
    RedriveState.FAILED: "red",
}

GROUP_COLUMNS = (
    Column("group", style="bold"),
    Column("dead", right=True),
    Column("reason"),
    Column("last"),
    Column("first"),
    Column("attempts", right=True),
    Column("types"),
    Column("error"),
)
JOB_COLUMNS = (
    Column("job", right=True, style="bold"),
    Column("queue"),
    Column("state"),
    Column("redriven", right=True),
    Column("of", right=True),
    Column("skipped", right=True),
    Column("rate", right=True),
    Column("canary", right=True),
    Column("started"),
    Column("by"),
    Column("which"),
)


def group_data(group: DeadGroup) -> dict[str, Any]:
    return {
        "fingerprint": group.fingerprint,
        "reason": group.reason,
        "pattern": group.pattern,
        "count": counted_data(group.count),
        "first_died_at": exact(group.first_died_at),
        "last_died_at": exact(group.last_died_at),
        "types": list(group.types),
        "attempts": {"fewest": group.fewest_attempts, "most": group.most_attempts},
        "example": {"version": group.example, "key": group.example_key, "error": group.error},
    }


def group_row(group: DeadGroup, now: datetime) -> list[Value]:
    attempts = {group.fewest_attempts, group.most_attempts}
    return [
        group.fingerprint,
        str(group.count),
        group.reason,
        relative(group.last_died_at, now),
        relative(group.first_died_at, now),
        "-".join(map(str, sorted(attempts))),
        ", ".join(group.types[:3]) + (" …" if len(group.types) > 3 else ""),
        Cell(shortened(group.pattern or "(no error was given)", _ERROR_WIDTH), "red"),
    ]


def dead_fields(dead: DeadLetter[bytes], now: datetime) -> list[tuple[str, Value]]:
    fields: list[tuple[str, Value]] = [
        ("version", str(dead.version)),
        ("key", dead.key),
        ("queue", dead.queue),
        ("died", due(dead.died_at, now)),
        ("reason", Cell(dead.reason, "red")),
        ("attempt", str(dead.attempt)),
        ("group", dead.fingerprint or "not named yet: tarry dlq groups"),
        ("due", due(dead.due_at, now)),
        ("priority", str(dead.priority)),
    ]
    if dead.type is not None:
        fields.append(("type", dead.type))
    if dead.consumer is not None:
        fields.append(("last held by", dead.consumer))
    if dead.origin is not None:
        fields.append(("redriven from", f"version {dead.origin}"))
    fields += [(f"header {name}", value) for name, value in sorted((dead.headers or {}).items())]
    fields.append(("payload", payload_line(raw(dead))))
    lines = (dead.error or "").splitlines() or [""]
    return [*fields, *(("error" if i == 0 else "", line) for i, line in enumerate(lines))]


def filter_data(where: DeadFilter) -> dict[str, Any]:
    return {
        "fingerprint": where.fingerprint,
        "type": where.type,
        "died_from": exact(where.died_from),
        "died_to": exact(where.died_to),
        "key_prefix": where.key_prefix,
        "versions": None if where.versions is None else list(where.versions),
    }


def filter_words(where: DeadFilter) -> str:
    said = [
        f"group {where.fingerprint}" if where.fingerprint else "",
        f"type {where.type}" if where.type else "",
        f"key {where.key_prefix}…" if where.key_prefix else "",
        f"since {instant(where.died_from)}" if where.died_from else "",
        f"until {instant(where.died_to)}" if where.died_to else "",
        plural(len(where.versions), "version") if where.versions is not None else "",
    ]
    return ", ".join(word for word in said if word) or "every dead letter"


def job_data(job: RedriveJob) -> dict[str, Any]:
    return {
        "job": job.id,
        "queue": job.queue,
        "state": job.state.value,
        "phase": job.phase.value,
        "reason": job.reason,
        "where": filter_data(job.where),
        "rate": job.rate,
        "canary": job.canary,
        "canaries": list(job.canaries),
        "total": counted_data(job.total),
        "redriven": job.redriven,
        "skipped": job.skipped,
        "who": job.who,
        "created_at": exact(job.created_at),
        "updated_at": exact(job.updated_at),
        "ended_at": exact(job.ended_at),
    }


def job_row(job: RedriveJob, now: datetime) -> list[Value]:
    return [
        str(job.id),
        job.queue,
        job_state(job),
        f"{job.redriven:,}",
        str(job.total),
        f"{job.skipped:,}",
        _rate(job),
        str(job.canary or ""),
        relative(job.created_at, now),
        job.who or "",
        filter_words(job.where),
    ]


def job_fields(job: RedriveJob, now: datetime) -> list[tuple[str, Value]]:
    fields: list[tuple[str, Value]] = [
        ("job", str(job.id)),
        ("queue", job.queue),
        ("state", job_state(job)),
        ("which", filter_words(job.where)),
        ("redriven", f"{job.redriven:,} of {job.total}"),
        ("skipped", f"{job.skipped:,}"),
        ("rate", _rate(job) or "as fast as it goes"),
        ("canary", _canary(job)),
        ("started", due(job.created_at, now)),
    ]
    if job.who:
        fields.append(("by", job.who))
    if job.ended_at is not None:
        fields.append(("ended", due(job.ended_at, now)))
    if job.reason:
        fields.append(("because", job.reason))
    return fields


def job_state(job: RedriveJob) -> Cell:
    waiting = job.state is RedriveState.RUNNING and job.phase is Phase.VERDICT
    return Cell("waiting for its canaries" if waiting else job.state.value, _STYLES[job.state])


def _rate(job: RedriveJob) -> str:
    return "" if job.rate is None else f"{job.rate:g}/s"


def _canary(job: RedriveJob) -> str:
    if not job.canary:
        return "none"
    return (
        f"{job.canary} first"
        if not job.canaries
        else f"{len(job.canaries)} went first: {', '.join(job.canary_keys[:5])}"
    )
