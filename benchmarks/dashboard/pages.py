"""Request every page some times: its size, how long the server took, and how long its statements took."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from benchmarks.dashboard.fill import ERRORS, name
from benchmarks.dashboard.statement_log import StatementLog, log_of, logging_dsn
from tarry.app import connect_async
from tarry.core.dead_letters.fingerprints import fingerprint
from tarry.core.settings import StoreSettings
from tarry.edges.cli.processes.worker import collect_rarely
from tarry.edges.http.server import running_broker
from tarry.edges.http.settings import BrokerSettings

SIZE_KB = 150
RENDER_MS = 150
STATEMENT_MS = 50
QUEUE = name(1)
LETTER = f"/queues/{QUEUE}/dead/letters/0"
"""The page of a dead letter; its version is known when the database is filled: `paths_of`."""
PATHS = (
    "/",
    "/?range=24h",
    "/?range=7d",
    "/queues",
    "/search.json?q=queue",
    f"/queues/{QUEUE}",
    f"/queues/{QUEUE}?range=7d",
    f"/queues/{QUEUE}/next",
    f"/queues/{QUEUE}/settings",
    f"/queues/{QUEUE}/at",
    "/messages",
    *(
        f"/messages?q={quote(query)}"
        for query in (
            f"queue:{QUEUE} state:ready",
            "state:delayed due:<+1h",
            "key:order-00000001",
            f"queue:{QUEUE} attempts:>1 error:~timeout",
            f"queue:{QUEUE} payload.customer.id:42",
            f"queue:{QUEUE} state:dead",
            f"queue:{QUEUE} state:done",
        )
    ),
    "/messages/jobs",
    "/messages/jobs/1",
    f"/queues/{QUEUE}/messages/order-00000001",
    f"/queues/{QUEUE}/messages/done-00000001",
    f"/queues/{QUEUE}/message?key=order-00000001",
    f"/queues/{QUEUE}/message/payload?key=order-00000001",
    "/dead",
    f"/queues/{QUEUE}/dead",
    f"/queues/{QUEUE}/dead/groups/{fingerprint('exhausted', ERRORS[1])}",
    LETTER,
    f"/queues/{QUEUE}/dead/redrive",
    f"/queues/{QUEUE}/dead/discard",
    "/redrives",
    "/redrives/1",
    "/schedules",
    "/schedules/report-00001",
    "/schedules/report-00001/ticks",
    "/schedules/report-00001/backfill",
    "/schedules/report-00001/edit",
    "/new-schedule",
    "/calendar",
    "/calendar?span=30d",
    "/consumers",
    "/consumers/worker-1",
    "/anomalies",
    "/anomalies/1",
    "/archive",
    "/pipeline",
    "/system",
    "/system/checks",
    "/system/settings",
    "/system/audit",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    path: str
    status: int
    bytes: int
    p50_ms: float
    p95_ms: float
    cpu_ms: float
    """Median of this process, the client included: what does not depend on other load of the machine."""
    statements: float
    """Per page."""
    slowest: str
    slowest_ms: float
    """The 95th percentile of the slowest statement."""
    best_ms: float
    """The shortest time of that statement: what it needs if the machine has nothing else to do."""

    @property
    def missed(self) -> list[str]:
        """Names of the targets that the page misses."""
        checks = {
            "status": self.status == 200,
            "size": self.bytes <= SIZE_KB * 1_000,
            "render": self.p95_ms < RENDER_MS,
            "statement": self.slowest_ms < STATEMENT_MS,
        }
        return [target for target, met in checks.items() if not met]


async def measure(dsn: str, rounds: int, paths: Sequence[str] = PATHS) -> list[Figure]:
    log = StatementLog(log_of(dsn))
    async with (
        connect_async(logging_dsn(dsn), settings=StoreSettings(pool_size=4)) as app,
        running_broker(app, BrokerSettings(anonymous=True)) as url,
        httpx.AsyncClient(base_url=f"{url}/dashboard", timeout=60) as client,
    ):
        collect_rarely()  # as `tarry serve` does
        letters = (await client.get(f"/queues/{QUEUE}/dead.json?limit=1")).json()
        return [await _measure(client, log, path, rounds) for path in paths_of(letters, paths)]


def paths_of(letters: Any, paths: Sequence[str] = PATHS) -> list[str]:
    """The paths with the version of the first of these dead letters of the queue, which are JSON of its list."""
    version = next((letter["version"] for letter in letters["dead_letters"]), 0)
    return [f"{path[:-1]}{version}" if path == LETTER else path for path in paths]


async def _measure(client: httpx.AsyncClient, log: StatementLog, path: str, rounds: int) -> Figure:
    response = await client.get(path)  # not counted: caches are cold
    log.read()
    took_ms, cpu_ms = list[float](), list[float]()
    for _ in range(rounds):
        began = time.process_time()
        response = await client.get(path)
        cpu_ms.append((time.process_time() - began) * 1000)
        match: Any = re.search(r"dur=([\d.]+)", response.headers["server-timing"])
        took_ms.append(float(match[1]))
    times = log.read()
    slowest = max(times, key=lambda name: quantile(times[name], 0.95), default="none")
    return Figure(
        path=path,
        status=response.status_code,
        bytes=len(response.content),
        p50_ms=quantile(took_ms, 0.5),
        p95_ms=quantile(took_ms, 0.95),
        cpu_ms=quantile(cpu_ms, 0.5),
        statements=sum(map(len, times.values())) / rounds,
        slowest=slowest,
        slowest_ms=quantile(times.get(slowest, [0.0]), 0.95),
        best_ms=min(times.get(slowest, [0.0])),
    )


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]
