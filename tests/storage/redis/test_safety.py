"""What `connect` refuses, and what a replica that takes over has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

import tarry
from tarry import Outcome
from tarry.app import App
from tarry.core.errors import InvalidInput, StoreUnavailable, UnsafeDatabase
from tarry.core.settings import RetrySettings, StoreSettings
from tarry.storage.redis._sync.store import RedisStore
from tests.kit.redis_servers import RedisServer, until
from tests.kit.steps import SECOND, TIMEOUT_S, in_background, keys

ONCE = StoreSettings(connection_retry=RetrySettings.none())


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    server = RedisServer("--appendfsync", "always")
    yield server
    server.close()


@pytest.mark.parametrize(
    ("setting", "value", "word"),
    [
        ("appendfsync", "everysec", "appendfsync"),
        ("appendonly", "no", "appendonly"),
        ("no-appendfsync-on-rewrite", "yes", "no-appendfsync-on-rewrite"),
        ("maxmemory-policy", "allkeys-lru", "maxmemory-policy"),
    ],
)
def test_what_can_lose_accepted_messages_is_refused(server: RedisServer, setting: str, value: str, word: str) -> None:
    with redis.Redis(port=server.port, decode_responses=True) as admin:
        before: Any = admin.config_get(setting)
        admin.config_set("maxmemory", "100mb")
        admin.config_set(setting, value)
        try:
            with pytest.raises(UnsafeDatabase, match=word) as caught:
                tarry.connect(server.url)
            assert "allow_unsafe" in str(caught.value.hint)
            tarry.connect(server.url, allow_unsafe=True).close()
        finally:
            admin.config_set(setting, before[setting])
            admin.config_set("maxmemory", "0")


def test_a_safe_server_is_connected_blocking_and_awaiting(server: RedisServer) -> None:
    with tarry.connect(server.url, clock=None) as app:
        app.queue("safe").offer("a", 1)
        assert app.queues.counts("safe").ready.n == 1


def test_a_server_that_is_not_there_is_unavailable(server: RedisServer) -> None:
    with pytest.raises(StoreUnavailable):
        tarry.connect("redis://127.0.0.1:1/0", settings=ONCE)


def test_the_connection_of_a_caller_is_refused_in_one_sentence(server: RedisServer) -> None:
    with tarry.connect(server.url) as app, pytest.raises(InvalidInput, match="transaction"):
        app.queue("safe").offer("b", 1, conn=object())


def _has_replica(admin: Any) -> bool:
    return admin.info("replication").get("slave0", {}).get("state") == "online"


def test_an_accepted_message_is_on_the_replica_that_takes_over() -> None:
    primary = RedisServer("--appendfsync", "always")
    replica = RedisServer("--appendfsync", "always", "--replicaof", "127.0.0.1", str(primary.port))
    try:
        with redis.Redis(port=primary.port) as admin:
            until(lambda: _has_replica(admin))
        with tarry.connect(primary.url, settings=ONCE) as app:
            app.queue("q").offer("a", 1)
            primary.kill()
        with redis.Redis(port=replica.port) as admin:
            admin.replicaof("NO", "ONE")
        with tarry.connect(replica.url) as app:
            assert keys(app.queue("q").try_poll_many(10)) == ["a"]
    finally:
        primary.close()
        replica.close()


def test_a_server_that_is_read_only_is_waited_for_until_it_is_the_primary() -> None:
    primary = RedisServer("--appendfsync", "always")
    replica = RedisServer("--appendfsync", "always", "--replicaof", "127.0.0.1", str(primary.port))
    try:
        with App(RedisStore(replica.url)) as app, redis.Redis(port=replica.port) as admin:  # pyright: ignore[reportArgumentType]
            until(lambda: admin.info("replication").get("master_link_status") == "up")
            with in_background(app.queue("q").offer, "a", 1) as offered:
                until(lambda: bool(admin.info("errorstats").get("errorstat_READONLY")))
                admin.replicaof("NO", "ONE")
                assert offered.result(TIMEOUT_S) is Outcome.CREATED
    finally:
        primary.close()
        replica.close()


def test_a_change_that_no_replica_confirms_is_not_accepted() -> None:
    primary = RedisServer("--appendfsync", "always")
    replica = RedisServer("--appendfsync", "always", "--replicaof", "127.0.0.1", str(primary.port))
    try:
        with redis.Redis(port=primary.port) as admin:
            until(lambda: _has_replica(admin))
        with tarry.connect(primary.url, settings=ONCE) as app:
            app.queue("q").offer("a", 1)
            replica.kill()
            with pytest.raises(StoreUnavailable, match="replica"):
                app.queue("q").offer("b", 1, after=SECOND)
    finally:
        primary.close()
        replica.close()


def test_a_primary_that_is_made_a_replica_while_it_waits_for_one_has_accepted_nothing_yet() -> None:
    primary = RedisServer("--appendfsync", "always")
    replica = RedisServer("--appendfsync", "always", "--replicaof", "127.0.0.1", str(primary.port))
    try:
        with redis.Redis(port=primary.port) as admin:
            until(lambda: _has_replica(admin))
            with tarry.connect(primary.url) as app:
                app.queue("q").offer("first", 0)
                with replica.stopped(), in_background(app.queue("q").offer, "a", 1) as offered:
                    until(lambda: admin.info("clients")["blocked_clients"] > 0)  # pyright: ignore[reportIndexIssue]
                    admin.replicaof("127.0.0.1", str(replica.port))  # the reply to WAIT is an error now
                    until(lambda: bool(admin.info("errorstats").get("errorstat_READONLY")))  # pyright: ignore[reportAttributeAccessIssue]
                    admin.replicaof("NO", "ONE")
                    assert not offered.done()
                    replica.resume()
                    assert offered.result(TIMEOUT_S) is Outcome.CREATED
                assert sorted(keys(app.queue("q").try_poll_many(10))) == ["a", "first"]
    finally:
        primary.close()
        replica.close()
