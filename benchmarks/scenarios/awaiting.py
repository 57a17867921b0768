"""Many tasks of one process, each awaiting its own durable offer or ack: what group commit in the client is for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from benchmarks.bench import Bench, Turn, body
from benchmarks.contenders import ceilings
from benchmarks.contenders.protocol import AsyncSession, Contender, Unavailable
from benchmarks.scenarios.measures import AWAIT_ACK, AWAIT_OFFER

MEASURES = (AWAIT_OFFER, AWAIT_ACK)
T = TypeVar("T")


def run(bench: Bench) -> None:
    tasks, n = bench.plan.tasks, bench.plan.tasks * bench.plan.per_task
    pgbench = ceilings.PgbenchInsert(tasks, json.dumps(body(0)).encode())

    def turn_of(contender: Contender, session: AsyncSession, runner: asyncio.Runner) -> Turn:
        def turn() -> None:
            bodies = bench.bodies(n)
            with bench.meter.slice() as offered:
                runner.run(_by_tasks(session.offer_one, bodies, tasks))
            bench.results.add(AWAIT_OFFER, contender.name, bench.meter.sample(offered, n))
            held = runner.run(_leased(session, n))
            with bench.meter.slice() as acked:
                runner.run(_by_tasks(session.ack_one, held, tasks))
            bench.results.add(AWAIT_ACK, contender.name, bench.meter.sample(acked, n))

        return turn

    def ceiling() -> None:
        sample = pgbench.run(bench.ceiling_database(), n, bench.meter)
        for measure in MEASURES:
            bench.results.add(measure, pgbench.name, sample)

    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        turns: list[tuple[str, Sequence[str], Turn]] = []
        for contender in bench.contenders:
            try:
                session = runner.run(_opened(contender, bench))
            except Unavailable as reason:
                bench.skip(MEASURES, contender.name, reason)
                continue
            stack.callback(lambda session=session: runner.run(_closed(session)))
            runner.run(_by_tasks(session.offer_one, bench.bodies(tasks), tasks))
            runner.run(_by_tasks(session.ack_one, runner.run(_leased(session, tasks)), tasks))
            turns.append((contender.name, MEASURES, turn_of(contender, session, runner)))
        bench.rounds(f"{tasks} tasks that await", [*turns, (pgbench.name, MEASURES, ceiling)])


async def _opened(contender: Contender, bench: Bench) -> AsyncSession:
    return await contender.open_async(bench.database(contender), durable=bench.plan.durable)


async def _closed(session: AsyncSession) -> None:
    await session.close()


async def _leased(session: AsyncSession, n: int) -> Sequence[Any]:
    held = await session.lease(n)
    if len(held) < n:
        raise Unavailable("it handed out fewer messages than were offered")
    return held


async def _by_tasks(work: Callable[[T], Awaitable[None]], items: Sequence[T], tasks: int) -> None:
    async def share(mine: Sequence[T]) -> None:
        for item in mine:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for first in range(tasks):
            group.create_task(share(items[first::tasks]))
