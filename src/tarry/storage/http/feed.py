"""Live events of a broker: reading the stream, and coming back to where it broke off. Driven by both shells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import msgspec

from tarry.core.following import Gap, LiveEvent, Missed
from tarry.core.settings import StoreSettings
from tarry.storage.http import reading
from tarry.storage.http.call import Call, ask
from tarry.storage.http.transport import Tries

_SILENT_S = 60.0
"""A broker says something every 15 seconds: one that says nothing for so long is gone."""


class Feed:
    """The position moves with every id, also with one that tells nothing, so that who comes back is not told twice."""

    def __init__(self, settings: StoreSettings, queues: Sequence[str], kinds: Sequence[str], after: str | None) -> None:
        self.position = after
        self._settings = settings
        self._call = Call("GET", "/v1/events", params={"queue": list(queues), "kind": [str(kind) for kind in kinds]})
        self._tries = Tries(settings, self._call)
        self._rest = b""
        self._works = False

    @property
    def pause_s(self) -> float:
        """Before the next request."""
        return self._tries.pause_s

    def request(self) -> dict[str, Any]:
        self._renew()
        asked = self._tries.next()
        self._rest = b""
        headers = {"accept": "text/event-stream"} | ({} if self.position is None else {"last-event-id": self.position})
        timeout = httpx.Timeout(_SILENT_S, connect=self._settings.connect_for.total_seconds())
        return {**asked, "headers": headers, "timeout": timeout}

    def refused(self, found: httpx.Response) -> None:
        """Raises, unless it is to be asked again."""
        answer = self._tries.answered(found)
        if answer is not None:
            op = ask(self._call)
            next(op)
            op.send(answer)  # raises what it means

    def failed(self, error: Exception) -> None:
        """Raises, unless it is to be asked again."""
        if self._renew():
            self._tries.next()
        self._tries.failed(error)

    def _renew(self) -> bool:
        """However long it has worked: when it breaks off, patience begins anew."""
        worked, self._works = self._works, False
        if worked:
            self._tries = Tries(self._settings, self._call)
        return worked

    def heard(self, chunk: bytes) -> Iterator[LiveEvent | Missed]:
        self._works = True
        blocks = (self._rest + chunk).split(b"\n\n")
        self._rest = blocks.pop()
        for block in blocks:
            fields = dict(_field(line) for line in block.split(b"\n"))
            position = fields.get("id", self.position or "")
            if "data" in fields:
                yield _told(fields.get("event", ""), position, msgspec.json.decode(fields["data"]))
            self.position = position


def _field(line: bytes) -> tuple[str, str]:
    """Comments are fields without a name."""
    name, _, value = line.decode().partition(":")
    return name, value.removeprefix(" ")


def _told(name: str, position: str, data: dict[str, Any]) -> LiveEvent | Missed:
    if name == "gap":
        return Missed(position, Gap(data["reason"]), data["detail"])
    return LiveEvent(position, reading.event(data))
