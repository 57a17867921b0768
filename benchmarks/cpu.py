"""CPU per message of two source trees, interleaved: `python -m benchmarks.cpu TREE TREE [ROUNDS]`.

CPU time, not wall time, so that other work on the machine matters little. Each tree has a process and a database on one
server of this run. Rounds alternate, and the least is printed, in µs per message of the client and of the server process.
`make bench` runs the batches of an earlier commit in the same way (`--before`).
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":  # as a child, with another tree's `tarry`: the harness is still that of this file
    sys.path[0] = str(Path(__file__).parent.parent)

import psycopg

from benchmarks.measure import Meter
from benchmarks.results import Sample

if TYPE_CHECKING:
    from tarry import Queue

CONSUMER = "worker-17.example:12345"
OFFER_BATCH, CONSUME_BATCH, OFFER_BULK = "offer 1000", "poll + ack 1000", "offer 20000"
SCENARIOS = {
    "offer 1": 300,
    "poll + ack 1": 300,
    OFFER_BATCH: 10,
    CONSUME_BATCH: 10,
    OFFER_BULK: 1,
    "async offer 64": 20,
    "async ack 64": 20,
}
"""What is measured, and how many times in a round."""


class Tree:
    """A process that runs the scenarios with the `tarry` of one source tree."""

    def __init__(self, tree: Path, dsn: str) -> None:
        from benchmarks.before import environment

        self.name = tree.name
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--child", dsn],
            env=environment(tree),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, scenario: str, times: int) -> Sample:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([scenario, times]), file=self._process.stdin, flush=True)
        return Sample(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate()


def _child(dsn: str) -> None:
    """Run the scenario of each line of standard input."""
    import asyncio

    import tarry

    body = {"order": 17, "customer": "c-4711", "lines": [1, 2, 3]}
    app = tarry.connect(dsn, migrate=True, consumer=CONSUMER, allow_unsafe=True)
    single, queue, bulk = app.queue("one"), app.queue("batches"), app.queue("bulk")
    loop = asyncio.new_event_loop()
    awaiting = loop.run_until_complete(_opened(tarry.connect_async(dsn, consumer=CONSUMER, allow_unsafe=True)))
    aqueue = awaiting.queue("aq")

    def poll_ack_1(times: int) -> int:
        for _ in range(times):
            delivery = single.try_poll()
            assert delivery is not None
            _ = delivery.payload
            delivery.ack()
        return times

    def poll_ack_1000(times: int) -> int:
        for _ in range(times):
            deliveries = queue.try_poll_many(1000)
            assert len(deliveries) == 1000
            for delivery in deliveries:
                _ = delivery.payload
            _ack_many(queue, [_lease_id(delivery) for delivery in deliveries])
        return 1000 * times

    def offer_1(times: int) -> int:
        for _ in range(times):
            single.offer(None, body)
        return times

    def offer_many(queue: Queue[Any], n: int, times: int) -> int:
        for _ in range(times):
            queue.offer_many([tarry.Message(payload=body) for _ in range(n)])
        return n * times

    async def async_offer(times: int) -> int:
        for _ in range(times):
            await asyncio.gather(*[aqueue.offer(None, body) for _ in range(64)])
        return times * 64

    async def async_ack(times: int) -> int:
        for _ in range(times):
            deliveries = await aqueue.try_poll_many(64)
            assert len(deliveries) == 64
            await asyncio.gather(*[delivery.ack() for delivery in deliveries])
        return times * 64

    scenarios: dict[str, Callable[[int], int]] = {
        "offer 1": offer_1,
        "poll + ack 1": poll_ack_1,
        OFFER_BATCH: lambda times: offer_many(queue, 1000, times),
        CONSUME_BATCH: poll_ack_1000,
        OFFER_BULK: lambda times: offer_many(bulk, 20_000, times),
        "async offer 64": lambda times: loop.run_until_complete(async_offer(times)),
        "async ack 64": lambda times: loop.run_until_complete(async_ack(times)),
    }
    with psycopg.connect(dsn, autocommit=True) as admin:
        meter = Meter(admin)
        for line in sys.stdin:
            scenario, times = json.loads(line)
            with meter.slice() as worked:
                n = scenarios[scenario](times)
            if scenario == OFFER_BULK:  # keeps the backlog equal, and is not measured
                admin.execute(
                    "delete from tarry.message m using tarry.queue q where q.id = m.queue and q.name = 'bulk'"
                )
            print(json.dumps(dataclasses.asdict(meter.sample(worked, n))), flush=True)
    app.close()
    loop.run_until_complete(awaiting.close())


def _ack_many(queue: Any, lease_ids: list[Any]) -> None:
    (queue.leases.ack if hasattr(queue, "leases") else queue.ack_many)(lease_ids)  # its name until 276f0fe


def _lease_id(delivery: Any) -> Any:
    return delivery.lease_id if hasattr(delivery, "lease_id") else delivery.hold  # its name until 7cac7b4


async def _opened(opening: Any) -> Any:
    return await opening


def main(trees: list[Path], rounds: int) -> None:
    from benchmarks.server import running_server

    with running_server(None, Path("/dev/shm")) as server:
        children = [Tree(tree, server.database(f"tree{i}")) for i, tree in enumerate(trees)]
        figures = {(name, i): [] for name in SCENARIOS for i in range(len(trees))}
        for round_ in range(rounds + 1):
            for name, times in SCENARIOS.items():
                for i, child in enumerate(children):
                    sample = child.run(name, times)
                    if round_:  # the first is to warm up
                        figures[name, i].append((sample.client_us, sample.backend_us or 0.0))
        for child in children:
            child.close()
    print(f"{'µs per message':18}" + "".join(f"{tree.name:>28}" for tree in trees) + "   ratio")
    for name in SCENARIOS:
        sides = [[min(side) for side in zip(*figures[name, i], strict=True)] for i in range(len(trees))]
        cells = "".join(f"{client:10.1f} + {backend:5.1f} = {client + backend:6.1f}" for client, backend in sides)
        print(f"{name:18}{cells}   {sum(sides[-1]) / sum(sides[0]):.2f}")


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        _child(sys.argv[2])
    else:
        main([Path(tree).resolve() for tree in sys.argv[1:3]], int(sys.argv[3]) if len(sys.argv) > 3 else 7)
