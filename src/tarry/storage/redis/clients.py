"""Clients for one server or a cluster, by URL, blocking and awaiting.

If redis-py repeats a command after a lost connection, the command takes effect once: each queue keeps the last request of
every request slot (`_queue.lua`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import redis as blocking
import redis.asyncio as awaiting
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from tarry.core.settings import StoreSettings

_CLUSTER = "+cluster://"


def is_cluster(url: str) -> bool:
    return _CLUSTER in url


def blocking_client(url: str, settings: StoreSettings) -> Any:
    driver: Any = blocking
    return _client(driver, url, settings, Retry(NoBackoff(), 0))


def awaiting_client(url: str, settings: StoreSettings) -> Any:
    driver: Any = awaiting
    return _client(driver, url, settings, AsyncRetry(NoBackoff(), 0))


def _client(driver: Any, url: str, settings: StoreSettings, retry: Any) -> Any:
    options = _options(settings)
    if is_cluster(url):
        return driver.RedisCluster.from_url(url.replace(_CLUSTER, "://"), retry=retry, **options)
    wait_s = settings.connect_for.total_seconds()
    return driver.Redis.from_pool(driver.BlockingConnectionPool.from_url(url, retry=retry, timeout=wait_s, **options))


def _options(settings: StoreSettings) -> dict[str, Any]:
    connect_s = settings.connect_for.total_seconds()
    statement_s = None if settings.statement_for is None else settings.statement_for.total_seconds()
    return {
        "protocol": 2,  # a connection receives only replies
        "max_connections": settings.pool_size,
        "socket_connect_timeout": connect_s,
        "socket_timeout": statement_s,
        "socket_keepalive": True,
    }


class Nodes:
    """Clients of single servers (the primaries of a cluster), for commands that must share a connection."""

    def __init__(self, url: str, connect: Callable[[str], Any]) -> None:
        self._url, self._connect = url, connect
        self._clients: dict[str, Any] = {}

    def of(self, client: Any, key: str) -> Any:
        """The client of the server that owns the key, according to the slot map of the cluster client."""
        if not is_cluster(self._url):
            return client
        node = client.get_node_from_key(key)
        address = f"{node.host}:{node.port}"
        if address not in self._clients:
            parts = urlsplit(self._url.replace(_CLUSTER, "://"))
            user, at, _ = parts.netloc.rpartition("@")
            self._clients[address] = self._connect(urlunsplit(parts._replace(netloc=f"{user}{at}{address}")))
        return self._clients[address]

    def all(self) -> list[Any]:
        return list(self._clients.values())
