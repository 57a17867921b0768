"""How much of everything one run does."""

from __future__ import annotations

from dataclasses import dataclass, replace

BATCH = 1_000
"""Messages per `offer_many` and `poll_many`: the batch of the targets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    name: str
    rounds: int
    """Number of turns of each contender. Figures are medians over the rounds."""
    singles: int
    """Messages per turn, one by one."""
    batches: int
    """Batches per turn."""
    batch: int = BATCH
    bulk: int = 20_000
    """Messages per large `offer_many`: the COPY path."""
    consumers: int = 8
    per_consumer: int
    tasks: int = 128
    per_task: int
    jobs: int
    """Jobs per turn of a worker."""
    broker_s: float
    """Seconds per turn of offers to a broker."""
    reclaim: int
    """Leases that expire when all consumers die."""
    held_s: float
    """Seconds each contender works under a held snapshot."""
    held_slices: int = 20
    future: int
    ready: int
    in_flight: int = 50_000
    polls: int
    """Polls per turn where one poll is compared with one on an empty queue."""
    lateness_s: float
    """Seconds for which deliveries are timed: idle, under load, and fifty consumers with nothing to do."""
    warm_up: int = 25
    """Messages before the first turn, so that plans are made and caches warm."""
    durable: bool = True
    """Refuse a server that does not flush: its figures would mean nothing."""
    judges: bool = True
    """Whether its figures can be compared with the targets."""

    def scaled(self, scale: float) -> Plan:
        """With more or fewer messages in the way of a poll."""
        return replace(
            self,
            future=max(1, round(self.future * scale)),
            ready=max(1, round(self.ready * scale)),
            in_flight=max(1, round(self.in_flight * scale)),
        )


QUICK = Plan(
    name="quick",
    rounds=5,
    singles=300,
    batches=4,
    per_consumer=300,
    per_task=24,
    jobs=2_000,
    broker_s=0.5,
    reclaim=5_000,
    held_s=8,
    held_slices=8,
    future=100_000,
    ready=100_000,
    polls=1_500,
    lateness_s=15,
)

STANDARD = Plan(
    name="standard",
    rounds=9,
    singles=700,
    batches=8,
    per_consumer=600,
    per_task=40,
    jobs=10_000,
    broker_s=1.0,
    reclaim=50_000,
    held_s=60,
    future=1_000_000,
    ready=1_000_000,
    polls=2_500,
    lateness_s=60,
)

FULL = replace(STANDARD, name="full", rounds=15, held_s=300, held_slices=60, future=5_000_000)

SMOKE = Plan(
    name="smoke",
    rounds=1,
    singles=2,
    batches=1,
    batch=5,
    bulk=2_001,
    consumers=1,
    per_consumer=2,
    tasks=3,
    per_task=2,
    jobs=20,
    broker_s=0.05,
    reclaim=20,
    held_s=0.05,
    held_slices=2,
    future=20,
    ready=20,
    in_flight=5,
    polls=2,
    lateness_s=0.3,
    warm_up=1,
    durable=False,
    judges=False,
)
"""Everything once, to check that it runs. Not for figures."""
