"""Worker, sweeper and broker on Redis, and what is refused there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from urllib.request import urlopen

import pytest
import redis

import tarry
from tarry import Settled
from tarry.app import AsyncApp
from tarry.core.errors import InvalidState, StoreUnavailable
from tarry.core.settings import RetrySettings, StoreSettings
from tarry.edges.cli.exit_codes import ExitCode
from tarry.edges.cli.main import main
from tarry.edges.http.settings import BrokerSettings
from tarry.http import Client
from tarry.services.cron.scheduler import AsyncScheduler
from tarry.testing import MutableClock
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on
from tests.kit.clocks import START
from tests.kit.redis_servers import RedisServer, until
from tests.kit.sse import EventSource
from tests.kit.steps import MINUTE, TIMEOUT, TIMEOUT_S

LIFE = ["offered", "leased", "acked"]


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    server = RedisServer("--appendfsync", "always")
    yield server
    server.close()


def test_a_worker_handles_what_becomes_due(server: RedisServer) -> None:
    async def work() -> list[Any]:
        handled: list[Any] = []
        stop = asyncio.Event()
        worker = tarry.Worker()

        @worker.handler("jobs")
        async def handle(payload: int) -> None:
            handled.append(payload)
            if len(handled) == 3:
                stop.set()

        async with tarry.connect_async(server.url) as app:
            queue = app.queue("jobs")
            await queue.offer("later", 3, after=timedelta(milliseconds=300))
            await queue.offer_many([tarry.Message(payload=1), tarry.Message(payload=2)])
            async with asyncio.timeout(TIMEOUT_S):
                await worker.run(app, stop=stop)
        return handled

    assert sorted(asyncio.run(work())) == [1, 2, 3]


def test_a_sweeper_buries_what_no_consumer_polls(server: RedisServer) -> None:
    async def sweep() -> tuple[int, int]:
        clock = MutableClock(START)
        async with tarry.connect_async(server.url, clock=clock) as app:
            queue = app.queue("idle")
            await queue.offer("a", 1, max_attempts=1)
            assert await queue.try_poll() is not None
            clock.advance(MINUTE)
            report = await app.sweeper().run_once()
            return report.buried, (await app.queues.counts("idle")).dead.n

    assert asyncio.run(sweep()) == (1, 1)


def test_a_broker_serves_it(server: RedisServer) -> None:
    async def connected() -> AsyncApp:
        return await tarry.connect_async(server.url)

    loop = Loop()
    try:
        app = loop.run(connected())
        with broker_on(app, loop, BrokerSettings(anonymous=True)) as url, Client(url) as client:
            queue = client.queue("web")
            queue.offer("a", 1)
            delivery = queue.poll(TIMEOUT)
            assert delivery is not None
            assert (delivery.key, delivery.ack()) == ("a", Settled.DONE)
        loop.run(app.close())
    finally:
        loop.stop()


def test_a_broker_sends_its_events_live_and_from_a_position_and_has_the_timeline(server: RedisServer) -> None:
    async def connected() -> AsyncApp:
        return await tarry.connect_async(server.url)

    loop = Loop()
    try:
        app = loop.run(connected())
        with broker_on(app, loop, BrokerSettings(anonymous=True)) as url, Client(url) as client:
            queue = client.queue("live")
            queue.offer("before", 1)
            with EventSource(url, "?queue=live").until_hello() as source:
                queue.offer("a", 1, priority=9)
                delivery = queue.try_poll()
                assert delivery is not None
                delivery.ack()
                sent = source.some(3)
            assert [(event.kind, event.data["key"]) for event in sent] == [(kind, "a") for kind in LIFE]
            with EventSource(url, "?queue=live", last_id=sent[0].id) as resumed:
                assert resumed.some(2) == sent[1:]
            timeline = client.store.run(client.store.journal.timeline("live", "a"))
            assert [event.kind for event in timeline] == LIFE
        loop.run(app.close())
    finally:
        loop.stop()


def test_a_scheduler_makes_the_ticks_of_its_schedules(server: RedisServer) -> None:
    async def plan() -> list[str]:
        clock = MutableClock(START)
        async with tarry.connect_async(server.url, clock=clock) as app:
            await app.cron().install_periodic("report", timedelta(hours=1), queue="reports", payload=1)
            for _ in range(3):
                clock.advance(timedelta(hours=1))
                await AsyncScheduler(app.store).run_once()
            return [delivery.key[-25:-10] for delivery in await app.queue("reports").try_poll_many(9)]

    assert asyncio.run(plan()) == ["20240101-010000", "20240101-020000", "20240101-030000"]


PAGES = ("", "queues", "queues/web", "messages", "dead", "redrives", "schedules", "calendar", "consumers", "system")

NOT_ON_REDIS = {
    "anomalies": "The data pipeline needs PostgreSQL",
    "archive": "The data pipeline needs PostgreSQL",
    "pipeline": "The data pipeline needs PostgreSQL",
    "system": "this broker has another store",
    "system/checks": "this broker has another store",
    "queues/web/at": "This store keeps the newest events only",
}


def test_the_dashboard_shows_it(server: RedisServer) -> None:
    async def connected() -> AsyncApp:
        return await tarry.connect_async(server.url)

    loop = Loop()
    try:
        app = loop.run(connected())
        with broker_on(app, loop, BrokerSettings(anonymous=True)) as url, Client(url) as client:
            client.queue("web").offer("a", 1)
            for page in PAGES:
                with urlopen(f"{url}/dashboard/{page}") as response:
                    assert response.status == 200, page
            for page, sentence in NOT_ON_REDIS.items():
                with urlopen(f"{url}/dashboard/{page}") as response:
                    shown = response.read().decode()
                assert sentence in shown, page
                assert "in memory" not in shown, page
                assert "tarry pipeline run" not in shown, page
        loop.run(app.close())
    finally:
        loop.stop()


def test_the_pipeline_is_refused_in_one_sentence(server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    with tarry.connect(server.url) as app, pytest.raises(InvalidState, match="needs PostgreSQL") as refused:
        _ = app.pipeline
    for command in (["pipeline", "run"], ["verify"], ["pipeline", "report"]):
        assert main([*command, "--dsn", server.url]) == ExitCode.CONFLICT
        assert capsys.readouterr().err == f"error: {refused.value.message}\nhint: {refused.value.hint}\n"


def test_consumers_that_wait_execute_close_to_no_scripts_until_a_message_comes(server: RedisServer) -> None:
    with (
        tarry.connect(server.url) as app,
        redis.Redis(port=server.port) as admin,
        ThreadPoolExecutor(8) as pool,
    ):
        store: Any = app.store
        queue: Any = app.queue("idle")
        waiting = [pool.submit(queue.poll, timeout=TIMEOUT) for _ in range(8)]
        until(lambda: store.wakeup._listener.is_listening)
        assert queue.poll(timeout=timedelta(seconds=0.3)) is None
        before = _scripts(admin)
        assert queue.poll(timeout=timedelta(seconds=0.5)) is None
        assert _scripts(admin) - before < 12, "two of this poll, and a few of the consumer that sleeps for all"
        queue.offer_many([tarry.Message(payload=n) for n in range(8)])
        assert sorted(each.result(TIMEOUT_S).payload for each in waiting) == [*range(8)]


def _scripts(admin: Any) -> int:
    return sum(stat["calls"] for name, stat in admin.info("commandstats").items() if name.startswith("cmdstat_eval"))


def test_an_offer_a_poll_and_an_ack_take_few_commands_and_one_round_trip_each(server: RedisServer) -> None:
    with tarry.connect(server.url) as app, redis.Redis(port=server.port) as client:
        queue = app.queue("counted")
        queue.offer("first", 0)
        assert queue.try_poll().ack() is Settled.DONE  # pyright: ignore[reportOptionalMemberAccess]

        def commands(call: Any) -> tuple[int, Any]:
            client.config_resetstat()
            result = call()
            stats: Any = client.info("commandstats")
            stats.pop("cmdstat_config|resetstat")
            assert stats.pop("cmdstat_evalsha")["calls"] == 1
            return sum(each["calls"] for each in stats.values()), result

        assert commands(lambda: queue.offer("a", 1))[0] <= 10
        assert commands(lambda: queue.offer(None, 1))[0] <= 9  # no live message can have a key that was just generated
        polled, delivery = commands(queue.try_poll)
        assert polled <= 12
        assert commands(delivery.ack)[0] <= 10
        # A socket with a time limit of Python's would be polled before each call.
        store: Any = app.store
        assert store._connections._idle[0]._socket.gettimeout() is None


def test_a_server_that_does_not_reply_is_given_up_in_time(server: RedisServer) -> None:
    settings = StoreSettings(statement_for=timedelta(milliseconds=200), connection_retry=RetrySettings(retries=0))
    with tarry.connect(server.url, settings=settings) as app, redis.Redis(port=server.port) as client:
        app.queue("stalled").offer("first", 0)
        client.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
        try:
            with pytest.raises(StoreUnavailable):
                app.queue("stalled").offer("second", 0)
        finally:
            client.execute_command("CLIENT", "UNPAUSE")
        assert not app.queue("stalled").contains("second")
