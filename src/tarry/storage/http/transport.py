"""What both shells need to know about sockets."""

from __future__ import annotations

from typing import Any

import httpx

from tarry.core.errors import InvalidInput, StoreUnavailable
from tarry.core.settings import StoreSettings
from tarry.storage.http.call import Call

_ANSWER_S = 30.0


def headers(key: str | None) -> dict[str, str]:
    return {} if key is None else {"authorization": f"Bearer {key}"}


def timeouts(settings: StoreSettings, call: Call) -> httpx.Timeout:
    connect_s = settings.connect_for.total_seconds()
    return httpx.Timeout(_ANSWER_S + call.wait_s, connect=connect_s, pool=_ANSWER_S + call.wait_s)


def unreachable(error: httpx.TransportError, tries: int) -> StoreUnavailable:
    again = "" if tries <= 1 else f", also not after {tries - 1} more {'try' if tries == 2 else 'tries'}"
    return StoreUnavailable(
        f"the broker cannot be reached{again}: {str(error) or type(error).__name__}",
        hint="check the address, and that tarry serve runs there",
    )


def refuse_conn(conn: Any) -> None:
    if conn is not None:
        raise InvalidInput(
            "a broker has no connections: its changes cannot be part of a transaction",
            hint="leave conn away, or connect to the database: tarry.connect(dsn)",
        )
