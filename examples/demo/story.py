"""The story of the demo, on the parts of `tarry dev`: traffic, a killed worker, an outage, dead letters, a redrive."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count

from rich.console import Console
from rich.markup import escape

import tarry
from examples.demo.history import seed
from examples.demo.provider import Provider
from examples.demo.worker import EMAILS, HELLO, LEASE_FOR, ORDERS, PAYMENTS
from tarry.core.messages.model import Counts
from tarry.core.messages.outcomes import Outcome
from tarry.core.settings import QueueSettings
from tarry.edges.cli.processes.supervisor import Child
from tarry.http import AsyncClient

QUEUES = {
    ORDERS: tarry.Retry.fixed(timedelta(milliseconds=300)),
    PAYMENTS: tarry.Retry.exponential(timedelta(seconds=1)),
    EMAILS: tarry.Retry(),
    HELLO: tarry.Retry(),
}
TARGET = timedelta(seconds=5)
SCHEDULES = (
    ("nightly-report", "30 1 * * *", "Europe/London"),
    ("hourly-digest", "0 * * * *", "UTC"),
    ("business-hours", "*/10 9-17 * * 1-5", "America/New_York"),
)
ORDERS_PER_S, PAYMENTS_PER_S, EMAILS_PER_S = 2.5, 1.5, 1.0
EXPIRED = 3
"""Orders that cannot be paid: they use up their attempts and become dead letters."""
CANARIES = 3
LONGEST_S = 120.0
"""For one event of the story, on a busy machine."""
GRACE_S = 3.0


@dataclass
class Stage:
    """What the story uses, and what it has to account for."""

    app: tarry.AsyncApp
    client: AsyncClient
    """Of the broker: everything is offered over HTTP."""
    pages: str
    """URL of the dashboard, with a slash at its end."""
    provider: Provider
    console: Console
    seconds: float
    began: float = field(default_factory=time.monotonic)
    children: list[Child] = field(default_factory=list[Child])
    offered: set[str] = field(default_factory=set[str])
    """Keys of orders and payments."""
    updated: int = 0
    died: int = 0
    working: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when workers handle messages: until then none is offered that would be late."""
    is_over: bool = False

    def show(self, text: str, page: str = "") -> None:
        since = time.monotonic() - self.began
        link = f"\n         [blue]{self.pages}{page}[/]" if page else ""
        self.console.print(f"  {since:3.0f} s  {text}{link}", highlight=False, soft_wrap=True)

    async def until(self, share: float, happened: Callable[[], Awaitable[bool]] | None = None) -> None:
        """Wait for a share of the story's time, and then for an event; if that is late, so is the rest of the story."""
        await asyncio.sleep(max(0.0, self.began + share * self.seconds - time.monotonic()))
        async with asyncio.timeout(LONGEST_S):
            while happened is not None and not await happened():  # noqa: ASYNC110 - events of other processes
                await asyncio.sleep(0.1)
        self.began = max(self.began, time.monotonic() - share * self.seconds)

    async def counts(self, queue: str) -> Counts:
        return await self.app.queues.counts(queue)


async def play(stage: Stage) -> None:
    """From the first message to the last: all orders and payments are settled at the end."""
    app, provider, show = stage.app, stage.provider, stage.show
    for queue, retry in QUEUES.items():
        settings = QueueSettings(max_attempts=3, retry=retry, target_lag_for=TARGET)
        await app.queues.create(queue, settings, exist_ok=True)
    workers = [await worker(stage, "worker") for _ in range(2)]
    await seed(app.dsn or "", await app.store.run(app.store.queues.now()))
    await _plan(app, stage.seconds)

    async def are_working() -> bool:
        return bool(provider.effects[ORDERS])

    await _offer_order(stage, 0)
    await stage.until(0, are_working)
    stage.began = time.monotonic()
    stage.working.set()
    async with asyncio.TaskGroup() as traffic:
        traffic.create_task(_offer_orders(stage))
        traffic.create_task(_offer_payments(stage))
        show("orders, payments and emails are offered over HTTP, and handled by two workers")
        await _act(stage, workers)
        stage.is_over = True

    async def are_settled() -> bool:
        counts = [await stage.counts(queue) for queue in (ORDERS, PAYMENTS)]
        return not any(each.delayed.n or each.ready.n or each.leased.n for each in counts)

    await stage.until(1, are_settled)


