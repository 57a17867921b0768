"""A broker as a store for code that blocks. `verbs` has the verbs of `core.ports.Store`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx

from tarry.core.settings import StoreSettings
from tarry.storage.http.call import Answer, Call, Op
from tarry.storage.http.lanes import Lanes
from tarry.storage.http.transport import FAULTS, Tries, connection, refuse_conn
from tarry.storage.http.verbs import VERBS, Verb, op_of


class HttpStore:
    def __init__(self, url: str, key: str | None = None, *, settings: StoreSettings = StoreSettings()) -> None:
        self.settings = settings
        self._client = httpx.Client(**connection(url, key), transport=Lanes(settings.pool_size))

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
