"""Explanation of a tick's verdict."""

from collections.abc import Iterable
from datetime import datetime

from tarry.core.cron.model import FIRED, Overlap, Reason, ScheduleState, TickRecord, Verdict, describe
from tarry.core.cron.planner import MOST_COUNTED, plan


def explain(state: ScheduleState, tick: datetime, now: datetime, records: Iterable[TickRecord]) -> str:
    """A sentence with the past or expected verdict of a tick and its reason."""
    spec, shown = state.spec, tick.isoformat()
    entries = sorted(
        records, key=lambda record: (record.until is not None, record.verdict not in FIRED, record.hash != spec.hash)
    )
    if entries:
        return f"{shown}: {_recorded(entries[0])}"
    if not spec.timetable.has(tick):
        next_tick = spec.timetable.next_after(tick)
        then = "there is none after it" if next_tick is None else f"the next one after it is {next_tick.isoformat()}"
        return f"{shown} is not a tick of this schedule ({describe(spec.schedule)}); {then}"
    if state.forgotten_until is not None and tick <= state.forgotten_until:
        return f"{shown}: it is over, and its entry in the ledger was deleted; it will not fire again"
    if state.paused and tick > now:
        return f"{shown}: the schedule is paused; it will be skipped unless it is resumed before"
    if tick <= state.cursor_at and tick <= state.installed_at:
        return f"{shown}: the schedule was installed later, at {state.installed_at.isoformat(timespec='seconds')}"
    if tick <= now:
        return f"{shown}: nothing was decided yet; a scheduler that runs now would: {_would(state, tick, now)}"
    return f"{shown}: it lies ahead, and will be planned" + (
        " when its time has come, if the message before is not live then"
        if spec.policy.overlap is Overlap.SKIP
        else f", due at {spec.due_at(tick).isoformat()}"
    )


def _would(state: ScheduleState, tick: datetime, now: datetime) -> str:
    for decision in plan(state, now).decided:
        if decision.tick <= tick <= (decision.until or decision.tick):
            return f"{decision.verdict}, {_WHY[decision.reason]}"
    return "leave it, since it was decided before"


_WHY = {
    Reason.ON_TIME: "on time",
    Reason.LATE: "late, because no scheduler ran at its time",
    Reason.MISFIRE: "because no scheduler ran at its time, and the misfire policy does not make up for it",
    Reason.COALESCED: "because no scheduler ran at its time, and a later tick stands for all that were missed",
    Reason.OVERLAP: "because the message of the tick before was still live",
    Reason.PAUSED: "because the schedule was paused",
    Reason.BY_HAND: "by hand",
    Reason.REPLACED: "because the schedule was changed or removed before its message was delivered",
}


def _recorded(record: TickRecord) -> str:
    text = f"{record.verdict} at {record.decided_at.isoformat(timespec='seconds')}, {_WHY[record.reason]}"
    if record.until is not None:
        many = f"{record.count:,}" if record.count is not None else f"more than {MOST_COUNTED:,}"
        return f"{text}; one of {many} ticks from {record.tick.isoformat()} to {record.until.isoformat()}"
    if record.key is not None and record.verdict is not Verdict.WITHDRAWN:
        return f"{text}; message {record.key!r} in queue {record.queue!r}{' is still live' if record.live else ''}"
    return text
