"""One subscription per store: a thread that receives notifications for the consumers of this process.

A notification is a hint. Until the subscription is confirmed, and while it is broken, consumers scan."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from typing import Any

import msgspec
from redis.exceptions import RedisError

from tarry.core.settings import StoreSettings
from tarry.core.wakeup.wait_queue import WaitKey, WaitQueue
from tarry.storage.redis.clients import blocking_client
from tarry.storage.redis.operation import since

_PAUSE_S = 1.0
_CHECK_S = 10.0
"""Interval of pings on an idle subscription, to detect a half-open connection."""
_log = logging.getLogger("tarry")


class NotificationListener:
    def __init__(self, url: str, settings: StoreSettings, wait_queue: WaitQueue, *, trusted: bool) -> None:
        """`trusted`: consumers may sleep longer while notifications arrive. False with a pinned clock."""
        self._url, self._settings = url, settings
        self._wait_queue = wait_queue
        self._trusted = trusted
        self.channel = f"tarry:wakeup:{secrets.token_hex(8)}"
        self.is_listening = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._closed = threading.Event()

    def ensure(self) -> None:
        """Start the listener thread unless it runs. A child process starts its own, with its own channel."""
        with self._lock:
            if self._pid != os.getpid():
                self._pid, self._thread = os.getpid(), None
                self.channel = f"tarry:wakeup:{secrets.token_hex(8)}"
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="tarry-redis-listener", daemon=True)
                self._thread.start()

    def close(self) -> None:
        self._closed.set()
        thread = self._thread
        if thread is not None and self._pid == os.getpid():
            thread.join(2 * _PAUSE_S)

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                client = blocking_client(self._url, self._settings)
                try:
                    self._listen(client)
                finally:
                    client.close()
            except (RedisError, OSError) as error:
                _log.info("the subscription of notifications is broken, consumers scan: %s", error)
                self._set(is_listening=False)
                self._closed.wait(_PAUSE_S)
        self._set(is_listening=False)

    def _listen(self, client: Any) -> None:
        idle_s = 0.0
        with client.pubsub() as pubsub:
            pubsub.subscribe(self.channel)
            while not self._closed.is_set():
                message = pubsub.get_message(timeout=_PAUSE_S / 4)
                idle_s = 0.0 if message else idle_s + _PAUSE_S / 4
                if idle_s >= _CHECK_S:
                    pubsub.ping()
                    idle_s = 0.0
                if message is None:
                    continue
                if message["type"] == "subscribe":
                    self._set(is_listening=True)
                elif message["type"] == "message":
                    queue, type, due_in = msgspec.msgpack.decode(message["data"])
                    self._wait_queue.notify(WaitKey(queue, type or None), since(due_in))

    def _set(self, *, is_listening: bool) -> None:
        self.is_listening = is_listening
        self._wait_queue.is_listening = is_listening and self._trusted
        self._wait_queue.notify_all()
