"""P1 to P9 and T5 to T11, each part with its formula, what was measured, and whether that is enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import Enum
from statistics import median
from typing import Any

from benchmarks import reclaim, worker
from benchmarks.contenders import BEFORE, ORIGINALS, PROTOTYPE, TARRY, TARRY_BARE
from benchmarks.plan import Plan
from benchmarks.results import Results, Sample
from benchmarks.scenarios import measures as m
from benchmarks.scenarios.lateness import WAITING

NOT_RUN = "not part of this run"
RELAY = {1: 847, 5: 2_134}
"""P8: offers per second of Relay at so many at once, as published: in its own process, without HTTP or activity log."""
RECLAIMED = 10_000
"""T11: so many leases at least."""


class Status(Enum):
    MET = "MET"
    MISSED = "MISSED"
    VOID = "VOID"
    NOT_MEASURED = "NOT MEASURED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    target: str
    formula: str
    measured: float | None
    limit: float
    at_least: bool
    """Whether the limit is a floor; else it is a ceiling."""
    unit: str = ""
    unfit: str = ""
    """Why the figure, if there is one, does not decide the target."""
    note: str = ""
    collapsed: str = ""
    """Why a figure means nothing: the contender whose rounds differ too much, or a busy machine."""

    @property
    def status(self) -> Status:
        if self.measured is None or self.unfit:
            return Status.NOT_MEASURED
        if self.collapsed:
            return Status.VOID
        good = self.measured >= self.limit if self.at_least else self.measured <= self.limit
        return Status.MET if good else Status.MISSED

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"status": self.status.value}


def verdicts(results: Results, plan: Plan) -> list[Verdict]:
    parts = (_workers, _singles, _batches, _cpu, _broker)
    kept = [check for part in (_t5, _t6, _t7, _t8, _t9, _t10, _t11) for check in part(results)]
    checks = [*(check for part in parts for check in part(results)), _p9(kept), *kept]
    return checks if plan.judges else [replace(check, unfit=f"a {plan.name} run") for check in checks]


def _floor(
    target: str,
    formula: str,
    limit: float,
    measured: float | None,
    unit: str = "×",
    *,
    collapsed: str = "",
    unfit: str = "",
) -> Verdict:
    return Verdict(
        target=target,
        formula=formula,
        measured=measured,
        limit=limit,
        at_least=True,
        unit=unit,
        unfit=unfit or ("" if measured is not None else NOT_RUN),
        collapsed=collapsed,
    )


def _ceiling(
    target: str, formula: str, limit: float, measured: float | None, unit: str, *, unfit: str = "", note: str = ""
) -> Verdict:
    return Verdict(
        target=target,
        formula=formula,
        measured=measured,
        limit=limit,
        at_least=False,
        unit=unit,
        unfit=unfit or ("" if measured is not None else NOT_RUN),
        note=note,
    )


def _against(r: Results, target: str, measure: str, contender: str, limit: float, ours: str = TARRY) -> Verdict:
    """Our rate by that of another contender."""
    collapsed = [f"{name} collapsed" for name in (ours, contender) if r.collapsed(measure, name)]
    ratio = r.ratio((measure, ours), (measure, contender))
    unfit = "" if ratio is not None else r.skipped.get(measure, {}).get(contender, "")
    return _floor(target, f"{measure} / {contender}", limit, ratio, collapsed=", ".join(collapsed), unfit=unfit)


def _against_before(r: Results, target: str, measure: str, limit: float) -> Verdict:
    ratio = r.ratio((measure, TARRY), (measure, BEFORE), _cpu_us)
    note = "" if ratio is None else f"CPU {ratio:.2f} ×"
    return replace(_against(r, target, measure, BEFORE, limit), note=note)


def _cpu_us(sample: Sample) -> float | None:
    return None if sample.backend_us is None else sample.backend_us + sample.client_us


def _busy(r: Results, check: Verdict) -> Verdict:
    """A rate that is missed on a busy machine decides nothing."""
    busy = r.facts.get("busy", "")
    return replace(check, collapsed=busy) if busy and check.status is Status.MISSED else check


def _workers(r: Results) -> list[Verdict]:
    return [_against(r, "P1", measure, worker.PLAIN, worker.TARGET, worker.ASYNC) for measure in m.WORKERS]


def _singles(r: Results) -> list[Verdict]:
    return [
        _against(r, "P2", m.OFFER_ONE, "pgbench INSERT c=1", 0.7),
        _against(r, "P2", m.OFFER_ONE, ORIGINALS, 1.2),
        _against(r, "P3", m.CONSUME_LOOP, "pgbench INSERT c=1", 0.7),
        _against(r, "P3", m.CONSUME_ONE, "pgbench INSERT c=1", 0.42),
        _against(r, "P3", m.CONSUME_ONE, ORIGINALS, 1.5),
        _against(r, "P4", m.CONSUME_CROWD, "pgbench INSERT c=8", 0.55),
    ]


def _batches(r: Results) -> list[Verdict]:
    return [
        _against_before(r, "P5", m.CONSUME_MANY_BEFORE, 1.7),
        _against(r, "P5", m.CONSUME_MANY, ORIGINALS, 1.5),
        _against_before(r, "P6", m.OFFER_MANY_BEFORE, 1.5),
        _against(r, "P6", m.OFFER_MANY, ORIGINALS, 1.5),
        _against(r, "P6", m.OFFER_BULK, "raw COPY", 0.5),
    ]


def _cpu(r: Results) -> list[Verdict]:
    def cpu(contender: str) -> list[float]:
        """Per round: offer, poll and ack of one message, client + backend."""
        rounds = zip(r.of(m.OFFER_MANY, contender), r.of(m.CONSUME_MANY, contender), strict=False)
        costs = [(_cpu_us(offered), _cpu_us(consumed)) for offered, consumed in rounds]
        return [offered + consumed for offered, consumed in costs if offered is not None and consumed is not None]

    pairs = zip(cpu(TARRY), cpu(PROTOTYPE.name), strict=False)
    ratios = [ours / theirs for ours, theirs in pairs]
    medians = [f"{name} {median(costs):.1f}" for name in (TARRY, PROTOTYPE.name, TARRY_BARE) if (costs := cpu(name))]
    formula = f"CPU of offer + poll + ack in batches, client + backend / {PROTOTYPE.name}"
    note = f"{', '.join(medians)} µs" if medians else ""
    return [_ceiling("P7", formula, 1, median(ratios) if ratios else None, "×", note=note)]


def _broker(r: Results) -> list[Verdict]:
    checks: list[Verdict] = []
    for measure, tasks in m.BROKER.items():
        sides = [r.median(measure, name, lambda sample: sample.client_us) for name in (TARRY, BEFORE)]
        ratio = r.ratio((measure, TARRY), (measure, BEFORE), lambda sample: sample.client_us)
        note = f"{sides[0]:,.0f} and {sides[1]:,.0f} µs" if sides[0] and sides[1] else ""
        unfit = "" if ratio is not None else r.skipped.get(measure, {}).get(BEFORE, "")
        formula = f"CPU of the broker per single offer, {tasks} at once / {BEFORE}"
        checks.append(_ceiling("P8", formula, 0.5, ratio, "×", unfit=unfit, note=note))
        if tasks in RELAY:
            offered = r.median(measure, TARRY, lambda sample: sample.rate)
            collapsed = f"{TARRY} collapsed" if r.collapsed(measure, TARRY) else ""
            formula = f"single offers to the broker, {tasks} at once"
            checks.append(_busy(r, _floor("P8", formula, RELAY[tasks], offered, "/s", collapsed=collapsed)))
    return checks


def _p9(kept: list[Verdict]) -> Verdict:
    by_status = {status: {check.target for check in kept if check.status is status} for status in Status}
    open_targets = by_status[Status.NOT_MEASURED] | by_status[Status.VOID]
    missed = by_status[Status.MISSED]
    names = {check.target for check in kept}
    check = _floor("P9", "T5 to T11 below: how many are met", len(names), len(names - open_targets - missed), "")
    # A missed part decides; a part that was not measured leaves it open.
    return replace(
        check, unfit="" if missed or not open_targets else f"open: {', '.join(sorted(open_targets, key=_number))}"
    )


def _number(target: str) -> int:
    return int(target[1:])


def _t5(r: Results) -> list[Verdict]:
    ceiling = "pgbench INSERT c=128"
    return [
        _against(r, "T5", m.AWAIT_OFFER, ceiling, 2),
        _against(r, "T5", m.AWAIT_ACK, ceiling, 2.5),
    ]


def _t6(r: Results) -> list[Verdict]:
    windows = held_windows(r, TARRY)
    facts = r.facts.get("held", {}).get(TARRY, {})
    short: list[str] = []
    if facts and facts["seconds"] < 300:
        short.append(f"{facts['seconds']:g} s of 300")
    if facts and facts["dead_rows"] < 2_000_000:
        short.append(f"{facts['dead_rows']:,} dead rows of 2 M")
    if facts and facts["autoanalyzes"] < 3:
        short.append(f"{facts['autoanalyzes']} autoanalyzes of 3")
    ratio = windows[1] / windows[0] if windows and windows[0] else None
    note = f"{windows[0]:.1f} → {windows[1]:.1f} µs" if windows else ""
    formula = "held snapshot: backend CPU per message, end / start"
    return [_ceiling("T6", formula, 1.25, ratio, "×", unfit=", ".join(short), note=note)]


def held_windows(r: Results, contender: str) -> tuple[float, float] | None:
    """Backend CPU per message in the first and in the last tenth of the time, at least two turns each."""
    samples = r.of(m.HELD, contender)
    window = max(2, len(samples) // 10)
    start, end = _pooled(samples[:window]), _pooled(samples[-window:])
    return None if start is None or end is None else (start, end)


def _pooled(samples: Any) -> float | None:
    costs = [sample.backend_s for sample in samples]
    return None if not costs or None in costs else sum(costs) / sum(sample.n for sample in samples) * 1e6


def _t7(r: Results) -> list[Verdict]:
    return [
        _poll_ratio(r, "T7", m.POLL_FUTURE, "future", 5_000_000),
        _poll_ratio(r, "T7", m.POLL_READY, "ready", 1_000_000),
    ]


def _t8(r: Results) -> list[Verdict]:
    return [_poll_ratio(r, "T8", m.POLL_IN_FLIGHT, "in_flight", 50_000)]


def _poll_ratio(r: Results, target: str, measure: str, fact: str, intended: int) -> Verdict:
    def against_empty(figure: Callable[[Sample], float | None]) -> float | None:
        return r.ratio((measure, TARRY), (measure, TARRY + m.EMPTY), figure)

    n = r.facts.get(fact, 0)
    unfit = f"{n:,} of {intended:,}" if 0 < n < intended else ""
    cpu = against_empty(lambda sample: sample.backend_us)
    note = f"backend CPU {cpu:.2f} ×" if cpu is not None else ""
    formula = f"poll with {n or intended:,} {fact.replace('_', ' ')}, time / empty"
    return _ceiling(target, formula, 1.5, against_empty(lambda sample: 1 / sample.rate), "×", unfit=unfit, note=note)


def _t9(r: Results) -> list[Verdict]:
    def wal(measure: str, contender: str) -> float | None:
        return r.median(measure, contender, lambda sample: sample.wal_per_message)

    def more(measure: str, events: int) -> float | None:
        on, off = wal(measure, TARRY), wal(measure, TARRY_BARE)
        return None if on is None or off is None else (on - off) / events

    def theirs(measure: str) -> str:
        wal_bytes = wal(measure, ORIGINALS)
        return "" if wal_bytes is None else f"originals {wal_bytes:,.0f}"

    hot = r.facts.get("hot", {}).get(TARRY)
    offered, consumed = wal(m.OFFER_MANY, TARRY_BARE), wal(m.CONSUME_MANY, TARRY_BARE)
    return [
        _ceiling("T9", "WAL per message offered, journal off", 450, offered, "B", note=theirs(m.OFFER_MANY)),
        _ceiling("T9", "WAL per message consumed, journal off", 420, consumed, "B", note=theirs(m.CONSUME_MANY)),
        _ceiling("T9", "WAL per event, offering", 190, more(m.OFFER_MANY, 1), "B"),
        _ceiling("T9", "WAL per event, consuming (two events)", 190, more(m.CONSUME_MANY, 2), "B"),
        _floor("T9", "HOT updates", 99, hot, "%"),
    ]


def _t10(r: Results) -> list[Verdict]:
    late = r.facts.get("lateness", {})
    figures = late.get("idle", {}).get(WAITING, {})
    rate = late.get("statements_per_s", {}).get(WAITING)
    per_minute = None if rate is None else 60 * rate / late["consumers"]
    note = f"p50 {figures['p50']:.1f}, max {figures['max']:.1f} ms" if figures.get("n") else ""
    return [
        _ceiling("T10", "lateness of an idle consumer, p99", 10, figures.get("p99"), "ms", note=note),
        _ceiling("T10", "statements per idle consumer and minute", 1, per_minute, ""),
    ]


def _t11(r: Results) -> list[Verdict]:
    n, rates = r.facts.get("reclaimed", 0), r.facts.get("reclaim", {})
    unfit = f"{n:,} of {RECLAIMED:,}" if 0 < n < RECLAIMED else ""
    formula = "reclaim after all consumers died, {}"
    return [
        _busy(r, _floor("T11", formula.format(what), reclaim.TARGET, rates.get(what), "/s", unfit=unfit))
        for what in reclaim.WAYS
    ]
