"""The roles of a broker's client have the arguments of their ports, and lost replies are handled."""

from __future__ import annotations

import inspect
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta

import pytest

from tarry.core.cron.model import ScheduleChange
from tarry.core.errors import StoreUnavailable
from tarry.core.ports import CronRole, DeadLettersRole, JournalRole, MessagesRole, QueuesRole
from tarry.core.settings import RetrySettings, StoreSettings
from tarry.http import Client
from tarry.storage.http import HttpStore
from tarry.storage.http.call import Call
from tarry.storage.http.protocol import HttpResponse
from tarry.storage.http.transport import RequestTries
from tests.kit.clocks import START

MORE = {"messages.poll": {"wait_for"}}
PORTS = {
    "messages": MessagesRole,
    "queues": QueuesRole,
    "dead_letters": DeadLettersRole,
    "cron": CronRole,
    "journal": JournalRole,
}
LACKING = {
    "messages": {"bury_by_key"},
    "dead_letters": {"next_redrive_in", "label"},
    "cron": {"due_counts"},
    "journal": {"tail"},
}
"""What is done where the database is."""


def methods(of: object) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_") and callable(getattr(of, name))}


@pytest.mark.parametrize("role", PORTS)
def test_a_role_has_the_methods_of_its_port_with_their_arguments(role: str) -> None:
    port = PORTS[role]
    with closing(HttpStore("http://localhost:1")) as store:
        implementation = getattr(store, role)
        assert methods(implementation) == methods(port) - LACKING.get(role, set())
        for name in methods(implementation):
            given = inspect.signature(getattr(implementation, name)).parameters
            expected = dict(inspect.signature(getattr(port, name)).parameters)
            del expected["self"]
            assert [each for each in given if each not in MORE.get(f"{role}.{name}", set())] == list(expected), name
            for each, parameter in expected.items():
                assert (given[each].default, given[each].kind) == (parameter.default, parameter.kind), name


def test_a_broker_lacks_the_roles_of_the_database() -> None:
    with closing(HttpStore("http://localhost:1")) as store:
        for name in ("wakeup", "security", "maintenance"):
            assert not hasattr(store, name)


@contextmanager
def hanging_up() -> Iterator[tuple[str, list[bytes]]]:
    """A server that reads a request and hangs up: whether it was carried out is unknown."""
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            while True:
                try:
                    taken, _ = listening.accept()
                except OSError:
                    return
                with taken:
                    requests.append(taken.recv(65_536))

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", requests
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(30)


def rejected(status: int, retry_after: str) -> HttpResponse:
    response = HttpResponse()
    response.receive(f"HTTP/1.1 {status} \r\nRetry-After: {retry_after}\r\ncontent-length: 0\r\n\r\n".encode())
    return response


def test_a_request_with_a_retry_after_is_repeated_then_and_not_before() -> None:
    tries = RequestTries(StoreSettings(), Call("GET", "/v1/now"))
    for retry_after, pause_s in (("2", 2.0), ("0", 0.2), ("Fri, 31 Dec 1999 23:59:59 GMT", 0.4)):
        tries.next()
        assert tries.received(rejected(429, retry_after)) is None
        assert tries.pause_s == pytest.approx(pause_s)
    tries.next()
    too_long = tries.received(rejected(503, "3600"))
    assert too_long is not None, "it waited for longer than its timeout"


def test_what_would_be_done_twice_is_sent_again_under_the_same_key() -> None:
    settings = StoreSettings(connection_retry=RetrySettings(retries=2, initial_for=timedelta(milliseconds=1)))
    with hanging_up() as (url, requests), Client(url, settings=settings) as client:
        change = ScheduleChange(name="report", expected=1, after=None, decided_at=START)
        for once in (
            lambda: client.store.run(client.store.cron.apply_changes([change])),
            lambda: client.queue("q").offer("k", 1),
        ):
            requests.clear()
            with pytest.raises(StoreUnavailable, match="after 2 retries"):
                once()
            keys = [re.findall(rb"idempotency-key: (\S+)", request) for request in requests]
            assert len(keys) == 3
            assert keys[0] == keys[1] == keys[2] != []
