"""Refuse a Redis server that can lose accepted messages."""

from __future__ import annotations

from typing import Any

from redis.exceptions import RedisError

from tarry.core.errors import SchemaMismatch, UnsafeDatabase
from tarry.core.settings import StoreSettings
from tarry.storage.redis.clients import blocking_client, is_cluster
from tarry.storage.redis.errors import translated

OLDEST_SERVER = (7, 0)
_READ = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory", "maxmemory-policy")


def prepare(url: str, settings: StoreSettings, *, allow_unsafe: bool) -> int:
    """Check every primary. Returns how many replicas must confirm a write: 1 if every primary has a replica, else 0."""
    client = blocking_client(url, settings)
    try:
        nodes = [client.get_redis_connection(node) for node in client.get_primaries()] if is_cluster(url) else [client]
        replicas = [_check(node, allow_unsafe=allow_unsafe) for node in nodes]
        return min(1, *replicas)
    except (RedisError, OSError) as error:
        raise translated(error, 1) from error
    finally:
        client.close()


def _check(node: Any, *, allow_unsafe: bool) -> int:
    info = node.info()
    version = tuple(int(part) for part in info["redis_version"].split(".")[:2])
    if version < OLDEST_SERVER:
        raise SchemaMismatch(f"Tarry needs Redis 7.0 or newer, and this server is {info['redis_version']}")
    problems = _problems(node)
    if problems and not allow_unsafe:
        raise UnsafeDatabase(
            f"this Redis can lose accepted messages: {'; '.join(problems)}",
            hint="change its configuration, or accept the loss: connect(…, allow_unsafe=True)",
        )
    return int(info.get("connected_slaves", 0))


def _problems(node: Any) -> list[str]:
    try:
        config = {name: value for name in _READ for value in node.config_get(name).values()}
    except RedisError as error:
        return [f"its configuration cannot be read ({error})"]
    problems: list[str] = []
    if config["appendonly"] != "yes":
        problems.append("appendonly is no, so a restart loses what came after the last snapshot")
    elif config["appendfsync"] != "always":
        problems.append(
            f"appendfsync is {config['appendfsync']}, so a power failure loses the last seconds: set it to always"
        )
    elif config["no-appendfsync-on-rewrite"] != "no":
        problems.append(
            "no-appendfsync-on-rewrite is yes, so a power failure during a rewrite loses what came since: set it to no"
        )
    if int(config["maxmemory"]) and config["maxmemory-policy"] != "noeviction":
        problems.append(f"maxmemory-policy is {config['maxmemory-policy']}, which deletes keys: set it to noeviction")
    return problems
