"""T1 to T10 of the storage design, each part with its formula, what was measured, and whether that is enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from benchmarks.contenders import GRAPHILE, ORIGINALS, PGMQ, PGQUE, TARRY, TARRY_BARE
from benchmarks.plan import Plan
from benchmarks.results import Results, Sample
from benchmarks.scenarios import measures as m
from benchmarks.scenarios.lateness import WAITING

PEERS_FOLLOW = "peers follow"
NOT_RUN = "not part of this run"


class Status(Enum):
    MET = "MET"
    MISSED = "MISSED"
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

    @property
    def status(self) -> Status:
        if self.measured is None or self.unfit:
            return Status.NOT_MEASURED
        good = self.measured >= self.limit if self.at_least else self.measured <= self.limit
        return Status.MET if good else Status.MISSED

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"status": self.status.value}


def verdicts(results: Results, plan: Plan) -> list[Verdict]:
    checks = [check for part in (_t1, _t2, _t3, _t4, _t5, _t6, _t7, _t8, _t9, _t10) for check in part(results)]
    return checks if plan.judges else [replace(check, unfit=f"a {plan.name} run") for check in checks]


def _floor(target: str, formula: str, limit: float, measured: float | None, reason: str = NOT_RUN) -> Verdict:
    return Verdict(
        target=target,
        formula=formula,
        measured=measured,
        limit=limit,
        at_least=True,
        unit="×",
        unfit="" if measured is not None else reason,
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


def _t1(r: Results) -> list[Verdict]:
    def against(peer: str) -> float | None:
        return r.ratio((m.OFFER_MANY, TARRY), (m.OFFER_MANY, peer))

    copied = r.ratio((m.OFFER_BULK, TARRY), (m.OFFER_BULK, "raw COPY"))
    return [
        _floor("T1", "offer_many(1,000) rate / originals' SQL", 3, against(ORIGINALS)),
        _floor("T1", "offer_many(1,000) rate / pgmq", 1.3, against(PGMQ), PEERS_FOLLOW),
        _floor("T1", "offer_many(20,000) rate / raw COPY, same indexes", 0.4, copied),
    ]


def _t2(r: Results) -> list[Verdict]:
    def against(peer: str) -> float | None:
        return r.ratio((m.CONSUME_MANY, TARRY), (m.CONSUME_MANY, peer))

    return [
        _floor("T2", "poll_many(1,000) + ack rate / originals' SQL", 2.5, against(ORIGINALS)),
        _floor("T2", "poll_many(1,000) + ack rate / pgmq", 2.5, against(PGMQ), PEERS_FOLLOW),
        _floor("T2", "poll_many(1,000) + ack rate / PgQue", 1, against(PGQUE), PEERS_FOLLOW),
        _floor("T2", "poll_many(1,000) + ack rate / graphile-worker", 3, against(GRAPHILE), PEERS_FOLLOW),
    ]


def _t3(r: Results) -> list[Verdict]:
    def cpu(sample: Sample) -> float | None:
        return None if sample.backend_us is None else sample.backend_us + sample.client_us

    offered, consumed = r.median(m.OFFER_MANY, TARRY, cpu), r.median(m.CONSUME_MANY, TARRY, cpu)
    total = None if offered is None or consumed is None else offered + consumed
    bare = [r.median(measure, TARRY_BARE, cpu) for measure in (m.OFFER_MANY, m.CONSUME_MANY)]
    note = f"journal off {sum(b or 0 for b in bare):.1f}" if None not in bare else ""
    return [_ceiling("T3", "CPU of offer, poll and ack, client + backend, batches", 20, total, "µs", note=note)]


def _t4(r: Results) -> list[Verdict]:
    one = r.ratio((m.CONSUME_ONE, TARRY), (m.CONSUME_ONE, "pgbench INSERT c=1"))
    eight = r.ratio((m.CONSUME_CROWD, TARRY), (m.CONSUME_CROWD, "pgbench INSERT c=8"))
    return [
        _floor("T4", "poll + ack one by one, 1 consumer / pgbench c=1", 0.85, one),
        _floor("T4", "poll + ack one by one, 8 consumers / pgbench c=8", 0.9, eight),
    ]


def _t5(r: Results) -> list[Verdict]:
    ceiling = "pgbench INSERT c=128"
    return [
        _floor(
            "T5", "await offer, 128 tasks / pgbench c=128", 2, r.ratio((m.AWAIT_OFFER, TARRY), (m.AWAIT_OFFER, ceiling))
        ),
        _floor(
            "T5", "await ack, 128 tasks / pgbench c=128", 2.5, r.ratio((m.AWAIT_ACK, TARRY), (m.AWAIT_ACK, ceiling))
        ),
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


def _poll_ratio(r: Results, target: str, measure: str, fact: str, wanted: int) -> Verdict:
    def against_empty(figure: Callable[[Sample], float | None]) -> float | None:
        return r.ratio((measure, TARRY), (measure, TARRY + m.EMPTY), figure)

    n = r.facts.get(fact, 0)
    unfit = f"{n:,} of {wanted:,}" if 0 < n < wanted else ""
    cpu = against_empty(lambda sample: sample.backend_us)
    note = f"backend CPU {cpu:.2f} ×" if cpu is not None else ""
    formula = f"poll with {n or wanted:,} {fact.replace('_', ' ')}, time / empty"
    return _ceiling(target, formula, 1.5, against_empty(lambda sample: 1 / sample.rate), "×", unfit=unfit, note=note)


def _t9(r: Results) -> list[Verdict]:
    def wal(measure: str, contender: str) -> float | None:
        return r.median(measure, contender, lambda sample: sample.wal_per_message)

    def more(measure: str, events: int) -> float | None:
        on, off = wal(measure, TARRY), wal(measure, TARRY_BARE)
        return None if on is None or off is None else (on - off) / events

    def theirs(measure: str) -> str:
        found = wal(measure, ORIGINALS)
        return "" if found is None else f"originals {found:,.0f}"

    hot = r.facts.get("hot", {}).get(TARRY)
    offered, consumed = wal(m.OFFER_MANY, TARRY_BARE), wal(m.CONSUME_MANY, TARRY_BARE)
    return [
        _ceiling("T9", "WAL per message offered, journal off", 450, offered, "B", note=theirs(m.OFFER_MANY)),
        _ceiling("T9", "WAL per message consumed, journal off", 420, consumed, "B", note=theirs(m.CONSUME_MANY)),
        _ceiling("T9", "WAL per event, offering", 190, more(m.OFFER_MANY, 1), "B"),
        _ceiling("T9", "WAL per event, consuming (two events)", 190, more(m.CONSUME_MANY, 2), "B"),
        replace(_floor("T9", "HOT updates", 99, hot), unit="%"),
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
