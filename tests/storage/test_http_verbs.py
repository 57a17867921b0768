"""The client of a broker has the verbs of a store by name: they must have the arguments of a store, too."""

from __future__ import annotations

import inspect
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta

import httpx
import pytest

from tarry.core.cron import Ruling
from tarry.core.errors import StoreUnavailable
from tarry.core.ports import AsyncStore, Store
from tarry.core.settings import Patience, StoreSettings
from tarry.http import Client
from tarry.storage.http import HttpStore
from tarry.storage.http.call import Call
from tarry.storage.http.transport import Tries
from tarry.storage.http.verbs import VERBS
from tests.kit.clocks import START

MORE = {"lease": {"wait_for"}}
LESS = {"advance_redrive": {"lead"}}
"""Leaders are elected where the database is."""


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_has_the_arguments_of_a_store(name: str) -> None:
    found = inspect.signature(VERBS[name]).parameters
    for port in (Store, AsyncStore):
        asked = inspect.signature(getattr(port, name)).parameters
        names = [one for one in asked if one not in {"self", "conn"} | LESS.get(name, set())]
        assert [one for one in found if one not in MORE.get(name, set())] == names
        for one in names:
            assert found[one].default == asked[one].default
            assert found[one].kind == asked[one].kind


def test_what_a_broker_does_not_have_is_no_attribute() -> None:
    with closing(HttpStore("http://localhost:1")) as store:
        assert hasattr(store, "offer")
        for name in ("sweep", "due_counts", "lead", "lobby", "_verbs"):
            assert not hasattr(store, name)


@contextmanager
def hanging_up() -> Iterator[tuple[str, list[bytes]]]:
    """A server that reads a request and hangs up: whether it was carried out, nobody knows."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            while True:
                try:
                    taken, _ = listening.accept()
                except OSError:
                    return
                with taken:
                    heard.append(taken.recv(65_536))

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", heard
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(30)


def test_a_broker_that_says_when_to_come_back_is_asked_again_then_and_not_before() -> None:
    tries = Tries(StoreSettings(), Call("GET", "/v1/now"))
    for said, pause_s in (("2", 2.0), ("0", 0.2), ("Fri, 31 Dec 1999 23:59:59 GMT", 0.4)):
        tries.next()
        assert tries.answered(httpx.Response(429, headers={"retry-after": said})) is None
        assert tries.pause_s == pytest.approx(pause_s)
    tries.next()
    too_long = tries.answered(httpx.Response(503, headers={"retry-after": "3600"}))
    assert too_long is not None, "it waited for longer than there is patience"


def test_what_would_be_done_twice_is_sent_again_under_the_same_key() -> None:
    settings = StoreSettings(patience=Patience(retries=2, initial_for=timedelta(milliseconds=1)))
    with hanging_up() as (url, heard), Client(url, settings=settings) as client:
        ruling = Ruling(prefix="report", expected=1, after=None, ruled_at=START)
        for once in (lambda: client.store.rule([ruling]), lambda: client.queue("q").offer("k", 1)):
            heard.clear()
            with pytest.raises(StoreUnavailable, match="also not after 2 more tries"):
                once()
            keys = [re.findall(rb"idempotency-key: (\S+)", request) for request in heard]
            assert len(keys) == 3
            assert keys[0] == keys[1] == keys[2] != []
