"""The worker of the demo: charges orders through a provider that may be down."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from http.client import HTTPConnection

import tarry

QUEUE = "demo-charges"
RETRY = tarry.Retry.exponential(timedelta(milliseconds=500), max_attempts=3)


@dataclass(frozen=True, slots=True)
class Charge:
    order: int
    port: int
    """Port of the provider on loopback."""


class ProviderDown(Exception):
    """The provider returned an error."""


worker = tarry.Worker()


@worker.handler(QUEUE, retry=RETRY)
def charge(order: Charge) -> None:
    provider = HTTPConnection("127.0.0.1", order.port, timeout=5)
    try:
        provider.request("POST", f"/charges/{order.order}")
        response = provider.getresponse()
        response.read()
        if response.status != 200:
            raise ProviderDown(f"charge {order.order}: {response.status} {response.reason}")
    finally:
        provider.close()
