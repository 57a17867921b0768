"""Workers of the demo: handlers that have their effects at the provider, and a worker that hangs."""

from __future__ import annotations

import asyncio
import json
import os
import random
from datetime import timedelta
from http.client import HTTPConnection
from typing import Any

import tarry

ORDERS, PAYMENTS, EMAILS, HELLO = "orders", "payments", "emails", "hello"
PORT = "DEMO_PROVIDER_PORT"
"""Environment variable: the port of the provider on loopback."""
LEASE_FOR = timedelta(seconds=3)
"""Of the worker that hangs: its messages return this long after it was killed."""

worker, hanging_worker = tarry.Worker(), tarry.Worker()


class CardExpired(Exception):
    """No retry can help."""


class ProviderDown(Exception):
    """The provider returned an error."""


@worker.handler(ORDERS)
def ship(order: dict[str, Any], delivery: tarry.Delivery[Any]) -> None:
    if order["card"] == "expired":
        raise CardExpired(f"the card of order {order['order']} has expired")
    report(ORDERS, delivery)


@worker.handler(PAYMENTS)
def charge(payment: dict[str, Any], delivery: tarry.Delivery[Any]) -> None:
    status = report(PAYMENTS, delivery)
    if status != 200:
        raise ProviderDown(f"charge of {payment['amount']} EUR: {status} Service Unavailable")


@worker.handler(EMAILS)
@worker.handler(HELLO)
async def send(email: Any) -> None:
    await asyncio.sleep(random.uniform(0.02, 0.3))


@hanging_worker.handler(ORDERS, lease_for=LEASE_FOR)
async def hang(order: dict[str, Any], delivery: tarry.AsyncDelivery[Any]) -> None:
    await asyncio.to_thread(report, "hanging", delivery)
    await asyncio.Event().wait()


def report(path: str, delivery: tarry.Delivery[Any] | tarry.AsyncDelivery[Any]) -> int:
    """The effect of a handler: one request to the provider, with which the demo counts. Returns the status."""
    seen = {"attempt": delivery.attempt, "due": delivery.due_at.timestamp(), "leased": delivery.leased_at.timestamp()}
    provider = HTTPConnection("127.0.0.1", int(os.environ[PORT]), timeout=30)
    try:
        provider.request("POST", f"/{path}/{delivery.key}", json.dumps(seen))
        return provider.getresponse().status
    finally:
        provider.close()
