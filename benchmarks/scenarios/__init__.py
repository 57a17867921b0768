"""What the contenders do, in the order in which it is done. A scenario records its samples under the measures it names."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.bench import Bench
from benchmarks.scenarios import awaiting, batches, before, bulk, crowd, held, lateness, obstacles, singles, workers

SCENARIOS: dict[str, Callable[[Bench], None]] = {
    "singles": singles.run,
    "crowd": crowd.run,
    "batches": batches.run,
    "keyed": batches.run_keyed,
    "bulk": bulk.run,
    "before": before.run,
    "workers": workers.run,
    "broker": before.run_broker,
    "awaiting": awaiting.run,
    "in-flight": obstacles.run_in_flight,
    "future": obstacles.run_future,
    "ready": obstacles.run_ready,
    "reclaim": workers.run_reclaim,
    "held": held.run,
    "lateness": lateness.run,
}
