"""Replies that are lost, scripts that the server forgot, a busy server, and a server that is killed: once is once."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
import redis
from redis.backoff import NoBackoff
from redis.exceptions import AskError, MovedError, TryAgainError
from redis.retry import Retry

from tarry import Message
from tarry.api._sync.queue import Queue
from tarry.app import App
from tarry.core.errors import InvalidInput, StoreUnavailable
from tarry.core.messages.model import Draft
from tarry.core.messages.outcomes import Outcome, Settled
from tarry.core.settings import RetrySettings, StoreSettings
from tarry.storage.redis._sync.store import RedisStore
from tarry.storage.redis.operation import ScriptCall
from tarry.storage.redis.roles import Requests
from tarry.storage.redis.script import script
from tests.kit.backends import Backends, new_name
from tests.kit.redis_servers import RedisCluster, RedisServer, queue_key, until
from tests.kit.steps import MINUTE, SECOND, TIMEOUT_S

PATIENT = StoreSettings(
    pool_size=16, connection_retry=RetrySettings(retries=100, initial_for=SECOND / 50, cap_for=SECOND / 5)
)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    server = RedisServer("--appendfsync", "always", "--busy-reply-threshold", "20")
    yield server
    server.close()


@pytest.fixture
def app(server: RedisServer) -> Iterator[App]:
    with App(RedisStore(server.url, settings=PATIENT)) as app:  # pyright: ignore[reportArgumentType]
        yield app


@pytest.fixture
def queue(app: App) -> Queue[Any]:
    queue = app.queue(new_name())
    queue.offer("first", 0, after=MINUTE)
    return queue


class LosesReplies:
    """A client whose server executes every command, and whose connection breaks before each reply of the first ones."""

    def __init__(self, client: Any, replies: int) -> None:
        self._client = client
        self.left = replies

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def execute(self, command: Any) -> Any:
        reply = self._client.execute(command)
        if self.left:
            self.left -= 1
            raise redis.ConnectionError("the reply was lost")
        return reply


def lose_replies(app: App, replies: int = 2) -> None:
    store: Any = app.store
    store._connections = LosesReplies(store._connections, replies)


def kinds(app: App, queue: Queue[Any], key: str) -> list[str]:
    return [event.kind.value for event in app.store.run(app.store.journal.timeline(queue.name, key))]


def test_an_offer_whose_reply_was_lost_is_made_once(app: App, queue: Queue[Any]) -> None:
    lose_replies(app)
    assert queue.offer("a", 1, after=SECOND) is Outcome.CREATED
    assert kinds(app, queue, "a") == ["offered"]


def test_a_poll_whose_reply_was_lost_returns_what_it_leased(app: App, queue: Queue[Any]) -> None:
    queue.offer("a", 1)
    lose_replies(app)
    delivery = queue.try_poll()
    assert delivery is not None
    assert delivery.attempt == 1
    assert delivery.ack() is Settled.DONE
    assert kinds(app, queue, "a") == ["offered", "leased", "acked"]


@pytest.mark.parametrize("verb", ["ack", "nack", "release", "bury", "touch"])
def test_a_settle_whose_reply_was_lost_is_done_and_done_once(app: App, queue: Queue[Any], verb: str) -> None:
    queue.offer("a", 1)
    delivery = queue.try_poll()
    lose_replies(app)
    assert getattr(delivery, verb)() is Settled.DONE
    assert len(kinds(app, queue, "a")) == 3


def test_a_server_that_forgot_its_scripts_is_sent_them_again(app: App, queue: Queue[Any], server: RedisServer) -> None:
    with redis.Redis(port=server.port) as admin:
        admin.script_flush()
    assert queue.offer("a", 1) is Outcome.CREATED


def test_a_full_memory_refuses_offers_as_a_whole_and_lets_consumers_work(
    app: App, queue: Queue[Any], server: RedisServer
) -> None:
    for key in "abcd":
        queue.offer(key, 1)
    held = {delivery.key: delivery for delivery in queue.try_poll_many(2)}
    with redis.Redis(port=server.port) as admin:
        admin.config_set("maxmemory", 1)
        try:
            for key in ("c", "new"):
                with pytest.raises(StoreUnavailable, match="accepts no writes"):
                    queue.offer(key, 2, after=MINUTE)
            assert held["a"].ack() is Settled.DONE
            assert held["b"].nack("x", after=0 * SECOND) is Settled.DONE
            polled = queue.try_poll_many(9)
            assert sorted(delivery.key for delivery in polled) == ["b", "c", "d"], "no half of an offer was stored"
            assert {delivery.ack() for delivery in polled} == {Settled.DONE}
        finally:
            admin.config_set("maxmemory", 0)
    assert queue.offer("new", 2) is Outcome.CREATED


@pytest.mark.parametrize(("n", "size"), [(100_001, 0), (257, 1 << 20)])
def test_a_batch_that_would_occupy_the_server_for_long_is_refused(
    app: App, queue: Queue[Any], n: int, size: int
) -> None:
    payload = bytes(size)
    with pytest.raises(InvalidInput, match="at most"):
        app.store.run(app.store.messages.offer_many(queue.name, [Draft(key=str(k), payload=payload) for k in range(n)]))
    assert app.queues.counts(queue.name).ready.n == 0


def test_a_busy_server_is_waited_for(app: App, queue: Queue[Any], server: RedisServer) -> None:
    begun = threading.Event()

    def occupy() -> None:
        spin = "while true do end"
        with redis.Redis(port=server.port) as client:
            begun.set()
            with pytest.raises(redis.ResponseError):
                client.eval(spin, 0)

    with ThreadPoolExecutor(2) as pool:
        occupied = pool.submit(occupy)
        assert begun.wait(TIMEOUT_S)
        with redis.Redis(port=server.port) as admin:
            _until_busy(admin)
            offered = pool.submit(queue.offer, "a", 1)
            admin.script_kill()
        assert offered.result(TIMEOUT_S) is Outcome.CREATED
        occupied.result(TIMEOUT_S)
    assert kinds(app, queue, "a") == ["offered"]


def _until_busy(admin: Any) -> None:
    until(lambda: _is_busy(admin))


def _is_busy(admin: Any) -> bool:
    try:
        admin.ping()
    except redis.ResponseError as error:
        return str(error).startswith("BUSY")
    return False


def test_a_child_process_never_has_the_request_numbers_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    requests, call = Requests(repeated_by_driver=False), ScriptCall(script("queues/now"), "key", {})
    parent = requests.begin(call).arguments[3]
    monkeypatch.setattr(os, "getpid", lambda: 1)
    child = requests.begin(call).arguments[3]
    slots = [msgspec.msgpack.decode(packed)["slot"].partition(":")[0] for packed in (parent, child)]
    assert slots[0] != slots[1]


class Traffic:
    """Producers and consumers that go on whatever happens, and the outcomes that they got."""

    def __init__(self, queue: Queue[Any], names: str = "ab") -> None:
        self._queue = queue
        self._stop = threading.Event()
        self.accepted: list[str] = []
        self.refused: list[str] = []
        self.acked: Counter[str] = Counter()
        self._pool = ThreadPoolExecutor(len(names) + 2)
        self._work = [self._pool.submit(self._produce, name) for name in names]
        self._work += [self._pool.submit(self._consume) for _ in range(2)]

    def _produce(self, name: str) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            key = f"{name}-{number}"
            try:
                assert self._queue.offer(key, number) is Outcome.CREATED
                self.accepted.append(key)
            except StoreUnavailable as error:
                if "accepts no writes" not in error.message:
                    raise
                self.refused.append(key)

    def _consume(self) -> None:
        while not self._stop.is_set():
            self._ack(5)

    def _ack(self, n: int) -> int:
        deliveries = self._queue.try_poll_many(n)
        self.acked.update(delivery.key for delivery in deliveries if delivery.ack() is Settled.DONE)
        return len(deliveries)

    def flow(self, n: int) -> None:
        """Until so many more are accepted."""
        before = len(self.accepted)
        until(lambda: len(self.accepted) >= before + n or any(job.done() for job in self._work))

    def end(self, lost: Collection[str] = ()) -> None:
        """`lost`: what an administrator may have deleted."""
        self._stop.set()
        with self._pool:
            for job in self._work:
                job.result(TIMEOUT_S)
        while self._ack(100):
            pass
        assert set(self.acked) - {*lost} == set(self.accepted) - {*lost}
        assert set(self.acked.values()) == {1}, "an acked message was delivered again"


def test_nothing_accepted_is_lost_and_nothing_acked_returns_when_the_server_is_killed() -> None:
    server = RedisServer("--appendfsync", "always")
    try:
        with App(RedisStore(server.url, settings=PATIENT)) as app:  # pyright: ignore[reportArgumentType]
            traffic = Traffic(app.queue("killed"))
            for _ in range(3):
                traffic.flow(200)
                server.kill()
                server.start()
            traffic.end()
    finally:
        server.close()


def test_scripts_that_are_forgotten_and_a_full_memory_lose_nothing_while_traffic_flows(server: RedisServer) -> None:
    with (
        App(RedisStore(server.url, settings=PATIENT)) as app,  # pyright: ignore[reportArgumentType]
        redis.Redis(port=server.port) as admin,
    ):
        traffic = Traffic(app.queue(new_name()))
        try:
            for _ in range(5):
                traffic.flow(30)
                admin.script_flush()
                traffic.flow(30)
                refused = len(traffic.refused)
                admin.config_set("maxmemory", 1)
                until(lambda refused=refused: len(traffic.refused) > refused + 20)
                admin.config_set("maxmemory", 0)
        finally:
            admin.config_set("maxmemory", 0)
        traffic.end()
        assert not set(traffic.refused) & set(traffic.acked), "refused means that it was not stored"


def test_traffic_goes_on_after_everything_was_deleted() -> None:
    server = RedisServer("--appendfsync", "no")
    try:
        with (
            App(RedisStore(server.url, settings=PATIENT)) as app,  # pyright: ignore[reportArgumentType]
            redis.Redis(port=server.port) as admin,
        ):
            traffic = Traffic(app.queue("flushed"))
            for _ in range(5):
                admin.flushall()
                traffic.flow(50)  # and the offers that were being made have returned
            lost = set(traffic.accepted)
            traffic.flow(200)
            traffic.end(lost)
    finally:
        server.close()


def test_a_server_that_loads_its_data_is_waited_for() -> None:
    server = RedisServer("--appendfsync", "always")
    try:
        with App(RedisStore(server.url, settings=PATIENT)) as app:  # pyright: ignore[reportArgumentType]
            queue = app.queue("loading")
            queue.offer_many([Message(payload=n) for n in range(500)])
            with redis.Redis(port=server.port) as admin:
                admin.mset({f"key {n}": n for n in range(12)})  # seconds to load, in which it can be seen
                admin.bgrewriteaof()
                until(lambda: not admin.info("persistence")["aof_rewrite_in_progress"])  # pyright: ignore[reportIndexIssue]
            server.kill()
            slow = ("--key-load-delay", "200000", "--loading-process-events-interval-bytes", "1024")
            with ThreadPoolExecutor(1) as pool:
                started = pool.submit(server.start, *slow)  # 0.2 s for each key
                with redis.Redis(port=server.port, retry=Retry(NoBackoff(), 0)) as admin:
                    until(lambda: _is_loading(admin))
                    assert queue.offer("a", 1) is Outcome.CREATED
                started.result(TIMEOUT_S)
            assert app.queues.counts("loading").ready.n == 501
    finally:
        server.close()


def _is_loading(admin: Any) -> bool:
    try:
        admin.ping()
    except redis.BusyLoadingError:
        return True
    except redis.ConnectionError:
        return False
    return pytest.fail("the server was ready before it was seen loading")


def test_a_queue_that_moves_is_waited_for_and_one_that_has_moved_is_found(backends: Backends) -> None:
    """Its node refuses scripts while it hands the keys over, sends clients on when they are gone, and names the node that has
    the slot afterwards: three errors, which the test counts."""
    cluster = backends.get("redis-cluster-async").redis
    assert isinstance(cluster, RedisCluster)
    name = new_name()
    stores = [RedisStore(cluster.url, settings=PATIENT) for _ in range(2)]
    with App(stores[0]) as app, App(stores[1]) as other, ThreadPoolExecutor(1) as pool:  # pyright: ignore[reportArgumentType]
        queue = app.queue(name)
        queue.offer("first", 0, after=MINUTE)
        assert other.queue(name).contains("first")
        source = cluster.primary_of(queue_key(other, name))
        before = {error: source.errors(error) for error in (TryAgainError, AskError, MovedError)}
        with cluster.moving(queue_key(other, name)) as move_keys:
            offered = pool.submit(queue.offer, "a", 1)
            until(lambda: source.errors(TryAgainError) > before[TryAgainError])
            move_keys()
            until(lambda: source.errors(AskError) > before[AskError])
            assert not offered.done()
        assert offered.result(TIMEOUT_S) is Outcome.CREATED
        assert cluster.primary_of(queue_key(other, name)) is not source
        moved = source.errors(MovedError)
        assert other.queue(name).offer("a", 1) is Outcome.UPDATED, "it was due earlier, so it is a new version"
        assert source.errors(MovedError) > moved >= before[MovedError]
        assert kinds(app, queue, "a") == ["offered", "updated"]


@pytest.mark.chaos
def test_a_replica_of_a_cluster_takes_over_and_has_what_was_accepted() -> None:
    """The primary of the queue is killed with SIGKILL while traffic flows, and comes back as a replica: until then no replica
    confirms a change, and none is accepted."""
    cluster = RedisCluster("--appendfsync", "always")
    try:
        store = RedisStore(cluster.url, settings=PATIENT, replicas=1)
        with App(store) as app:  # pyright: ignore[reportArgumentType]
            queue = app.queue("moved")
            queue.offer("first", 0, after=MINUTE)
            traffic = Traffic(queue)
            traffic.flow(200)
            key = queue_key(app, "moved")
            killed = cluster.primary_of(key)
            killed.kill()
            until(lambda: cluster.primary_of(key) is not killed)
            killed.start()
            traffic.flow(200)
            traffic.end()
            assert queue.contains("first")
    finally:
        cluster.close()


@pytest.mark.chaos
def test_a_queue_moves_to_another_node_while_traffic_flows() -> None:
    cluster = RedisCluster("--appendfsync", "always")
    try:
        store = RedisStore(cluster.url, settings=PATIENT)
        with App(store) as app:  # pyright: ignore[reportArgumentType]
            queue = app.queue("moved")
            queue.offer("first", 0, after=MINUTE)
            traffic = Traffic(queue)
            for _ in range(3):
                traffic.flow(200)
                before = cluster.primary_of(queue_key(app, "moved"))
                cluster.move_slot_of(queue_key(app, "moved"))
                assert cluster.primary_of(queue_key(app, "moved")) is not before
            traffic.flow(200)
            traffic.end()
            assert queue.contains("first")
    finally:
        cluster.close()


@pytest.mark.chaos
def test_a_poll_whose_reply_is_lost_with_its_primary_is_made_once() -> None:
    """The script was executed and a replica has it; the primary is killed before the client reads the reply."""
    cluster = RedisCluster("--appendfsync", "always")
    try:
        store: Any = RedisStore(cluster.url, settings=PATIENT, replicas=1)
        with App(store) as app:
            queue = app.queue("moved")
            queue.offer_many([Message(key=key, payload=1) for key in "ab"])
            assert queue.contains("a")
            key = queue_key(app, "moved")
            primary = cluster.primary_of(key)
            send, lost = store._send, []

            def send_and_lose(call: ScriptCall, command: Any) -> Any:
                reply = send(call, command)
                if not lost and call.script.name == "messages/poll_one":
                    lost.append(reply)
                    primary.kill()
                    until(lambda: cluster.primary_of(key) is not primary)
                    primary.start()
                    raise redis.ConnectionError("the reply was lost")
                return reply

            store._send = send_and_lose
            delivery = queue.try_poll()
            assert delivery is not None
            assert lost
            assert (delivery.key, delivery.attempt, delivery.ack()) == ("a", 1, Settled.DONE)
            assert kinds(app, queue, "a") == ["offered", "leased", "acked"]
            assert app.queues.counts("moved").ready.n == 1
    finally:
        cluster.close()


@pytest.mark.chaos
def test_a_queue_whose_nodes_are_all_down_is_unavailable_and_has_everything_afterwards() -> None:
    cluster = RedisCluster("--appendfsync", "always")
    try:
        brief = StoreSettings(connection_retry=RetrySettings(retries=3, total_for=SECOND))
        with (
            App(RedisStore(cluster.url, settings=brief)) as app,
            App(RedisStore(cluster.url, settings=PATIENT)) as patient,
        ):  # pyright: ignore[reportArgumentType]
            queue = app.queue("down")
            queue.offer("a", 1)
            assert queue.contains("a")
            primary = cluster.primary_of(queue_key(app, "down"))
            nodes = [primary, cluster.nodes[cluster.nodes.index(primary) + 3]]
            for node in nodes:
                node.kill()
            for call in (lambda: queue.offer("b", 1), queue.try_poll):
                with pytest.raises(StoreUnavailable):
                    call()
            for node in nodes:
                node.start()
            assert patient.queue("down").offer("c", 1) is Outcome.CREATED
            polled = patient.queue("down").try_poll_many(9)
            assert {"a", "c"} <= {delivery.key for delivery in polled} <= {"a", "b", "c"}
            assert {delivery.ack() for delivery in polled} == {Settled.DONE}
    finally:
        cluster.close()


def test_a_child_process_has_as_many_connections_as_its_parent_had(server: RedisServer) -> None:
    with App(RedisStore(server.url, settings=StoreSettings(pool_size=1))) as app:  # pyright: ignore[reportArgumentType]
        queue = app.queue(new_name())
        queue.offer("first", 0)
        store: Any = app.store
        store._connections._free.get()  # as by a thread that awaits its reply while another one forks
        child = os.fork()
        if child == 0:
            os._exit(0 if queue.contains("first") else 1)
        assert os.waitpid(child, 0)[1] == 0
