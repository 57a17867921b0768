"""`make shop`: run the shop as a deployment would, with customers, a new release in between, and a check of the result."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
from sqlalchemy import create_engine, func, select
from sqlalchemy.orm import Session

import tarry
from examples.home import own_home
from examples.shop.orders import QUEUES, Base, Order, Receipt, Report
from examples.shop.provider import Provider

HERE = Path(__file__).parent
PAY_WITHIN_S = 3.0
LIMIT_S = 120.0
"""For one step, on a busy machine."""
_BIN = Path(sys.executable).parent


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make shop", description="Run an example shop, and check what it did.")
    parser.add_argument("--orders", type=int, default=60, help="orders of customers, and half as many from Node")
    parser.add_argument("--pipeline", action="store_true", help="archive and report at the end, with Spark")
    given = parser.parse_args(args)
    with own_home("tarry-shop-") as home, ExitStack() as stack:
        return Deployment(home, stack).play(given.orders, pipeline=given.pipeline)


class Deployment:
    """Processes of one shop, and the database they share."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.home, self.stack = home, stack
        self.provider = Provider()
        self.app = stack.enter_context(tarry.connect())
        url = (self.app.dsn or "").replace("postgresql://", "postgresql+psycopg://")
        self.engine = create_engine(url)
        stack.callback(self.engine.dispose)
        self.environment = {
            **os.environ,
            "TARRY_DSN": url,
            "SHOP_PAY_WITHIN_S": str(PAY_WITHIN_S),
            "SHOP_PROVIDER": stack.enter_context(self.provider.running()),
        }

    def play(self, orders: int, *, pipeline: bool) -> int:
        Base.metadata.create_all(self.engine)
        for queue in QUEUES:
            self.app.queues.create(queue, exist_ok=True)
        self.call("tarry", "cron", "apply", str(HERE / "schedules.toml"))
        site, broker = _free_port(), _free_port()
        self.start("uvicorn", "examples.shop.api:api", "--port", str(site), "--log-level", "warning")
        self.start("tarry", "serve", "--port", str(broker), "--no-access-log", "--quiet")
        self.start("tarry", "scheduler", "--quiet")
        old, old_is_ready = self.start_worker("1")
        client = self.stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{site}", timeout=LIMIT_S))
        until(lambda: _responds(f"http://127.0.0.1:{site}/docs") and _responds(f"http://127.0.0.1:{broker}/readyz"))
        until(old_is_ready)

        show(f"{orders} customers order, and a third pays; a program in Node sends {orders // 2} orders more")
        self.environment["TARRY_URL"] = f"http://127.0.0.1:{broker}"
        market = self.popen("node", str(HERE / "producer.mjs"), str(orders // 2))
        for n in range(orders // 2):
            self.order(client, n)
        show("release 2 is deployed: its worker starts, and when it is ready, that of release 1 is stopped")
        new, new_is_ready = self.start_worker("2")
        until(new_is_ready)
        codes = [_stopped(old), market.wait(LIMIT_S)]
        for n in range(orders // 2, orders):
            self.order(client, n)
        until(lambda: self.done(orders))
        codes.append(self.call("tarry", "cron", "trigger", "nightly-report", "--quiet"))
        until(lambda: self.count(Report) == 1)
        codes.append(_stopped(new))
        if pipeline:
            show("the pipeline archives and analyses what happened")
            codes += [
                self.popen("tarry", "pipeline", words).wait() for words in ("run", "report")
            ]  # minutes, with Spark
        return self.check(orders, codes)

    def order(self, client: httpx.Client, n: int) -> None:
        """Every third pays, and of these every fifth with a card that is declined."""
        new = {"id": f"order-{n}", "email": f"customer-{n}@example.com", "total": 10 + n}
        client.post("/orders", json=new).raise_for_status()
        if n % 3 == 0:
            card = "declined" if n % 15 == 0 else "good"
            client.post(f"/orders/order-{n}/payment", params={"card": card}).raise_for_status()

    def done(self, orders: int) -> bool:
        with Session(self.engine) as session:
            placed = session.scalar(select(func.count()).select_from(Order))
            waiting = session.scalar(select(func.count()).where(Order.state.in_(["open", "paying"])))
        return placed == orders + orders // 2 and waiting == 0

    def check(self, orders: int, codes: list[int]) -> int:
        """What must be true of every run. Returns the exit code."""
        with Session(self.engine) as session:
            states = Counter(session.scalars(select(Order.state)))
            receipts = Counter(session.scalars(select(Receipt.order_id)))
            paid = set(session.scalars(select(Order.id).where(Order.state == "paid")))
            reminders = Counter(session.scalars(select(Order.reminded).where(Order.state == "cancelled")))
            report = session.scalars(select(Report)).one()
        thirds, declined = len(range(0, orders, 3)), len(range(0, orders, 15))
        counts = {queue: self.app.queues.counts(queue) for queue in QUEUES}  # delayed is the report of next night
        troubled = [queue for queue, count in counts.items() if count.ready.n or count.leased.n or count.dead.n]
        expected = {"paid": thirds - declined + orders // 2, "declined": declined, "cancelled": orders - thirds}
        checks = {
            f"every order has ended: {dict(states)}": states == expected,
            f"every paid order was charged, and has one receipt: {len(receipts)}": (
                paid == set(receipts) == set(self.provider.charged) and set(receipts.values()) <= {1}
            ),
            f"no customer was reminded twice; reminders of cancelled orders: {dict(reminders)}": set(reminders)
            <= {0, 1},
            f"the nightly report counts them: {report.paid} of {report.orders}": report.paid == len(paid),
            f"the provider failed {self.provider.refusals} times": self.provider.refusals > 0,
            f"both releases worked: {dict(self.provider.requests)}": len(self.provider.requests) == 2,
            f"every process ended by itself: {codes}": not any(codes),
            f"nothing is late or dead: {troubled}": not troubled,
        }
        for text, is_true in checks.items():
            show(f"{'✓' if is_true else '✗'} {text}")
        return 0 if all(checks.values()) else 1

    def count(self, table: type[Base]) -> int:
        with Session(self.engine) as session:
            return session.scalar(select(func.count()).select_from(table)) or 0

    def start_worker(self, release: str) -> tuple[subprocess.Popen[bytes], Callable[[], bool]]:
        """The process, and whether it is ready."""
        self.environment["SHOP_RELEASE"], port = release, _free_port()
        command = ("tarry", "worker", "examples.shop.worker:worker", "--grace", "10s", "--metrics-port", str(port))
        return self.start(*command), lambda: _responds(f"http://127.0.0.1:{port}/readyz")

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """A process that is stopped at the end. Failures of the provider are in the log of the workers."""
        process = self.popen(*command, log=self.home / "shop.log")
        self.stack.callback(_stopped, process)
        return process

    def call(self, *command: str) -> int:
        return self.popen(*command).wait(LIMIT_S)

    def popen(self, *command: str, log: Path | None = None) -> subprocess.Popen[bytes]:
        program = str(_BIN / command[0]) if (_BIN / command[0]).exists() else command[0]
        with (log or Path(os.devnull)).open("ab") as file:
            return subprocess.Popen([program, *command[1:]], env=self.environment, stderr=file if log else None)


def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError("the shop did not get this far in time")
        time.sleep(0.1)


def show(text: str) -> None:
    print(text, flush=True)


def _responds(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


def _stopped(process: subprocess.Popen[bytes]) -> int:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    return process.wait(LIMIT_S)


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
