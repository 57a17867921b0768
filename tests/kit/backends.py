"""The implementations that must keep the contract, each behind the same blocking face."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast
from uuid import uuid4

import pytest

from tarry.api._sync.queue import Queue
from tarry.app import App, AsyncApp
from tarry.core._sync.ports import Store
from tarry.core.ports import AsyncStore
from tarry.core.settings import StoreSettings
from tarry.edges.http.settings import BrokerSettings
from tarry.http import AsyncClient, Client
from tarry.storage.http import AsyncHttpStore, HttpStore
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.store import AsyncPostgresStore
from tarry.storage.redis._sync.store import RedisStore
from tarry.storage.redis.store import AsyncRedisStore
from tests.kit.blocking import Blocking, Loop
from tests.kit.brokers import broker_on
from tests.kit.callers import Caller
from tests.kit.clocks import START, WatchedClock
from tests.kit.redis_servers import RedisCluster, RedisServer
from tests.kit.servers import Servers, oldest
from tests.kit.settings import FOR_TESTS

MEMORY = ("memory", "memory-async")
HTTP = ("http", "http-async")
"""The library over a broker: same verbs, on a memory store behind HTTP."""
POSTGRES = ("postgres-18-async", f"postgres-{oldest()}")
"""Every statement on the newest and on the oldest major, every contract over both ways to run it: what a statement does
does not depend on whether its caller blocks."""
REDIS = ("redis", "redis-async", "redis-cluster-async")
CLUSTER_ROLES = frozenset({"queues", "dead_letters", "redrive_targets"})
"""Those that every run checks on a cluster; `make chaos` checks all."""
where_the_messages_are = pytest.mark.where_the_messages_are
"""Contracts of roles that a client of a broker does not have: not collected for it."""
SETTINGS = FOR_TESTS
BEHIND = StoreSettings(scan_every=SETTINGS.scan_every, create_queues=False)
OPEN = BrokerSettings(anonymous=True, queue_defaults=None)


class Backend:
    """One implementation with a pinned clock. All tests of a session share its store, each with queues of its own."""

    def __init__(self, name: str, servers: Servers, loop: Loop) -> None:
        engine, _, rest = name.partition("-")
        self.name = name
        self.clock = WatchedClock()
        self.dsn = servers.get(rest.removesuffix("-async")).shared if engine == "postgres" else None
        self._loop = loop if name.endswith("-async") else None
        self._closing = ExitStack()
        if name in REDIS:
            server = RedisCluster() if "cluster" in name else RedisServer()
            self._closing.callback(server.close)
            self.redis = server
        if name in HTTP:
            self._brokers = Loop()
            self._closing.callback(self._brokers.stop)
        self._store = self._open(SETTINGS)

    def app(self, consumer: str | None = None) -> App:
        """A view of the common store; it is not to be closed."""
        return self._app(self._store, consumer)

    @contextmanager
    def own_app(self, settings: StoreSettings, consumer: str | None = None) -> Iterator[App]:
        """A store with other settings: on the same database, or with a memory of its own."""
        app = self._app(self._open(settings), consumer)
        try:
            yield app
        finally:
            app.close()

    @contextmanager
    def caller(self, *, autocommit: bool = False) -> Iterator[Caller]:
        assert self.dsn is not None, "the memory store has no connections"
        caller = Caller(self.dsn, self._loop, autocommit=autocommit)
        try:
            yield caller
        finally:
            caller.close()

    def close(self) -> None:
        self.app().close()
        self._closing.close()

    def _app(self, store: Store | AsyncStore, consumer: str | None) -> App:
        if isinstance(store, HttpStore):
            return cast("App", Client(store=store, consumer=consumer))
        if isinstance(store, AsyncHttpStore):
            return cast("App", Blocking(AsyncClient(store=store, consumer=consumer), cast("Loop", self._loop)))
        if self._loop is None:
            return App(cast("Store", store), dsn=self.dsn, consumer=consumer)
        return cast("App", Blocking(AsyncApp(cast("AsyncStore", store), dsn=self.dsn, consumer=consumer), self._loop))

    def _open_http(self, settings: StoreSettings) -> Store | AsyncStore:
        behind = AsyncApp(AsyncMemoryStore(MemoryStore(clock=self.clock, settings=BEHIND)))
        # Queues are made by the client, according to its settings, so that they get the defaults of the library.
        url = self._closing.enter_context(broker_on(behind, self._brokers, OPEN))
        made = HttpStore(url, settings=settings) if self._loop is None else AsyncHttpStore(url, settings=settings)
        return cast("Store | AsyncStore", made)

    def _open(self, settings: StoreSettings) -> Store | AsyncStore:
        if self.name in HTTP:
            return self._open_http(settings)
        if self.name in REDIS:
            made = RedisStore if self._loop is None else AsyncRedisStore
            return cast("Store | AsyncStore", made(self.redis.url, clock=self.clock, settings=settings))
        if self.dsn is None:
            store = MemoryStore(clock=self.clock, settings=settings)
            return store if self._loop is None else AsyncMemoryStore(store)
        if self._loop is None:
            return PostgresStore(self.dsn, clock=self.clock, settings=settings, poll_timer=_no_time_passes)
        return self._loop.run(_opened(self.dsn, self.clock, settings))


async def _opened(dsn: str, clock: WatchedClock, settings: StoreSettings) -> AsyncPostgresStore:
    store = AsyncPostgresStore(dsn, clock=clock, settings=settings, poll_timer=_no_time_passes)
    await store.open()
    return store


def _no_time_passes() -> float:
    """Where a poll looks first depends on how long the last ones took. On a busy machine that is chance, not contract."""
    return 0.0


class Backends:
    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._closing = ExitStack()
        self._loop: Loop | None = None
        self._made: dict[str, Backend] = {}

    def get(self, name: str) -> Backend:
        if self._loop is None:
            self._loop = Loop()
            self._closing.callback(self._loop.stop)
        if name not in self._made:
            made = self._made[name] = Backend(name, self._servers, self._loop)
            self._closing.callback(made.close)
        return self._made[name]

    def close(self) -> None:
        self._closing.close()


@pytest.fixture(scope="session")
def backends(servers: Servers) -> Iterator[Backends]:
    backends = Backends(servers)
    yield backends
    backends.close()


@pytest.fixture
def backend(request: pytest.FixtureRequest, backends: Backends) -> Backend:
    chosen = backends.get(request.param)
    chosen.clock.set(START)
    return chosen


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Which backends a test runs on: its own list, or those that have what it is about."""
    definition = metafunc.definition
    own = any(mark.args[0] == "backend" for mark in definition.iter_markers("parametrize"))
    if own or "backend" not in metafunc.fixturenames:
        return
    role = definition.path.parent.name
    redis: tuple[Any, ...] = ()
    if definition.path.parent.parent.name == "contracts":
        always = (REDIS[0], REDIS[2]) if role in CLUSTER_ROLES else REDIS[:1]
        redis = tuple(pytest.param(name, marks=() if name in always else pytest.mark.chaos) for name in REDIS)
    if "api" in definition.path.parts:  # before any store: the quickest that there is, for both halves of the API
        names = MEMORY
    elif definition.get_closest_marker("where_the_messages_are"):
        names = (*MEMORY, *POSTGRES, *redis)
    else:
        names = (*MEMORY, "http", pytest.param("http-async", marks=pytest.mark.chaos), *POSTGRES, *redis)
    metafunc.parametrize("backend", names, indirect=True)


@pytest.fixture
def app(backend: Backend) -> App:
    return backend.app("tester")


@pytest.fixture
def clock(backend: Backend) -> WatchedClock:
    """At the beginning of 2024 until the test moves it."""
    return backend.clock


@pytest.fixture
def queue(app: App) -> Queue[Any]:
    """A queue that no other test knows, with the default settings."""
    return app.queue(new_name())


@pytest.fixture
def queue_exists(app: App, queue: Queue[Any]) -> None:
    """For tests that begin with a verb that creates no queue."""
    app.queues.create(queue.name)


def new_name() -> str:
    return f"q-{uuid4().hex[:16]}"
