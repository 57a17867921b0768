"""Mistakes that type checkers find in programs that use Tarry, and correct programs in which they find none."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

CORRECT = """
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import tarry


@dataclass
class Order:
    number: int


@dataclass
class Other:
    number: int


@asynccontextmanager
async def resources(app: tarry.AsyncApp) -> AsyncIterator[Order]:
    yield Order(1)


worker = tarry.Worker(resources=resources)
handler = worker.handler("orders")


@handler
async def plain(order: Order) -> None: ...
@handler
def snoozed(order: Order) -> tarry.Snooze | tarry.Bury | tarry.Release | None:
    return tarry.Snooze(timedelta(1))
@handler
async def with_delivery(order: Order, delivery: tarry.AsyncDelivery[Order]) -> None: ...
@handler
def any_delivery(order: dict[str, Any], delivery: tarry.Delivery[Any], attempts: int = 3) -> None: ...
@handler
async def with_app(order: Order, *, app: tarry.AsyncApp) -> None: ...
@handler
def with_resources(order: Order, delivery: tarry.Delivery[Order], *, resources: Order) -> None: ...
@handler
@handler
async def with_all(
    order: Order, delivery: tarry.AsyncDelivery[Order], *, app: tarry.AsyncApp, resources: Order
) -> None: ...
@worker.on("started")
def started(delivery: tarry.Delivery[Any] | tarry.AsyncDelivery[Any]) -> None: ...
@worker.on("finished")
def finished(handled: tarry.Handled) -> None:
    print(handled.queue, handled.delivery.key)
@worker.middleware
def around(delivery: tarry.Delivery[Any] | tarry.AsyncDelivery[Any]) -> AbstractContextManager[None]:
    return nullcontext()


async def use(app: tarry.App, orders: tarry.Queue[Order], number: int) -> None:
    await plain(order=Order(1))
    async with tarry.connect_async() as connected, await connected.queue("orders", Order).consume().__anext__() as one:
        await with_all(Order(1), one, app=connected, resources=Order(1))
    app.queues.edit("orders", max_attempts=number, lease_for=timedelta(1), journal=tarry.JournalLevel.OFF)
    orders.edit("order-1", priority=3, payload=Order(2))
    with app.cron() as cron:
        cron.install_periodic("beat", timedelta(1), queue="orders", misfire="skip", overlap="allow")
"""

PLANTED = {
    "a result that is not stored": "@handler\nasync def f(order: Order) -> int:\n    return 1",
    "a result of a sync handler": "@handler\ndef f(order: Order) -> str:\n    return ''",
    "a class instead of a result": "@handler\ndef f(order: Order) -> type[tarry.Release]:\n    return tarry.Release",
    "a generator": "@handler\nasync def f(order: Order) -> AsyncIterator[None]:\n    yield",
    "no parameter": "@handler\ndef f() -> None: ...",
    "too many parameters": "@handler\ndef f(order: Order, delivery: tarry.Delivery[Order], more: int) -> None: ...",
    "an unknown keyword": "@handler\nasync def f(order: Order, *, engine: int) -> None: ...",
    "an awaiting delivery in a def": "@handler\ndef f(order: Order, delivery: tarry.AsyncDelivery[Order]) -> None: ...",
    "a blocking delivery in an async def": (
        "@handler\nasync def f(order: Order, delivery: tarry.Delivery[Order]) -> None: ..."
    ),
    "a delivery of another payload": (
        "@handler\nasync def f(order: Order, delivery: tarry.AsyncDelivery[Other]) -> None: ..."
    ),
    "a blocking delivery of another payload": (
        "@handler\ndef f(order: Order, delivery: tarry.Delivery[Other]) -> None: ..."
    ),
    "a delivery of another payload, with an app": (
        "@handler\nasync def f(order: Order, delivery: tarry.AsyncDelivery[Other], *, app: Any) -> None: ..."
    ),
    "no parentheses": "@worker.handler\nasync def f(order: Order) -> None: ...",
    "an unknown event": "@worker.on('startd')\ndef f(delivery: Any) -> None: ...",
    "a hook of another event": "@worker.on('finished')\ndef f(delivery: tarry.AsyncDelivery[Any]) -> None: ...",
    "middleware without a context": "@worker.middleware\ndef f(delivery: Any) -> None: ...",
    "an unknown setting": "def f(app: tarry.App) -> None:\n    app.queues.edit('orders', max_atempts=3)",
    "an unknown field": "def f(orders: tarry.Queue[Order]) -> None:\n    orders.edit('order-1', prioritaet=3)",
    "a field of another type": "def f(orders: tarry.Queue[Order]) -> None:\n    orders.edit('order-1', priority='high')",
    "a payload of another type": "def f(orders: tarry.Queue[Order]) -> None:\n    orders.offer('order-1', Other(1))",
    "seconds instead of a timedelta": (
        "def f(orders: tarry.Queue[Order]) -> None:\n    orders.offer('order-1', Order(1), after=30)"
    ),
    "an unknown policy": (
        "def f(app: tarry.App) -> None:\n"
        "    app.cron().install_periodic('beat', timedelta(1), queue='orders', misfire='skp')"
    ),
    "a text instead of a level": "settings = tarry.QueueSettings(journal='payloads')",
    "a misspelled name": "retry = tarry.Retyr.at_once()",
    "a missing await": "queue = tarry.connect_async().queue('orders')",
    "an unknown method of an awaited app": "async def f() -> None:\n    (await tarry.connect_async()).quue('orders')",
}


def pyright(file: Path) -> set[int]:
    """The lines with errors."""
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--threads",
        "1",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        str(file),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    problems = json.loads(ran.stdout)["generalDiagnostics"]
    return {each["range"]["start"]["line"] + 1 for each in problems if each["severity"] == "error"}


def mypy(file: Path) -> set[int]:
    command = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={file.parent / 'mypy'}", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    errors = re.findall(rf"{re.escape(file.name)}:(\d+): error: (.*)", ran.stdout)
    assert errors, ran.stdout + ran.stderr
    assert '"PlainHandler"' not in ran.stdout, "an error names a type variable, and not what a handler takes"
    return {int(line) for line, _ in errors}


@pytest.mark.parametrize("checker", [pyright, mypy])
def test_type_checkers_find_every_planted_mistake_and_nothing_else(
    checker: Callable[[Path], set[int]], tmp_path: Path
) -> None:
    text, spans = CORRECT, dict[str, range]()
    for mistake, code in PLANTED.items():
        first = text.count("\n") + 1
        text += re.sub(r"\bf\b", f"f{len(spans)}", code) + "\n"
        spans[mistake] = range(first, first + code.count("\n") + 1)
    file = tmp_path / "program.py"
    file.write_text(text)
    lines = checker(file)
    assert [mistake for mistake, span in spans.items() if lines.isdisjoint(span)] == [], "not found"
    planted = {line for span in spans.values() for line in span}
    assert sorted(lines - planted) == [], "errors in a correct program"