async def _act(stage: Stage, workers: list[Child]) -> None:
    provider, show, dead = stage.provider, stage.show, stage.app.queue(PAYMENTS).dead_letters
    hanging = await worker(stage, "hanging_worker")

    async def is_hanging() -> bool:
        return len(provider.effects["hanging"]) > 1

    await stage.until(0.15, is_hanging)
    hanging.process.kill()
    show(f"kill -9 of a worker that hangs: its orders return {LEASE_FOR.seconds} s later", "consumers")

    await stage.until(0.3)
    provider.up = False
    show("the payment provider is down: payments are tried again, later and later", f"queues/{PAYMENTS}")

    async def have_died() -> bool:
        return (await stage.counts(PAYMENTS)).dead.n > CANARIES

    await stage.until(0.5, have_died)
    provider.up = True
    show("it is back. A deploy meanwhile: a worker stops and releases what it has not started, another starts")
    workers[0].stop()
    await worker(stage, "worker")

    await stage.until(0.65)
    stage.died = (await stage.counts(PAYMENTS)).dead.n
    for group in await dead.groups():
        show(f"{group.count} dead letters of one kind: [bold]{escape(group.pattern)}[/]", "dead")

    async def are_redriven() -> bool:
        return not (await stage.counts(PAYMENTS)).dead.n

    await stage.until(0.75)
    if not await are_redriven():  # a visitor may have been faster
        job = await dead.start_redrive(canary=CANARIES, rate=2)
        show(f"redrive: {CANARIES} canaries first, the rest when these succeeded", f"redrives/{job.id}")
    await stage.until(0.9, are_redriven)


async def _plan(app: tarry.AsyncApp, seconds: float) -> None:
    """What is due later, for the calendar."""
    cron, emails = app.cron(), app.queue(EMAILS)
    for name, expression, zone in SCHEDULES:
        await cron.install_cron(name, expression, zone=zone, queue=EMAILS, payload={"schedule": name})
    for n in range(40):
        await emails.offer(f"reminder-{n:02}", {"to": f"customer-{n}"}, after=timedelta(minutes=2 + n**2))
    await app.queue(HELLO).offer("from-the-demo", "Hello!", after=timedelta(seconds=seconds))


async def _offer_order(stage: Stage, i: int) -> None:
    """Due one to two seconds later; some are changed before that, and the last version wins."""
    queue, key = stage.client.queue(ORDERS), f"order-{i:03}"
    order, after = {"order": i, "total": 10 + i % 7, "card": "valid"}, timedelta(seconds=1 + i % 10 / 10)
    await queue.offer(key, order, after=after, priority=9 if i % 20 == 0 else 0)
    stage.offered.add(key)
    if i % 10 == 9:
        stage.updated += await queue.offer(key, {**order, "total": 99}, after=after) is Outcome.UPDATED


async def _offer_orders(stage: Stage) -> None:
    for i in range(EXPIRED):
        await stage.client.queue(ORDERS).offer(f"unpaid-{i}", {"order": i, "card": "expired"})
    for i in count(1):
        if stage.is_over:
            break
        await _offer_order(stage, i)
        await asyncio.sleep(1 / ORDERS_PER_S)


async def _offer_payments(stage: Stage) -> None:
    for i in count():
        if stage.is_over:
            break
        await stage.client.queue(PAYMENTS).offer(f"payment-{i:03}", {"order": i, "amount": 10 + i % 7})
        stage.offered.add(f"payment-{i:03}")
        await asyncio.sleep(1 / PAYMENTS_PER_S)


async def send_emails(stage: Stage) -> None:
    """Also after the story, for as long as the demo runs."""
    await stage.working.wait()
    for i in count():
        await stage.client.queue(EMAILS).offer(None, {"to": f"customer-{i}"}, after=timedelta(seconds=i % 4))
        await asyncio.sleep(1 / EMAILS_PER_S)


async def worker(stage: Stage, name: str) -> Child:
    """`tarry worker` as a process."""
    arguments = [
        "tarry",
        "worker",
        f"examples.demo.worker:{name}",
        "-c",
        "4",
        "--grace",
        "20s",
        "--release",
        "shop-1.4.2",
    ]
    return await child(stage, *arguments, log=subprocess.DEVNULL)


async def child(stage: Stage, *arguments: str, log: int | None = None) -> Child:
    stage.children.append(await Child.started([sys.executable, "-m", *arguments], log))
    return stage.children[-1]


async def stopped(children: list[Child]) -> None:
    """Stop all processes at once, and kill what does not end; each has its own group, with what it started."""
    for each in children:
        each.stop()
    waits = [asyncio.create_task(each.process.wait()) for each in children]
    await asyncio.wait(waits, timeout=GRACE_S)
    for each in children:
        with suppress(ProcessLookupError):
            os.killpg(each.process.pid, signal.SIGKILL)
    await asyncio.wait(waits)
