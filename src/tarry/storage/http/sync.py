"""A broker as a store for code that blocks. `verbs` has the verbs of `core.ports.Store`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx

from tarry.core.following import LiveEvent, Missed
from tarry.core.settings import StoreSettings
from tarry.storage.http.call import Answer, Call, Op
from tarry.storage.http.feed import Feed
from tarry.storage.http.lanes import Lanes
from tarry.storage.http.transport import FAULTS, Tries, connection, refuse_conn
from tarry.storage.http.verbs import VERBS, Verb, op_of


class HttpStore:
    def __init__(self, url: str, key: str | None = None, *, settings: StoreSettings = StoreSettings()) -> None:
        self.settings = settings
        self._connection = connection(url, key)
        self._client = httpx.Client(**self._connection, transport=Lanes(settings.pool_size))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in VERBS:
            raise AttributeError(f"a broker has no verb {name!r}")
        create = self.settings.create_queues
        return self.asking(lambda *args, **options: op_of(name, args, options, create=create))

    def asking(self, verb: Verb) -> Callable[..., Any]:
        """The verb, driven."""

        def asked(*args: Any, conn: Any = None, **options: Any) -> Any:
            refuse_conn(conn)
            return self._drive(verb(*args, **options))

        return asked

    def events(self, queues: Sequence[str], kinds: Sequence[str], after: str | None) -> Iterator[LiveEvent | Missed]:
        """On a connection of its own, which is there for as long as somebody iterates."""
        feed = Feed(self.settings, queues, kinds, after)
        while True:
            time.sleep(feed.pause_s)
            try:
                with httpx.Client(**self._connection) as client, client.stream(**feed.request()) as found:
                    if found.status_code != 200:
                        found.read()
                        feed.refused(found)
                        continue
                    for chunk in found.iter_bytes():
                        yield from feed.heard(chunk)
            except FAULTS as error:
                feed.failed(error)

    def close(self) -> None:
        self._client.close()

    def _drive(self, op: Op[Any]) -> Any:
        try:
            call = next(op)
            while True:
                call = op.send(self._answered(call))
        except StopIteration as stop:
            return stop.value

    def _answered(self, call: Call) -> Answer:
        tries = Tries(self.settings, call)
        while True:
            try:
                answer = tries.answered(self._client.request(**tries.next()))
            except FAULTS as error:
                answer = tries.failed(error)
            if answer is not None:
                return answer
            time.sleep(tries.pause_s)
