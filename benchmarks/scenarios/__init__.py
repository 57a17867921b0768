"""What the contenders do, in the order in which it is done. A scenario records its samples under the measures it names."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.bench import Bench
from benchmarks.scenarios import awaiting, batches, bulk, crowd, held, lateness, obstacles, singles

SCENARIOS: dict[str, Callable[[Bench], None]] = {
    "singles": singles.run,
    "crowd": crowd.run,
    "batches": batches.run,
    "keyed": batches.run_keyed,
    "bulk": bulk.run,
    "awaiting": awaiting.run,
    "in-flight": obstacles.run_in_flight,
    "future": obstacles.run_future,
    "ready": obstacles.run_ready,
    "held": held.run,
    "lateness": lateness.run,
}
