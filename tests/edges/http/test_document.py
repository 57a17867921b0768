"""The OpenAPI document against the broker: a request that it allows has a documented response, and never a 5xx."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tarry.app import AsyncApp
from tarry.core.settings import StoreSettings
from tarry.edges.http.app import broker_app
from tarry.edges.http.settings import BrokerSettings
from tarry.storage.memory import AsyncMemoryStore, MemoryStore

pytestmark = pytest.mark.chaos

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
BEHIND = AsyncApp(AsyncMemoryStore(MemoryStore(settings=StoreSettings(create_queues=False))))
SERVED = broker_app(BEHIND, BrokerSettings(anonymous=True))
SERVED.state.broker.live.stop()  # live streams, which do not end by themselves, then end at once
schemathesis.serializer.alias("application/x-ndjson", "text/plain")
schema = schemathesis.openapi.from_asgi("/openapi.json", SERVED)


@schema.parametrize()
@settings(
    max_examples=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_a_request_that_the_document_allows_has_a_documented_response(case: schemathesis.Case) -> None:
    if isinstance(case.body, dict):
        case.body.pop("wait", None)
    case.call_and_validate(checks=CHECKS, headers={"host": "localhost"})
