"""What was measured: samples by measure and contender, with medians over rounds and ratios inside a round."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one turn cost. CPU is None where the server's processes cannot be seen from here."""

    n: int
    wall_s: float
    client_s: float
    backend_s: float | None
    background_s: float | None
    wal_bytes: int
    commits: int

    @property
    def rate(self) -> float:
        return self.n / self.wall_s

    @property
    def client_us(self) -> float:
        return self.client_s / self.n * 1e6

    @property
    def backend_us(self) -> float | None:
        return None if self.backend_s is None else self.backend_s / self.n * 1e6

    @property
    def background_us(self) -> float | None:
        return None if self.background_s is None else self.background_s / self.n * 1e6

    @property
    def wal_per_message(self) -> float:
        return self.wal_bytes / self.n

    @property
    def commits_per_message(self) -> float:
        return self.commits / self.n


def quantile(values: Sequence[float], share: float) -> float:
    """The value that so many of them do not exceed: one of the values, never one between two."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(slots=True)
class Results:
    samples: dict[str, dict[str, list[Sample]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    skipped: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """Contenders that did not take part, by measure, with the reason."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Everything that is not a sample: sizes, autovacuum runs, HOT shares."""

    def add(self, measure: str, contender: str, sample: Sample) -> None:
        self.samples[measure][contender].append(sample)

    def skip(self, measure: str, contender: str, reason: str) -> None:
        self.skipped[measure][contender] = reason

    def note_lost(self, contender: str, n: int) -> None:
        """Messages that one poll leased beyond its limit, and returned to no consumer."""
        if n:
            lost = self.facts.setdefault("lost", {})
            lost[contender] = lost.get(contender, 0) + n

    def of(self, measure: str, contender: str) -> Sequence[Sample]:
        return self.samples.get(measure, {}).get(contender, ())

    def median(self, measure: str, contender: str, figure: Callable[[Sample], float | None]) -> float | None:
        figures = [value for sample in self.of(measure, contender) if (value := figure(sample)) is not None]
        return median(figures) if figures else None

    def collapsed(self, measure: str, contender: str) -> bool:
        """Whether its slowest round took three times as long as its fastest: a plan changed, or the machine was busy."""
        rates = [sample.rate for sample in self.of(measure, contender)]
        return bool(rates) and max(rates) > 3 * min(rates)

    def ratio(
        self,
        above: tuple[str, str],
        below: tuple[str, str],
        figure: Callable[[Sample], float | None] = lambda sample: sample.rate,
    ) -> float | None:
        """The median over rounds of one contender's figure by another's of the same round."""
        pairs = [(figure(a), figure(b)) for a, b in zip(self.of(*above), self.of(*below), strict=False)]
        ratios = [a / b for a, b in pairs if a is not None and b]
        return median(ratios) if ratios else None
