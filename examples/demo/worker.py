"""The worker of `tarry demo`, as a user would write one: it charges orders through a provider that may be down."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from http.client import HTTPConnection

import tarry

QUEUE = "demo-charges"
PATIENCE = tarry.Retry.exponential(timedelta(milliseconds=500), max_attempts=3)


@dataclass(frozen=True, slots=True)
class Charge:
    order: int
    port: int
    """Where the provider listens, on the loopback."""


class ProviderDown(Exception):
    """The provider answered that it cannot answer."""


worker = tarry.Worker()


@worker.handler(QUEUE, retry=PATIENCE)
def charge(order: Charge) -> None:
    provider = HTTPConnection("127.0.0.1", order.port, timeout=5)
    try:
        provider.request("POST", f"/charges/{order.order}")
        answer = provider.getresponse()
        answer.read()
        if answer.status != 200:
            raise ProviderDown(f"charge {order.order}: {answer.status} {answer.reason}")
    finally:
        provider.close()
