"""Export and import on PostgreSQL: a slow reader blocks nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import psycopg
import pytest

from tarry.app import AsyncApp, connect_async
from tarry.core.settings import StoreSettings
from tarry.edges.http.settings import BrokerSettings
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on
from tests.kit.sleepers import until

MESSAGES = 3_000
PAYLOAD = "x" * 8_000  # more, in all, than sockets buffer
HOLDING = """
select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
  and (backend_xmin is not null or state like 'idle in transaction%')
"""


@pytest.fixture
def url(database: str, http_loop: Loop) -> Iterator[str]:
    app: AsyncApp = http_loop.run(_opened(database))
    with broker_on(app, http_loop, BrokerSettings(anonymous=True)) as address:
        yield address
    http_loop.run(app.close())


async def _opened(dsn: str) -> AsyncApp:
    return await connect_async(dsn, settings=StoreSettings(create_queues=False)).__aenter__()


def sums(url: str, queue: str, body: Iterator[bytes]) -> dict[str, int]:
    response = httpx.post(f"{url}/v1/queues/{queue}/import", content=body, timeout=60)
    assert response.status_code == 200, response.text
    return json.loads(response.text.splitlines()[-1])


def test_a_slow_reader_keeps_no_snapshot_and_gets_everything(url: str, database: str) -> None:
    offers = ({"key": f"{i:05}", "payload": PAYLOAD, "priority": i % 10, "after": i % 7} for i in range(MESSAGES))
    assert sums(url, "q", (json.dumps(offer).encode() + b"\n" for offer in offers))["created"] == MESSAGES
    with (
        psycopg.connect(database, autocommit=True) as conn,
        httpx.stream("GET", f"{url}/v1/queues/q/export", timeout=60) as response,
    ):
        chunks = response.iter_raw()
        body = next(chunks)
        # Pages are read until the client reads no more.
        until(lambda: conn.execute(HOLDING).fetchone() == (0,), "the export holds a snapshot")
        body += b"".join(chunks)
    keys = [json.loads(line)["key"] for line in body.splitlines()]
    assert sorted(keys) == [f"{i:05}" for i in range(MESSAGES)]
    assert sums(url, "copy", iter([body]))["created"] == MESSAGES
    with psycopg.connect(database) as conn:
        same = conn.execute(
            "select count(*), count(distinct (m.payload, m.due_at, m.priority, m.key)) from tarry.message m"
        ).fetchone()
    assert same == (2 * MESSAGES, MESSAGES)
