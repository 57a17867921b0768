"""Stored responses of idempotency keys, in memory. They end with the process, like the state they describe."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta

from tarry.core.errors import HeldUp
from tarry.core.once import Answered, Once

KEPT = 10_000


class Answers:
    """Thread-safe. Between `begin` and `end` the same request is refused; `end` without a response allows a retry."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._under_way: set[tuple[str, str]] = set()
        self._kept: OrderedDict[tuple[str, str], tuple[Once, Answered, datetime]] = OrderedDict()

    def begin(self, request: Once) -> list[Answered | None]:
        """The stored response in a list, or an empty list; None in it: the key was used for another request."""
        place = (request.caller, request.key)
        with self._lock:
            if place in self._under_way:
                raise HeldUp("the same request is being carried out", hint="say it again")
            if place not in self._kept:
                self._under_way.add(place)
                return []
            said, answered, _ = self._kept[place]
            return [answered._replace(replayed=True) if said == request else None]

    def end(self, request: Once, answered: Answered | None) -> None:
        place = (request.caller, request.key)
        with self._lock:
            self._under_way.discard(place)
            if answered is not None:
                self._kept[place] = (request, answered, self._now())
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)

    def forget(self, older_than: timedelta, limit: int) -> int:
        before = self._now() - older_than
        with self._lock:
            old = [place for place, (_, _, at) in self._kept.items() if at < before][: max(limit, 0)]
            for place in old:
                del self._kept[place]
        return len(old)
