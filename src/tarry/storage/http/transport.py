"""What both shells need to know about sockets, and about when to ask again."""

from __future__ import annotations

import time
from typing import Any

import httpx
import msgspec

from tarry.core.errors import InvalidInput, StoreUnavailable
from tarry.core.settings import StoreSettings
from tarry.storage.http.call import Answer, Call, is_passing

_ANSWER_S = 30.0


def connection(url: str, key: str | None) -> dict[str, Any]:
    """For a client of httpx, of either kind."""
    return {
        "base_url": url.rstrip("/"),
        "headers": {} if key is None else {"authorization": f"Bearer {key}"},
        "trust_env": False,
    }


class Tries:
    """One request, until it is answered or patience ends. What may have been lost on the way is asked for again: what must
    not be done twice has a key of its own."""

    def __init__(self, settings: StoreSettings, call: Call) -> None:
        self._patience = settings.patience
        self._call = call
        self._started_s = time.monotonic()
        self._n = 0
        self.pause_s = 0.0
        wait_s = _ANSWER_S + call.wait_s
        self._request = {
            "method": call.method,
            "url": call.path,
            "content": None if call.body is None else msgspec.json.encode(call.body),
            "params": call.params,
            "headers": {"content-type": "application/json"} | ({"idempotency-key": call.key} if call.key else {}),
            "timeout": httpx.Timeout(wait_s, connect=settings.connect_for.total_seconds(), pool=wait_s),
        }

    def next(self) -> dict[str, Any]:
        """What to send."""
        self._n += 1
        self.pause_s = self._patience.pause(self._n).total_seconds()
        return self._request

    @property
    def _is_last(self) -> bool:
        spent_s = time.monotonic() - self._started_s + self.pause_s
        return (
            self._n > self._patience.retries or spent_s > self._patience.total_for.total_seconds() + self._call.wait_s
        )

    def answered(self, found: httpx.Response) -> Answer | None:
        """None: to be asked again, after the pause."""
        held_up = found.status_code == 409 and "retry-after" in found.headers
        if held_up or is_passing(found.status_code):
            # Who asks again before the broker wants to hear it has lost a try.
            self.pause_s = max(self.pause_s, _asked_to_wait_s(found.headers.get("retry-after", "")))
            if not self._is_last:
                return None
        return Answer(found.status_code, found.content, self._n)

    def failed(self, error: Exception) -> None:
        """Raises what the caller is to hear of, if it is not to be asked again."""
        if not isinstance(error, httpx.TransportError):
            raise InvalidInput(f"this is not the address of a broker: {error}") from error
        if not self._is_last:
            return
        more = self._n - 1
        again = "" if more == 0 else f", also not after {more} more {'try' if more == 1 else 'tries'}"
        raise StoreUnavailable(
            f"the broker cannot be reached{again}: {str(error) or type(error).__name__}",
            hint="check the address, and that tarry serve runs there",
        ) from error


def _asked_to_wait_s(said: str) -> float:
    """As our brokers say it, in seconds; a proxy may name a date, which is not heeded."""
    return float(said) if said.isascii() and said.isdigit() else 0.0


FAULTS = (httpx.TransportError, httpx.InvalidURL, UnicodeError)


def refuse_conn(conn: Any) -> None:
    if conn is not None:
        raise InvalidInput(
            "a broker has no connections: its changes cannot be part of a transaction",
            hint="leave conn away, or connect to the database: tarry.connect(dsn)",
        )
