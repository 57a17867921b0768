"""Relay's routes with generated parameters: no response is a 5xx."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error

from tarry.app import AsyncApp
from tarry.core.settings import StoreSettings
from tarry.edges.http.app import RELAY, broker_app
from tarry.edges.http.settings import BrokerSettings
from tarry.storage.memory import AsyncMemoryStore, MemoryStore

pytestmark = pytest.mark.chaos

BEHIND = AsyncApp(AsyncMemoryStore(MemoryStore(settings=StoreSettings(create_queues=False))))
SERVED = broker_app(BEHIND, BrokerSettings(anonymous=True))
SERVED.state.broker.live.stop()  # live streams, which do not end by themselves, then end at once
ROUTERS = [part.router for part in RELAY]


def documented() -> Any:
    """The OpenAPI document with Relay's routes, which the broker's own document leaves out."""
    documented_parts = [part for router in ROUTERS for part in (router, *router.routes)]
    for part in documented_parts:
        part.include_in_schema = True  # pyright: ignore[reportAttributeAccessIssue]
    try:
        return SERVED.openapi()
    finally:
        for part in documented_parts:
            part.include_in_schema = False  # pyright: ignore[reportAttributeAccessIssue]


schema = schemathesis.openapi.from_dict(documented()).include(path_regex="^/api/")
schema.app = SERVED


@schema.parametrize()
@settings(
    max_examples=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_no_request_is_a_server_error(case: schemathesis.Case) -> None:
    if case.query:
        case.query.pop("timeout", None)
    case.call_and_validate(checks=[not_a_server_error], headers={"host": "localhost"})


def test_every_route_of_relay_was_called() -> None:
    assert len(list(schema.get_all_operations())) == sum(len(router.routes) for router in ROUTERS)
