"""Redis servers of our own, on free ports of the loopback interface; stopped with the session."""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.crc
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from tarry.app import App
from tarry.storage.redis.operation import Op, ScriptCall
from tests.kit.directories import new_directory
from tests.kit.ports import free_port

START_S = 20.0


class RedisServer:
    """One server with an append-only file in a directory of its own. `kill` and `start` keep its data."""

    def __init__(self, *options: str) -> None:
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip("redis-server is not installed (make system-packages)")
        self._program = program
        self._options = options
        self.directory = new_directory("tarry-redis-")
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self, *options: str) -> None:
        with Path(self.directory, "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._program,
                    *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory)),
                    *("--appendonly", "yes", "--save", "", "--daemonize", "no", *self._options, *options),
                    *("--repl-diskless-sync-delay", "0"),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.await_ready()

    def await_ready(self) -> None:
        """Retried by the driver until it listens and has loaded its data."""
        retry = Retry(ConstantBackoff(0.02), int(START_S / 0.02))
        with redis.Redis(port=self.port, retry=retry, retry_on_error=[redis.BusyLoadingError]) as client:
            client.ping()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def errors(self, error: type[redis.RedisError]) -> int:
        """How often it replied this error: MOVED for `MovedError`."""
        name = error.__name__.removesuffix("Error").upper()
        with redis.Redis(port=self.port) as client:
            counts: Any = client.info("errorstats")
        return counts.get(f"errorstat_{name}", {"count": 0})["count"]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """It keeps its connections, and replies to none."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.resume()

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        with suppress(ProcessLookupError):
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class RedisCluster:
    """Three primaries with a replica each, which have agreed on the slots."""

    def __init__(self, *options: str) -> None:
        options += ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-config-file", "nodes.conf")
        self.nodes: list[RedisServer] = []
        try:
            for _ in range(6):
                self.nodes.append(RedisServer(*options))
            self._join()
        except BaseException:
            self.close()
            raise
        self.url = f"redis+cluster://127.0.0.1:{self.nodes[0].port}/0"

    def _join(self) -> None:
        clients = [redis.Redis(port=node.port, decode_responses=True) for node in self.nodes]
        try:
            for index, client in enumerate(clients):
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
                for node in self.nodes[:index]:
                    client.execute_command("CLUSTER", "MEET", "127.0.0.1", node.port)
            for index, (first, last) in enumerate(((0, 5460), (5461, 10922), (10923, 16383))):
                clients[index].execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
            for index in range(3):
                primary: Any = clients[index].execute_command("CLUSTER", "MYID")
                until(lambda client=clients[index + 3], id=primary: _replicates(client, id))
            for client in clients:
                until(lambda client=client: "cluster_state:ok" in str(client.execute_command("CLUSTER", "INFO")))
        finally:
            for client in clients:
                client.close()

    def primary_of(self, key: str) -> RedisServer:
        alive = next(node for node in self.nodes if node.is_alive)
        with redis.RedisCluster("127.0.0.1", alive.port) as client:
            port = getattr(client.get_node_from_key(key), "port", None)
        return next(node for node in self.nodes if node.port == port)

    def move_slot_of(self, key: str) -> None:
        with self.moving(key) as move_keys:
            move_keys()

    @contextmanager
    def moving(self, key: str) -> Iterator[Callable[[], None]]:
        """Hand the slot of a key over to another primary as `redis-cli --cluster reshard` does. Yields what moves its keys,
        one by one."""
        slot, source = redis.crc.key_slot(key.encode()), self.primary_of(key)
        target = next(node for node in self.nodes[:3] if node is not source)
        clients: list[Any] = [redis.Redis(port=node.port) for node in (source, target)]
        try:
            ids = [client.execute_command("CLUSTER", "MYID") for client in clients]
            clients[1].execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
            clients[0].execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])

            def move_keys() -> None:
                while keys := clients[0].execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1):
                    clients[0].execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)

            yield move_keys
            for client in reversed(clients):
                client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
        finally:
            for client in clients:
                client.close()

    def close(self) -> None:
        for node in self.nodes:
            node.close()


def queue_key(app: App, queue: str) -> str:
    """With which the keys of a queue begin. The store must have called the queue before."""
    store: Any = app.store
    return f"tarry:{{{store.queues._context.ids[queue].id}}}"


def commands_of(admin: Any, call: Callable[[], Any]) -> Counter[str]:
    """The commands of a call by name: its scripts' own, without the EVALSHA, and without those of the subscription."""
    admin.config_resetstat()
    call()
    stats = admin.info("commandstats")
    counted = Counter({name.removeprefix("cmdstat_"): value["calls"] for name, value in stats.items()})
    for own in ("config|resetstat", "info", "evalsha", "subscribe", "ping"):
        del counted[own]
    return counted


def first_scripts(app: App, operation: Any, n: int) -> list[ScriptCall]:
    """Execute the first scripts of an operation, as a process does that ends then; returns them and the next one."""
    store: Any = app.store
    op: Op[Any] = operation.start()
    calls = [next(op)]
    while len(calls) <= n:
        try:
            calls.append(op.send(store._reply(calls[-1])))
        except StopIteration:
            break
    op.close()
    return calls


def _replicates(client: Any, primary: str) -> bool:
    """A node knows another one a moment after the handshake."""
    try:
        client.execute_command("CLUSTER", "REPLICATE", primary)
    except redis.ResponseError:
        return False
    return True


def until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + START_S
    while not is_so():
        assert time.monotonic() < end_s, "the servers did not agree in time"
        _PAUSE.wait(0.05)


_PAUSE = threading.Event()
