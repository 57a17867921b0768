"""Detected anomalies compared with injected faults."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from benchmarks.anomalies.faults import KINDS, Fault

SLACK = timedelta(minutes=10)
"""After the end of a fault its traces are still there: what was late is worked off, and sums over ten minutes remember."""

Incident = tuple[int, datetime, datetime]
"""Queue, from, to."""


@dataclass(frozen=True)
class Score:
    name: str
    faults: int
    detected: int
    incidents: int
    false: int
    by_kind: dict[str, tuple[int, int]]

    @property
    def precision(self) -> float:
        return (self.incidents - self.false) / self.incidents if self.incidents else 0.0

    @property
    def recall(self) -> float:
        return self.detected / self.faults if self.faults else 0.0

    @property
    def f1(self) -> float:
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0

    def __add__(self, other: Score) -> Score:
        kinds = {
            kind: tuple(map(sum, zip(self.by_kind.get(kind, (0, 0)), other.by_kind.get(kind, (0, 0)), strict=True)))
            for kind in {**self.by_kind, **other.by_kind}
        }
        return Score(
            self.name,
            self.faults + other.faults,
            self.detected + other.detected,
            self.incidents + other.incidents,
            self.false + other.false,
            kinds,  # type: ignore[arg-type]
        )


def merged(incidents: Iterable[Incident]) -> list[Incident]:
    """What happens to one queue at one time is one incident, however many metrics show it."""
    whole: list[Incident] = []
    for queue_id, frm, to in sorted(incidents):
        if whole and whole[-1][0] == queue_id and frm <= whole[-1][2] + SLACK:
            whole[-1] = (queue_id, whole[-1][1], max(whole[-1][2], to))
        else:
            whole.append((queue_id, frm, to))
    return whole


def scored(name: str, incidents: Iterable[Incident], faults: Sequence[Fault]) -> Score:
    whole = merged(incidents)

    def meet(incident: Incident, fault: Fault) -> bool:
        frm, to = fault.span()
        return incident[0] == fault.queue_id and incident[1] < to + SLACK and incident[2] > frm

    hit = [fault for fault in faults if any(meet(incident, fault) for incident in whole)]
    false = [incident for incident in whole if not any(meet(incident, fault) for fault in faults)]
    kinds = {
        kind: (sum(f.kind == kind for f in hit), sum(f.kind == kind for f in faults))
        for kind in KINDS
    }  # fmt: skip
    return Score(name, len(faults), len(hit), len(whole), len(false), kinds)
