"""Requests with retries, and the stream of live events with resumption, for the blocking and the awaiting store."""

import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from tarry.core.errors import InvalidInput, StoreUnavailable
from tarry.core.journal.positions import Gap, GapReason, LiveEvent
from tarry.core.settings import StoreSettings
from tarry.storage.http.call import TRANSIENT, Call, Reply, raise_problem
from tarry.storage.http.protocol import Address, HttpRequest, HttpResponse
from tarry.wire.events import GapEvent
from tarry.wire.events import LiveEvent as WireEvent

_SILENT_S = 60.0
"""A broker sends at least a comment every 15 seconds: after this long without one it counts as unavailable."""
FAULTS = (OSError, UnicodeError)
"""Of a request: the second is for a host that is no name."""


class RequestTries:
    """The tries of one request. A request whose response was lost is repeated: one that must not be executed twice has an
    idempotency key."""

    def __init__(self, settings: StoreSettings, call: Call, timer: Callable[[], float] = time.monotonic) -> None:
        self._connection_retry = settings.connection_retry
        self._call = call
        self._timer = timer
        self.pause_s = 0.0
        self.restart()

    def restart(self) -> None:
        self._started_s = self._timer()
        self._n = 0

    def next(self) -> None:
        self._n += 1
        self.pause_s = self._connection_retry.pause(self._n).total_seconds()

    @property
    def _is_last(self) -> bool:
        spent_s = self._timer() - self._started_s + self.pause_s
        return self._connection_retry.is_over(self._n, spent_s - self._call.wait_s)

    def received(self, response: HttpResponse) -> Reply | None:
        """None: retry after the pause."""
        retry_after = response.header(b"retry-after")
        # 429 without Retry-After: a queue is full, and the caller decides.
        if retry_after if response.status in (409, 429) else response.status in TRANSIENT:
            # A request before Retry-After would be rejected, too.
            # Brokers send seconds. A date, which a proxy may send, is ignored.
            if retry_after.isascii() and retry_after.isdigit():
                self.pause_s = max(self.pause_s, float(retry_after))
            if not self._is_last:
                return None
        return Reply(response.status, response.take_body(), self._n)

    def failed(self, error: Exception) -> None:
        """Raise the error for the caller, unless the request is to be retried."""
        if not isinstance(error, OSError):
            raise InvalidInput(f"not the URL of a broker: {error}") from error
        if not self._is_last:
            return
        more = self._n - 1
        again = "" if more == 0 else f" after {more} {'retry' if more == 1 else 'retries'}"
        raise StoreUnavailable(
            f"the broker cannot be reached{again}: {str(error) or type(error).__name__}",
            hint="check the address, and that tarry serve runs there",
        ) from error


class EventTail:
    """The position moves with every id, also with one without data, so that a resumed stream repeats no event."""

    def __init__(
        self,
        settings: StoreSettings,
        queues: Sequence[str],
        kinds: Sequence[str],
        after: str | None,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.position = after
        self._connect_s = settings.connect_for.total_seconds()
        self._call = Call("GET", "/v1/events", params={"queue": list(queues), "kind": [str(kind) for kind in kinds]})
        self.tries = RequestTries(settings, self._call, timer)
        self._rest = b""
        self._works = False

    def request(self, address: Address) -> HttpRequest:
        self._renew()
        self.tries.next()
        self._rest = b""
        headers = {"accept": "text/event-stream"} | ({} if self.position is None else {"last-event-id": self.position})
        return address.request(self._call, self._connect_s, headers)._replace(reply_s=_SILENT_S)

    def rejected(self, response: HttpResponse) -> None:
        """Raise the error of a response, unless the request is to be retried."""
        reply = self.tries.received(response)
        if reply is not None:
            raise_problem(reply, self._call)

    def failed(self, error: Exception) -> None:
        """Raise the error, unless the request is to be retried."""
        if self._renew():
            self.tries.next()
        self.tries.failed(error)

    def _renew(self) -> bool:
        """Count retries from zero after a stream that worked."""
        worked, self._works = self._works, False
        if worked:
            self.tries.restart()
        return worked

    def events(self, chunk: bytes) -> Iterator[LiveEvent | Gap]:
        self._works = True
        blocks = (self._rest + chunk).split(b"\n\n")
        self._rest = blocks.pop()
        for block in blocks:
            fields: dict[str, str] = {}
            for line in block.decode().split("\n"):
                name, _, value = line.partition(":")  # a comment has no name
                fields[name] = value.removeprefix(" ")
            position = fields.get("id", self.position or "")
            if "data" in fields:
                yield _event(fields.get("event", ""), position, fields["data"])
            self.position = position


def _event(name: str, position: str, data: str) -> LiveEvent | Gap:
    if name == "gap":
        gap = msgspec.json.decode(data, type=GapEvent)
        return Gap(position, GapReason(gap.reason), gap.detail)
    return LiveEvent(position, msgspec.json.decode(data, type=WireEvent).core())
